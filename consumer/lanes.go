package consumer

import (
	"sync"
	"sync/atomic"

	"github.com/longshoremq/longshore/broker"
)

// lanes keep the order of the messages of one partition (of one source, where it has none). A lane is there as long as a message
// of its number is at large: queued as one that may start, running, parked, or on its way to the dead letters. Later ones wait in
// it, the oldest first, and the next one follows when that one is settled. They outlive claims: a message that runs under a claim
// that has ended is still running when the next claim brings the next.
type lanes struct {
	// limit of those that wait in a lane: from there until half of it is left, the lane is crowded. From hold until thaw it is full.
	limit, hold, thaw int
	// clears: a crowded lane is rid of what fails, until half of its limit is left. What is crowded stays in it meanwhile.
	clears bool

	mu      sync.Mutex
	table   laneTable
	waiting int
	full    int // lanes
	lapses  []lapse

	held atomic.Pointer[claim] // the one that was held last, for a lane was full
}

// newLanes are those of a partition. Where what fails makes room, it does so while more come in: one key that fails would else
// stop all others, again and again. The lane is full only if more come than it can be rid of.
func newLanes(l Lane, spares laneSpares) *lanes {
	t := laneTable{spares: spares}
	if l.Full == LaneDeadLetter {
		return &lanes{table: t, limit: l.Limit, hold: l.Limit + max(1, l.Limit/4), thaw: l.Limit, clears: true}
	}
	return &lanes{table: t, limit: l.Limit, hold: l.Limit, thaw: l.Limit / 2}
}

// An intook is what became of messages that came in.
type intook struct {
	start   int           // may start
	wait    int           // in their lanes
	behind  []broker.Back // go back: a lapse stands before them
	crowded uint64        // the number of a lane that became so; 0: none did
	full    bool          // one is
}

// add takes messages in that a call of Receive returned, in their order. Those that may start come to the front of ms, in their
// order, and their numbers to the front of numbers. Those that wait are copied into their lanes.
func (t *lanes) add(k *claim, call int64, ms []broker.Message, numbers []uint64, st *stash) (in intook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lapses) > 0 {
		ms, in.behind = t.sortOut(k, call, ms, numbers)
	}
	n := 0
	for i := range ms {
		if number := numbers[i]; number != 0 {
			if at, made := t.table.add(number); !made {
				became, is := t.push(at, k, &ms[i], st)
				if in.full = in.full || is; became {
					in.crowded = number
				}
				continue
			}
		}
		if n != i {
			ms[n], numbers[n] = ms[i], numbers[i]
		}
		n++
	}
	in.start, in.wait = n, len(ms)-n
	return in
}

// push says whether the lane of a slot became crowded by it, and whether it is full.
func (t *lanes) push(at int, k *claim, m *broker.Message, st *stash) (crowded, full bool) {
	c := t.table.chain(at)
	c.push(k, m, st)
	t.waiting++
	return t.grown(c), c.full
}

// grown looks at a lane that has more than before, and says whether it became crowded.
func (t *lanes) grown(c *chain) (crowded bool) {
	if !c.crowded && c.n >= t.limit {
		c.crowded, crowded = true, true
	}
	if !c.full && c.n >= t.hold {
		c.full = true
		t.full++
	}
	return crowded
}

// pop takes up to most messages of one claim out of a lane that has one.
func (t *lanes) pop(at, most int) row {
	c := &t.table.chains[at]
	r := c.pop(most)
	r.number = t.table.numbers[at] &^ chained
	t.waiting -= len(r.ms)
	t.shrunk(c)
	return r
}

// shrunk looks at a lane that has less than before.
func (t *lanes) shrunk(c *chain) {
	if c.n <= t.limit/2 {
		c.crowded = false
	}
	if c.full && c.n <= t.thaw {
		c.full = false
		t.full--
	}
}

// popRun is pop of what is to follow where so many lanes were settled together: of a crowded lane that is cleared, one. Where
// fewer wait in the lane than there are lanes, one, too: those that follow in all lanes make one work, which then has more
// messages than the run.
func (t *lanes) popRun(at, most, lanes int) row {
	if c := &t.table.chains[at]; c.n < lanes || t.clears && c.crowded {
		most = 1
	}
	return t.pop(at, most)
}

// A followers list is what follows the settled: next may start, the messages of each row one behind the other; back goes back, in
// this order.
type followers struct {
	next, back []row
	kept       []lapse // the first that goes back, and comes again, of each lane that is as it was until that is back
}

