package kafkabroker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Epochs of a member that say something else.
const (
	joinEpoch        = 0
	leaveEpoch       = -1
	leaveStaticEpoch = -2 // a static member that comes back
)

// A logPart is a partition as the group names it: by its topic's id, so that a topic that was made again is another one.
type logPart struct {
	id topicID
	no int32
}

func compareLogParts(a, b logPart) int {
	return cmp.Or(slices.Compare(a.id[:], b.id[:]), cmp.Compare(a.no, b.no))
}

// A beat is what one heartbeat tells the group (ConsumerGroupHeartbeat, version 1).
type beat struct {
	member   string
	instance string
	epoch    int32
	full     *enlistment // nil: it is as told before
	owned    []logPart   // nil: they are as told before
}

// An enlistment is what a member tells the group when it joins, or is not sure what the group knows.
type enlistment struct {
	topics    []string
	regex     string
	assignor  string
	rack      string
	rebalance time.Duration // how long it may take to give something up
}

// A beatAnswer is what the group answers.
type beatAnswer struct {
	code     int16
	message  string
	epoch    int32
	interval time.Duration
	told     bool // it says what we are to have; not: that is as before
	assigned []logPart
}

// write is the request's body. What stays as it was is null.
func (b beat) write(group string) []byte {
	w := writer{flexible: true}
	w.str(group)
	w.str(b.member)
	w.i32(b.epoch)
	w.nullable(b.instance)
	if f := b.full; f != nil {
		w.nullable(f.rack)
		w.i32(int32(f.rebalance.Milliseconds()))
		w.strs(f.topics)
		w.nullable(f.regex)
		w.nullable(f.assignor)
	} else {
		w.nullable("")
		w.i32(-1)
		w.array(-1)
		w.nullable("")
		w.nullable("")
	}
	w.logParts(b.owned)
	w.tags()
	return w.b
}

// strs writes strings; there is no null.
func (w *writer) strs(all []string) {
	w.array(len(all))
	for _, s := range all {
		w.str(s)
	}
}

// logParts writes partitions by their topics; nil is null.
func (w *writer) logParts(ps []logPart) {
	if ps == nil {
		w.array(-1)
		return
	}
	by := make(map[topicID][]int32)
	var ids []topicID
	for _, p := range ps {
		if by[p.id] == nil {
			ids = append(ids, p.id)
		}
		by[p.id] = append(by[p.id], p.no)
	}
	w.array(len(ids))
	for _, id := range ids {
		w.id(id)
		w.array(len(by[id]))
		for _, no := range by[id] {
			w.i32(no)
		}
		w.tags()
	}
}

// readBeat reads the answer.
func readBeat(r *reader) (a beatAnswer, err error) {
	r.i32() // throttled
	a.code, a.message = r.i16(), r.str()
	r.str() // member: ours
	a.epoch, a.interval = r.i32(), time.Duration(r.i32())*time.Millisecond
	if a.told = r.i8() == 1; a.told { // a struct that may be null: -1
		r.each(func() {
			id := r.id()
			r.each(func() { a.assigned = append(a.assigned, logPart{id, r.partition()}) })
			r.tags()
		})
		r.tags()
	}
	r.tags()
	return a, r.err()
}

// beat sends a heartbeat of the consumer protocol.
func (k *coordinator) beat(ctx context.Context, b beat) (beatAnswer, error) {
	r, err := k.do(ctx, keyConsumerGroupHeartbeat, 1, b.write(k.group))
	if err != nil {
		return beatAnswer{}, err
	}
	a, err := readBeat(r)
	if err != nil {
		return a, fmt.Errorf("heartbeat: %w", err)
	}
	err = k.check("heartbeat", a.code)
	if err != nil && a.message != "" {
		err = fmt.Errorf("%w: %s", err, a.message)
	}
	return a, err
}
