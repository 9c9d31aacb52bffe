package kafkabroker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A fetcher sends fetches, and looks where the log is that a position is not in.
type fetcher struct {
	cfg   *Config
	c     *cluster
	h     *holdings
	life  *kit.Life
	note  contact
	bells *bells
}

// schedule sends fetches for partitions that have nothing ready. It does not block.
func (x *fetcher) schedule() {
	for _, f := range x.h.plan(time.Now()) {
		x.life.Go(func() { x.fly(f) })
	}
}

func (x *fetcher) fly(f *flight) {
	began := time.Now()
	got, err := x.c.fetch(x.life.Context(), &f.req, x.cfg.MaxBatchBytes)
	x.refused(f, got)
	x.note.on(toBroker(f.req.node), began, err)
	x.note.operated(broker.Fetch, began, refusedFetch(got, err))
	x.throttled(f, got)
	outside := make(map[int32][]outOfRange)
	for _, o := range x.h.arrived(f, got, err, time.Now()) {
		outside[o.leader] = append(outside[o.leader], o)
	}
	x.inRange(got) // arrived has looked at that
	for leader, os := range outside {
		x.life.Go(func() { x.find(leader, os) })
	}
}

// throttled lets the time of a quota pass: it is as if the broker had taken so long to answer.
func (x *fetcher) throttled(f *flight, got []fetched) {
	empty := f.req.throttled > 0 && !slices.ContainsFunc(got, func(a fetched) bool { return len(a.records) > 0 })
	if took, long := x.c.throttles.fetched(f.req.node, empty, time.Now()); long {
		x.note.events.Say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("%w: broker %d, for %v", errDry, f.req.node, took)})
	}
	if f.req.throttled > 0 {
		pause(x.life.Context(), f.req.throttled)
	}
}

// refused takes note of partitions of which the broker gives nothing, and does not say that another one does.
func (x *fetcher) refused(f *flight, got []fetched) {
	asked := finder{n: len(f.req.wishes), of: func(i int) partitionID { return f.req.wishes[i].partitionID }}
	well := x.note.failing.none()
	for i := range got {
		a, to := &got[i], asked.find(got[i].partitionID)
		switch {
		case to < 0, well && a.err == nil:
		case a.err == nil, a.outside(), moved(a.err):
			x.note.rests(toLog(a.partitionID))
		default:
			err := fmt.Errorf("fetching %s/%d at offset %d: %w", a.topic, a.no, f.req.wishes[to].offset, a.err)
			x.note.on(toLog(a.partitionID), time.Time{}, err)
		}
	}
}

// refusedFetch is why a fetch failed, or the first partition in it.
func refusedFetch(got []fetched, err error) error {
	for i := 0; i < len(got) && err == nil; i++ {
		err = got[i].err
	}
	return err
}

// find finds out on which side of their logs positions are.
func (x *fetcher) find(leader int32, os []outOfRange) {
	ctx := x.life.Context()
	ps := make([]partitionID, len(os))
	for i, o := range os {
		ps[i] = o.p.partitionID
	}
	var ends map[partitionID]bound
	firsts, err := x.c.listOffsets(ctx, leader, ps, timeStart, x.cfg.isolation())
	if err == nil {
		ends, err = x.c.listOffsets(ctx, leader, ps, timeEnd, 0)
	}
	var epochs map[partitionID]epochEnd
	if err == nil {
		epochs, err = x.epochs(ctx, leader, os)
	}
	if err != nil {
		for _, o := range os {
			x.lost(o, err)
		}
		return
	}
	for _, o := range os {
		if e, answered := epochs[o.p.partitionID]; answered && e.err == nil {
			o.ends = &e
		}
		first, e1 := offsetOf(firsts, o.p.partitionID)
		end, e2 := offsetOf(ends, o.p.partitionID)
		err := cmp.Or(e1, e2)
		if err == nil && first > end { // it was asked first
			err = fmt.Errorf("listing offsets: %s/%d begins at %d, and ends at %d: %w", o.p.topic, o.p.no, first, end, errShort)
		}
		if err != nil {
			x.lost(o, err)
			continue
		}
		x.note.rests(toRange(o.p.partitionID))
		x.h.found(o, first, end)
	}
}

// epochs asks where the logs of epochs end. It is the leader that is asked: a follower that has no more yet than a part of an
// epoch answers as if the log had been cut off there.
func (x *fetcher) epochs(ctx context.Context, leader int32, os []outOfRange) (map[partitionID]epochEnd, error) {
	known := make(map[partitionID]int32, len(os))
	for _, o := range os {
		if o.epoch >= 0 {
			known[o.p.partitionID] = o.epoch
		}
	}
	if len(known) == 0 {
		return nil, nil
	}
	return x.c.epochEnds(ctx, leader, known)
}

// lost takes note that a leader did not tell. It may be another one by now.
func (x *fetcher) lost(o outOfRange, err error) {
	if to := toRange(o.p.partitionID); moved(err) {
		x.note.rests(to)
	} else {
		x.note.on(to, time.Time{}, err)
	}
	x.h.unfound(o)
	signal(x.bells.find)
}

// inRange takes note of partitions whose positions are in range, or are again.
func (x *fetcher) inRange(got []fetched) {
	if x.note.failing.none() {
		return
	}
	for i := range got {
		if got[i].err == nil && !got[i].outside() {
			x.note.rests(toRange(got[i].partitionID))
		}
	}
}
