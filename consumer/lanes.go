package consumer

import (
	"maps"
	"slices"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// laneTables has the lanes of each partition that is at large here.
type laneTables struct {
	cfg Lane

	mu sync.Mutex
	by map[laneKey]*lanes
}

// laneKey names what has lanes of its own.
type laneKey struct {
	feed      *feed
	topic     string
	partition int32
}

// use finds or makes the lanes of a claim that begins.
func (ts *laneTables) use(key laneKey) *lanes {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for key, t := range ts.by { // those of partitions that went elsewhere
		if n, _ := t.size(); n == 0 && t.users == 0 {
			delete(ts.by, key)
		}
	}
	t := ts.by[key]
	if t == nil {
		t = newLanes(ts.cfg)
		ts.by[key] = t
	}
	t.users++
	return t
}

// leave says that one claim fewer uses t.
func (ts *laneTables) leave(t *lanes) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.users--
}

// all are the lanes of all partitions; of nil, none.
func (ts *laneTables) all() []*lanes {
	if ts == nil {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Collect(maps.Values(ts.by))
}

// lanes keep the order of the messages of one partition (of one source, where it has none). A lane is there as long as a message
// of its number is at large: queued as one that may start, running, parked, or on its way to the dead letters. Later ones wait in
// it, the oldest first, and the next one follows when that one is settled. They outlive claims: a message that runs under a claim
// that has ended is still running when the next claim brings the next.
//
// A table with open addressing: a lane is found, made and removed some hundred thousand times a second. Its size follows the
// number of lanes, which the budget bounds.
type lanes struct {
	// limit of those that wait in a lane: from there until half of it is left, the lane is crowded. From hold until thaw it is full.
	limit, hold, thaw int
	// clears: a crowded lane is rid of what fails, until half of its limit is left. What is crowded stays in it meanwhile.
	clears bool

	mu      sync.Mutex
	slots   []lane // a power of two, at most half of them in use
	n       int
	waiting int
	full    int // lanes
	users   int // the open claims; under laneTables.mu
}

// A lane; number 0: a free slot.
type lane struct {
	number        uint64
	first, last   *waiting
	n             int
	crowded, full bool
}

// newLanes are those of a partition. Where what fails makes room, it does so while more come in: one key that fails would else
// stop all others, again and again. The lane is full only if more come than it can be rid of.
func newLanes(l Lane) *lanes {
	if l.Full == LaneDeadLetter {
		return &lanes{limit: l.Limit, hold: l.Limit + max(1, l.Limit/4), thaw: l.Limit, clears: true}
	}
	return &lanes{limit: l.Limit, hold: l.Limit, thaw: l.Limit / 2}
}

// waiting is a message in a lane. Memory for it is taken many at a time, and no slot is used again: a handler may keep its
// message.
type waiting struct {
	m      [1]broker.Message
	number [1]uint64
	k      *claim
	alone  bool // it was in a batch that failed before it, and is handled in a batch of its own
	next   *waiting
}

const waitingAtOnce = 32

// waitingOf are messages that come back to their lane.
func waitingOf(k *claim, number uint64, ms []broker.Message) []*waiting {
	ws := make([]*waiting, len(ms))
	for i := range ms {
		ws[i] = &waiting{m: [1]broker.Message{ms[i]}, number: [1]uint64{number}, k: k}
	}
	return ws
}

// A stash makes waiting ones.
type stash []waiting

func (s *stash) take() *waiting {
	if len(*s) == 0 {
		*s = make(stash, waitingAtOnce)
	}
	w := &(*s)[0]
	*s = (*s)[1:]
	return w
}

const (
	fewSlots = 16
	// keptSlots are kept by an empty table; more were a burst.
	keptSlots = 1 << 10
)

// find returns the slot of a lane, or the free one where it belongs.
func (t *lanes) find(number uint64) *lane {
	mask := uint64(len(t.slots) - 1)
	for i := number & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.number == number || s.number == 0 {
			return s
		}
	}
}

func (t *lanes) grow() {
	if 2*(t.n+1) <= len(t.slots) {
		return
	}
	old := t.slots
	t.slots = make([]lane, max(fewSlots, 2*len(old)))
	for _, s := range old {
		if s.number != 0 {
			*t.find(s.number) = s
		}
	}
}

