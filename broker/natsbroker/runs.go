package natsbroker

// runs remembers, for messages that were given back, how often they have failed here and before when they may not come again.
// JetStream keeps neither: its own count also counts deliveries that no handler saw, and a delay is lost with a lost nak.
// Bounded: the oldest is forgotten first. Not safe for concurrent use.
type runs struct {
	max   int
	known map[runsKey]runsEntry
	order []runsKey // a ring of the keys, oldest at next once it is full
	next  int
}

type runsKey struct {
	seq   uint64
	nanos int64
}

type runsEntry struct {
	failed int32
	due    int64 // in nanoseconds of the source's clock; 0: at once
}

func newRuns(limit int) *runs { return &runs{max: limit, known: map[runsKey]runsEntry{}} }

// put remembers a message that is given back. What says nothing is not kept.
func (r *runs) put(seq uint64, nanos int64, failed int32, due int64) {
	k := runsKey{seq, nanos}
	_, was := r.known[k]
	switch {
	case failed == 0 && due == 0:
		delete(r.known, k)
		return
	case was || r.max == 0:
	case len(r.order) < r.max:
		r.order = append(r.order, k)
	default:
		delete(r.known, r.order[r.next])
		r.order[r.next] = k
		r.next = (r.next + 1) % r.max
	}
	if r.max > 0 {
		r.known[k] = runsEntry{failed, due}
	}
}

func (r *runs) get(seq uint64, nanos int64) (runsEntry, bool) {
	e, ok := r.known[runsKey{seq, nanos}]
	return e, ok
}

// settled forgets a message that is done.
func (r *runs) settled(seq uint64, nanos int64) {
	if len(r.known) > 0 {
		delete(r.known, runsKey{seq, nanos})
	}
}

func (r *runs) forget() {
	clear(r.known)
	r.order, r.next = r.order[:0], 0
}
