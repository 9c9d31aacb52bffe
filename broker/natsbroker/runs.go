package natsbroker

import "container/list"

// runs remembers, for messages that were given back, how often they have failed here and before when they may not come again.
// JetStream keeps neither: its own count also counts deliveries that no handler saw, and a delay is lost with a lost nak.
// Bounded: which was given back the longest ago is forgotten first. Not safe for concurrent use.
type runs struct {
	max   int
	known map[runsKey]*list.Element // of order
	order list.List                 // of runsEntry, the oldest first
}

type runsKey struct {
	seq   uint64
	nanos int64
}

type runsEntry struct {
	key    runsKey
	failed int32
	due    int64 // in nanoseconds of the source's clock; 0: at once
}

func newRuns(limit int) *runs { return &runs{max: limit, known: map[runsKey]*list.Element{}} }

// put remembers a message that is given back. What says nothing is not kept.
func (r *runs) put(seq uint64, nanos int64, failed int32, due int64) {
	r.settled(seq, nanos)
	if failed == 0 && due == 0 || r.max == 0 {
		return
	}
	if len(r.known) == r.max {
		delete(r.known, r.order.Remove(r.order.Front()).(runsEntry).key)
	}
	k := runsKey{seq, nanos}
	r.known[k] = r.order.PushBack(runsEntry{k, failed, due})
}

func (r *runs) get(seq uint64, nanos int64) (runsEntry, bool) {
	e, ok := r.known[runsKey{seq, nanos}]
	if !ok {
		return runsEntry{}, false
	}
	return e.Value.(runsEntry), true
}

// settled forgets a message that is done. It makes room for another one.
func (r *runs) settled(seq uint64, nanos int64) {
	if len(r.known) == 0 {
		return
	}
	k := runsKey{seq, nanos}
	if e, ok := r.known[k]; ok {
		r.order.Remove(e)
		delete(r.known, k)
	}
}

func (r *runs) forget() {
	clear(r.known)
	r.order.Init()
}