// remove frees a slot, and moves what stands behind it because of it.
func (t *lanes) remove(s *lane) {
	if s.full {
		t.full--
	}
	t.n--
	if t.n == 0 && len(t.slots) > keptSlots {
		t.slots = nil
		return
	}
	mask := uint64(len(t.slots) - 1)
	hole := s.number & mask
	for &t.slots[hole] != s {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.slots[i].number != 0; i = (i + 1) & mask {
		if home := t.slots[i].number & mask; (i-home)&mask >= (i-hole)&mask {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = lane{}
}

// add takes messages in, in their order. Those that may start come to the front of ms, in their order, and their numbers to the
// front of numbers; n is how many. The others are copied into their lanes; crowded says whether one of these lanes became so,
// full whether one is.
func (t *lanes) add(k *claim, ms []broker.Message, numbers []uint64, st *stash) (n int, crowded, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ms {
		if number := numbers[i]; number != 0 {
			t.grow()
			if s := t.find(number); s.number == 0 {
				s.number = number
				t.n++
			} else {
				w := st.take()
				w.m[0], w.number[0], w.k = ms[i], number, k
				became, is := t.push(s, w)
				crowded, full = crowded || became, full || is
				continue
			}
		}
		if n != i {
			ms[n], numbers[n] = ms[i], numbers[i]
		}
		n++
	}
	return n, crowded, full
}

// push says whether the lane became crowded by it, and whether it is full.
func (t *lanes) push(s *lane, w *waiting) (crowded, full bool) {
	if s.last != nil {
		s.last.next = w
	} else {
		s.first = w
	}
	s.last = w
	s.n++
	t.waiting++
	return t.grown(s), s.full
}

// grown looks at a lane that has more than before, and says whether it became crowded.
func (t *lanes) grown(s *lane) (crowded bool) {
	if !s.crowded && s.n >= t.limit {
		s.crowded, crowded = true, true
	}
	if !s.full && s.n >= t.hold {
		s.full = true
		t.full++
	}
	return crowded
}

// pop takes the first out of a lane that has one.
func (t *lanes) pop(s *lane) *waiting {
	w := s.first
	s.first, w.next = w.next, nil
	if s.first == nil {
		s.last = nil
	}
	s.n--
	t.waiting--
	if s.n <= t.limit/2 {
		s.crowded = false
	}
	if s.full && s.n <= t.thaw {
		s.full = false
		t.full--
	}
	return w
}

// popRun takes up to most messages of one claim out of a lane that has one; each links to the next.
func (t *lanes) popRun(s *lane, most int) (first *waiting) {
	if t.clears && s.crowded {
		most = 1
	}
	first = t.pop(s)
	last := first
	for n := 1; n < most && s.first != nil && s.first.k == first.k; n++ {
		last.next = t.pop(s)
		last = last.next
	}
	return first
}

// A followers list is what follows the settled: next may start, each with those of its lane that it links to behind it; back goes
// back, in this order, for its claim is over.
type followers struct{ next, back []*waiting }

// done says that the messages at large of these lanes are settled, and appends to f what follows. again is their claim where
// they come again, before which nothing that waits under it may start, so that goes back. What waits under another claim follows:
// a source hands that out beside them only where they do not come again, since their log was deleted. Were it given back too,
// what has just been received behind it would find the lane free, and start before it. thawed: no lane is full any more.
// Of a lane up to most messages follow.
func (t *lanes) done(numbers []uint64, again *claim, most int, f *followers) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.full
	for _, number := range numbers {
		if number == 0 {
			continue
		}
		s := t.find(number)
		for s.first != nil && (s.first.k == again || s.first.k.closed.Load()) {
			f.back = append(f.back, t.pop(s))
		}
		if s.first == nil {
			t.remove(s)
			continue
		}
		f.next = append(f.next, t.popRun(s, most))
	}
	return was > 0 && t.full == 0
}

// drop takes out what waits under a claim that has ended: it comes again whatever runs before it.
func (t *lanes) drop(k *claim, f *followers) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		s := &t.slots[i]
		all := s.first
		s.first, s.last, t.waiting, s.n = nil, nil, t.waiting-s.n, 0
		s.crowded = false
		if s.full {
			s.full = false
			t.full--
		}
		for w := all; w != nil; {
			next := w.next
			w.next = nil
			if w.k == k {
				f.back = append(f.back, w)
			} else {
				t.push(s, w)
			}
			w = next
		}
	}
}

// pull takes messages out of a lane from its front, as long as take takes them. It is called under the lock. thawed: no lane is
// full any more.
func (t *lanes) pull(number uint64, take func(*waiting) bool) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, s := t.full, t.find(number)
	for s.first != nil && take(s.first) {
		t.pop(s)
	}
	return was > 0 && t.full == 0
}

// putBack has messages wait at the front of their lane, in their order. Something of the lane is at large.
func (t *lanes) putBack(number uint64, ws []*waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.find(number)
	for i := len(ws) - 1; i >= 0; i-- {
		ws[i].next, s.first = s.first, ws[i]
		if s.last == nil {
			s.last = ws[i]
		}
		s.n++
		t.waiting++
	}
	t.grown(s)
}

// crowded says whether a lane is.
func (t *lanes) crowded(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots) > 0 && number != 0 && t.find(number).crowded
}

// stillFull says whether any lane is full.
func (t *lanes) stillFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full > 0
}

// size is how many lanes there are, and how many messages wait in them.
func (t *lanes) size() (n, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n, t.waiting
}

// each calls do with each message that waits, under the lock.
func (t *lanes) each(do func(*Message)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		for w := t.slots[i].first; w != nil; w = w.next {
			do(&w.m[0])
		}
	}
}
