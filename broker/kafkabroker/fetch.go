package kafkabroker

import (
	"context"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// A wish is what a fetch asks of one partition.
type wish struct {
	partitionID
	id     topicID
	offset int64
	epoch  int32 // of the leader that wrote the last batch that was looked at; -1: not known
	bytes  int32
}

// A fetched is what it got.
type fetched struct {
	partitionID
	err       error
	high      int64 // high watermark
	stable    int64 // last stable offset; -1: unknown
	aborted   []aborted
	preferred int32 // a replica to fetch from instead; -1: none
	diverges  bool  // its log is not the one that the wish's epoch and offset are of, or does not have that yet
	records   []byte
}

// A fetchRequest asks one broker for several partitions at once.
type fetchRequest struct {
	node      int32
	maxWait   time.Duration
	bytes     int32
	committed bool
	rack      string
	wishes    []wish // each topic's in one piece, by name and by id

	throttled time.Duration // for so long the broker gives nothing more: its answer had nothing because of that
}

// fetch asks and waits. The answer's records lie in one buffer. A broker sends at least the first batch whole, however large
// (KIP-74), so the answer may exceed bytes by a batch.
func (c *cluster) fetch(ctx context.Context, f *fetchRequest, largest int) ([]fetched, error) {
	version, err := c.pick(ctx, f.node, keyFetch, 13, 11)
	if err != nil {
		return nil, err
	}
	for _, w := range f.wishes {
		if w.id == (topicID{}) {
			version = 11
		}
	}
	q := &request{node: f.node, key: keyFetch, version: version, body: f.body(version), limit: int(f.bytes) + largest + 1<<20,
		room: f.room()}
	r, err := c.exchange(ctx, q, f.maxWait+c.timeout)
	if err != nil {
		return nil, err
	}
	f.throttled = q.throttle
	return f.read(r, version)
}

// What an answer has beside its records: once, and for each partition.
const (
	answerFrame = 1 << 10
	wishFrame   = 64
)

// room is how long the answer may be that the broker was asked for. Were it less, the answer would be copied when it has filled
// it.
func (f *fetchRequest) room() int { return int(f.bytes) + answerFrame + wishFrame*len(f.wishes) }

func (f *fetchRequest) body(version int16) []byte {
	w := writer{flexible: version >= 12, b: make([]byte, 0, 128+64*len(f.wishes))}
	w.i32(-1) // replica
	w.i32(int32(f.maxWait.Milliseconds()))
	w.i32(1)
	w.i32(f.bytes)
	w.i8(map[bool]int8{true: 1}[f.committed])
	w.i32(0)  // no session
	w.i32(-1) // at all
	topics := byTopic(f.wishes, version >= 13)
	w.array(len(topics))
	for _, ps := range topics {
		if version >= 13 {
			w.id(ps[0].id)
		} else {
			w.str(ps[0].topic)
		}
		w.array(len(ps))
		for _, p := range ps {
			w.i32(p.no)
			w.i32(-1) // leader epoch
			w.i64(p.offset)
			if version >= 12 {
				w.i32(p.epoch)
			}
			w.i64(-1) // log start, a follower's
			w.i32(p.bytes)
			w.tags()
		}
		w.tags()
	}
	w.array(0) // forgotten topics of a session
	w.str(f.rack)
	w.tags()
	return w.b
}

// read reads an answer. Of one that was cut off it is what came, and the records of the last partition end where that does.
func (f *fetchRequest) read(r *reader, version int16) ([]fetched, error) {
	r.i32()
	if err := codeErr(r.i16()); err != nil {
		return nil, fmt.Errorf("fetching: %w", err)
	}
	r.i32()
	names := make(map[topicID]string)
	for _, ps := range byTopic(f.wishes, version >= 13) {
		names[ps[0].id] = ps[0].topic
	}
	asked := finder{n: len(f.wishes), of: func(i int) partitionID { return f.wishes[i].partitionID }}
	got := make([]fetched, 0, len(f.wishes))
	for n := r.array(); n > 0 && !r.bad; n-- {
		name := ""
		if version >= 13 {
			name = names[r.id()]
		} else {
			name = r.str()
		}
		for m := r.array(); m > 0 && !r.bad; m-- {
			p := readFetched(r, name, version)
			if r.bad && len(p.records) == 0 {
				break
			}
			if asked.find(p.partitionID) >= 0 { // once each
				got = append(got, p)
			}
		}
		r.tags()
	}
	if r.cut && len(got) > 0 {
		return got, nil
	}
	return got, r.err()
}

// byTopic are wishes by their topics, of which each comes in one piece. ids: those of one name are several where their ids are,
// for one may have begun before its topic was made anew.
func byTopic(ws []wish, ids bool) (topics [][]wish) {
	for len(ws) > 0 {
		n := 1
		for n < len(ws) && ws[n].topic == ws[0].topic && (!ids || ws[n].id == ws[0].id) {
			n++
		}
		topics, ws = append(topics, ws[:n]), ws[n:]
	}
	return topics
}

// A finder finds what each of many answers is to, once each. Brokers answer in the order in which they were asked, so most are
// found at the first look, and a thousand of them need no table.
type finder struct {
	n     int
	of    func(i int) partitionID
	next  int
	table map[partitionID]int // of those not found yet; nil: all came in their order
}

// find returns the number of what an answer is to; -1: to nothing, or to what was answered before.
func (f *finder) find(p partitionID) int {
	if f.table == nil && f.next < f.n && f.of(f.next) == p {
		f.next++
		return f.next - 1
	}
	if f.table == nil {
		f.table = make(map[partitionID]int, f.n-f.next)
		for i := f.next; i < f.n; i++ {
			f.table[f.of(i)] = i
		}
	}
	i, ok := f.table[p]
	if !ok {
		return -1
	}
	delete(f.table, p)
	return i
}

func readFetched(r *reader, name string, version int16) fetched {
	p := fetched{partitionID: partitionID{name, r.i32()}, preferred: -1}
	p.err = codeErr(r.i16())
	p.high, p.stable = r.i64(), r.i64()
	r.i64() // the log's start
	for n := r.array(); n > 0 && !r.bad; n-- {
		p.aborted = append(p.aborted, aborted{r.i64(), r.i64()})
		r.tags()
	}
	p.preferred = r.i32()
	p.records = r.records()
	diverging := reader{b: r.tagged(0)}
	p.diverges = diverging.i32() >= 0 && !diverging.bad
	return p
}

// outside says whether the log does not have what was asked for.
func (p *fetched) outside() bool {
	return codeOf(p.err) == kafka.OffsetOutOfRange || p.err == nil && p.diverges
}

// end is how far a consumer of this isolation can read.
func (p *fetched) end(committed bool) int64 {
	if committed && p.stable >= 0 {
		return min(p.stable, p.high)
	}
	return p.high
}

// moved says that an answer means the partition is led, or its topic is, elsewhere by now: look again.
func moved(err error) bool {
	switch codeOf(err) {
	case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.UnknownTopicOrPartition, kafka.UnknownTopicID,
		kafka.InconsistentTopicID,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.ReplicaNotAvailable, kafka.KafkaStorageError, kafka.OffsetNotAvailable:
		return true
	}
	return false
}