// done says that the messages at large of these lanes are settled, and appends to f what follows. again is their claim where
// they come again, before which nothing that waits under it may start, so that goes back. What waits under another claim follows:
// a source hands that out beside them only where they do not come again, since their log was deleted. Were it given back too,
// what has just been received behind it would find the lane free, and start before it. thawed: no lane is full any more.
// Of a lane up to most messages follow.
//
// A lane from which something goes back is kept, until the caller says so to wentBack. The sequence else: 1 has gone back, and 2,
// which waited, is about to; 1 comes again, finds the lane free, and is handled; 3 is received, and runs before 2.
func (t *lanes) done(numbers []uint64, again *claim, most int, f *followers) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.full
	for _, number := range numbers {
		if number != 0 {
			t.free(number, again, most, len(numbers), f)
		}
	}
	return was > 0 && t.full == 0
}

// wentBack is done for lanes that were kept, when what went back is back. What has come into them since follows where that is
// among it, or behind it; else it was handed out before, and goes back, too.
func (t *lanes) wentBack(kept []lapse, most int, f *followers) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.full
	for _, l := range kept {
		again := l.k
		if c := t.table.waiting(t.table.find(l.number)); c == nil || c.hasOrPrecedes(l.offset) {
			again = nil
		}
		t.free(l.number, again, most, len(kept), f)
	}
	return was > 0 && t.full == 0
}

// free lets go of a lane, one of so many. It needs t.mu.
func (t *lanes) free(number uint64, again *claim, most, lanes int, f *followers) {
	at := t.table.find(number)
	c, kept := t.table.waiting(at), false
	for c != nil && c.n > 0 && (c.first.k == again || c.first.k.closed.Load()) {
		r := t.pop(at, c.n)
		if f.back = append(f.back, r); r.k == again && !kept {
			f.kept, kept = append(f.kept, lapse{k: again, number: number, offset: r.ms[0].Offset}), true
		}
	}
	switch {
	case kept:
	case c == nil || c.n == 0:
		t.table.remove(at)
	default:
		f.next = append(f.next, t.popRun(at, most, lanes))
	}
}

// drop takes out what waits under a claim that has ended: it comes again whatever runs before it. thawed: no lane is full any
// more.
func (t *lanes) drop(k *claim, f *followers) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.full
	for at := range t.table.numbers {
		c := t.table.waiting(at)
		if c == nil || c.n == 0 {
			continue
		}
		had := c.n
		for _, r := range c.drop(k) {
			r.number = t.table.numbers[at] &^ chained
			f.back = append(f.back, r)
		}
		t.waiting -= had - c.n
		t.shrunk(c)
	}
	return was > 0 && t.full == 0
}

// pull takes messages out of a lane from its front, as long as take takes them. It is called under the lock. thawed: no lane is
// full any more.
func (t *lanes) pull(number uint64, take func(k *claim, m *Message, alone bool) bool) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, at := t.full, t.table.find(number)
	for c := t.table.waiting(at); c != nil && c.n > 0 && take(c.first.k, &c.first.ms[0], c.first.alone); {
		t.pop(at, 1)
	}
	return was > 0 && t.full == 0
}

// putBack has messages wait at the front of their lane, in their order. Something of the lane is at large. crowded: the lane
// became so by them.
func (t *lanes) putBack(r row) (crowded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.table.find(r.number)
	c := t.table.chain(at)
	c.putBack(r)
	t.waiting += len(r.ms)
	return t.grown(c)
}

// keep says that what is at large of lanes takes long: see chain.keep.
func (t *lanes) keep(numbers []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, number := range numbers {
		if number == 0 || len(t.table.numbers) == 0 {
			continue
		}
		if at := t.table.find(number); t.table.numbers[at] != 0 { // else it is over by now
			t.table.chain(at).keep()
		}
	}
}

// first is a copy of what has waited longest in a lane; nil: nothing waits.
func (t *lanes) first(number uint64) *Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.table.numbers) == 0 {
		return nil
	}
	c := t.table.waiting(t.table.find(number))
	if c == nil || c.n == 0 {
		return nil
	}
	return c.first.ms[0].Clone()
}

// crowded says whether a lane is.
func (t *lanes) crowded(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.table.numbers) == 0 || number == 0 {
		return false
	}
	c := t.table.waiting(t.table.find(number))
	return c != nil && c.crowded
}

// stillFull says whether any lane is full.
func (t *lanes) stillFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full > 0
}

// size is how many lanes there are, how many messages wait in them, and how many lanes are full.
func (t *lanes) size() (n, waiting, full int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table.n, t.waiting, t.full
}

// each calls do with each message that waits, under the lock.
func (t *lanes) each(do func(*Message)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range t.table.numbers {
		if c := t.table.waiting(at); c != nil {
			c.each(do)
		}
	}
}
