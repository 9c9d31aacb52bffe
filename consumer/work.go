package consumer

import (
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A work is a part of a received chunk on its way through queue and worker. Its state alone says who holds which of its messages.
// The worker, the watchdog, the revoker and the drain each take messages by changing it, so each message has one holder at each
// moment, and who holds it settles it, once.
//
//	from ........ next-1 ........ next ........ end
//	 returned nil,  | running      | not         | given to
//	 unsettled      |              | started     | others
//
// from, next and end have 20 bits each. next == 0: nobody has started. next > end: the worker has left. A work is never used
// again, so there is no ABA.
type work struct {
	state atomic.Uint64
	k     *claim
	ms    []broker.Message
	// lanes has each message's lane; nil: there is no order.
	lanes []uint64
	// tokens has each message's token, written by the dispatcher: its processor has the messages at hand, and the worker's would
	// fetch each for its token alone. Nil where they were not cut by the dispatcher, or are one.
	tokens []uint64
	// each: a success is acked before the next message is started, or a crash would repeat several of a worker.
	each bool
	// run: its messages are of one lane, one behind the other, and lanes has that lane once. The lane is of all of them until the
	// first is started, and then the worker's, until it leaves the work or passes the lane on with a message that failed (passed,
	// its own).
	run, passed bool
	// crashed: processes ended with one of its messages. Who makes the work has them at hand; its worker would fetch each for that.
	crashed bool
	// acking is whose turn it is to ack a part of a run; nil: only its worker ever has.
	acking atomic.Pointer[turn]
	// batch: its messages are handled by one call. Then the state counts that one, not them.
	batch bool
	// past is its one message's; zero where its messages are new. A batch has pasts; nil where all are new.
	past
	pasts []past
	// queued is when it was, by the clock, where there are leases; 0: nobody knows, and it may be long ago.
	queued int64

	// emitted is what handlers emitted; nil: nothing.
	emitted atomic.Pointer[emissions]

	// linked, prev and next make the claim's list of live works; under its lock.
	linked     bool
	prev, next *work
	// seen is what the watchdog last saw running; nil where handlers are shorter than its look. Only the watchdog writes it, through
	// its claim (see).
	seen *seen
}

// seen is a message in a handler, as the watchdog found it. So a timeout costs no clock reading per message.
type seen struct {
	i         int
	at        time.Time
	goroutine uint64
	stuck     bool // it was reported as stuck
}

const (
	fieldBits = 20
	fieldMask = 1<<fieldBits - 1
	oneTaken  = 1 << fieldBits

	// expired: the running message's context was ended by the watchdog; the worker must not use it for the next message.
	expired uint64 = 1 << 60
	// disowned: the worker is stuck, and the running message was taken from it too.
	disowned uint64 = 1 << 61
	// replaced: the worker is stuck and was replaced, but keeps the running message, because of its order.
	replaced uint64 = 1 << 62
	// asked: the running message's context has told its deadline; the worker must not use it for the next message.
	asked uint64 = 1 << 63
	// spent: the context is not for the next message.
	spent = expired | asked
)

func packState(from, next, end int) uint64 {
	return uint64(from)<<(2*fieldBits) | uint64(next)<<fieldBits | uint64(end)
}

func unpackState(v uint64) (from, next, end int) {
	return int(v >> (2 * fieldBits) & fieldMask), int(v >> fieldBits & fieldMask), int(v & fieldMask)
}

// withFields replaces the fields of v and keeps its flags.
func withFields(v uint64, from, next, end int) uint64 {
	return v&^(1<<(3*fieldBits)-1) | packState(from, next, end)
}

func (w *work) init(c *claim, ms []broker.Message, lanes []uint64) {
	w.k, w.ms, w.lanes, w.crashed = c, ms, lanes, crashed(ms)
	w.state.Store(packState(0, 0, len(ms)))
}

// initBatch makes one call of what was put into w. tokens are its messages'; nil: its worker fetches them.
func (w *work) initBatch(tokens []uint64) {
	w.batch, w.crashed, w.tokens = true, crashed(w.ms), tokens
	w.state.Store(packState(0, 0, 1))
}

// crashed says whether processes ended with any of ms.
func crashed(ms []broker.Message) bool {
	for i := range ms {
		if ms[i].Crashes > 0 {
			return true
		}
	}
	return false
}

// part is the messages [a, b) as the state counts them; of a batch all or none.
func (w *work) part(a, b int) []broker.Message {
	if w.batch && a < b {
		return w.ms
	}
	return w.ms[a:b]
}

// lanesOf are the lanes of part, as far as they are free with it; that of a run is free when the worker says so.
func (w *work) lanesOf(a, b int) []uint64 {
	switch {
	case w.run:
		return nil
	case w.batch && a < b:
		return w.lanes
	}
	return lanePart(w.lanes, a, b)
}

// lanesUnstarted are the lanes of the unstarted [a, b) that were taken from the work. Those of a run that has begun are its
// worker's: a message of it runs.
func (w *work) lanesUnstarted(a, b int) []uint64 {
	if w.run && a == 0 && b > 0 {
		return w.lanes
	}
	return w.lanesOf(a, b)
}

// runLane is the lane of a run of which the worker has started messages up to end and passed none on; nil: it is not its own.
func (w *work) runLane(end int) []uint64 {
	if !w.run || w.passed || end == 0 {
		return nil
	}
	return w.lanes
}

// lanesAt are the lanes of what runs, message i; of a batch, all.
func (w *work) lanesAt(i int) []uint64 {
	if w.run || w.batch {
		return w.lanes
	}
	return lanePart(w.lanes, i, i+1)
}

// lanePart is lanes[a:b]; nil where there is no order.
func lanePart(lanes []uint64, a, b int) []uint64 {
	if lanes == nil {
		return nil
	}
	return lanes[a:b:b]
}

// tokensOf are the tokens of [a, b), in buf's memory where they do not lie together anyway; buf nil: it has none to lend.
// Not inlined, or what it needs would lie on each worker's stack below the source's Ack, and the stack would be twice as large.
//
//go:noinline
func (w *work) tokensOf(a, b int, buf *[]uint64) []uint64 {
	switch {
	case w.tokens == nil:
	case w.batch && a < b:
		return w.tokens
	default:
		return w.tokens[a:b]
	}
	if buf == nil {
		buf = new([]uint64)
	}
	tokens, ms := (*buf)[:0], w.part(a, b)
	for i := range ms {
		tokens = append(tokens, ms[i].Token)
	}
	*buf = tokens
	return tokens
}

// item is message i, alone.
func (w *work) item(i int) item {
	was := w.past
	if w.batch {
		was = past{}
		if w.pasts != nil {
			was = w.pasts[i]
		}
	}
	lane := w.lanes
	if !w.run {
		lane = lanePart(w.lanes, i, i+1)
	}
	return item{k: w.k, m: &w.ms[i], lane: lane, past: was}
}

// rest makes a work of the unstarted [a, b), with all that w knows of them.
func (w *work) rest(a, b int) *work {
	rest := &work{k: w.k, ms: w.part(a, b), lanes: w.lanesUnstarted(a, b), each: w.each, run: w.run, batch: w.batch, past: w.past,
		pasts: w.pasts, crashed: w.crashed}
	if w.tokens != nil && !w.batch {
		rest.tokens = w.tokens[a:b:b]
	}
	rest.state.Store(packState(0, 0, b-a))
	return rest
}

// take starts the next message: one atomic add. When ok is false the worker has left the work, and [from, end) of v are its
// successes, still to settle (unless v says disowned).
func (w *work) take() (i int, v uint64, ok bool) {
	v = w.state.Add(oneTaken)
	_, next, end := unpackState(v)
	return next - 1, v, next <= end && v&disowned == 0
}

// takeOut takes message i, which the worker was running, out of the work, with the successes [from, i) before it. ok is false
// when message i was disowned meanwhile: then both are settled by others. late: the watchdog had ended message i's context.
func (w *work) takeOut(i int) (from int, late, ok bool) {
	for {
		v := w.state.Load()
		if v&disowned != 0 {
			return 0, false, false
		}
		from, next, end := unpackState(v)
		if from > i {
			return 0, false, false // decided before
		}
		if w.state.CompareAndSwap(v, withFields(v, i+1, next, end)) {
			return from, v&expired != 0, true
		}
	}
}

// steal takes the successes [d0, d1) and the unstarted [u0, u1). From any goroutine, at any time.
func (w *work) steal() (d0, d1, u0, u1 int) {
	for {
		v := w.state.Load()
		from, next, end := unpackState(v)
		if next > end || v&disowned != 0 {
			return 0, 0, 0, 0
		}
		done := from
		if next > 0 {
			done = max(from, next-1)
		}
		if done == from && next == end {
			return 0, 0, 0, 0
		}
		if w.state.CompareAndSwap(v, withFields(v, done, next, next)) {
			return from, done, next, end
		}
	}
}

// share is steal for the sake of what waits behind a slow message. What is unstarted of a run waits for that message wherever it
// is: it stays, unless nothing of the run was started.
func (w *work) share() (d0, d1, u0, u1 int) {
	if !w.run {
		return w.steal()
	}
	for {
		v := w.state.Load()
		from, next, end := unpackState(v)
		switch {
		case next > end || next > 0 && next-1 <= from:
			return 0, 0, 0, 0
		case next == 0 && w.state.CompareAndSwap(v, withFields(v, 0, 0, 0)):
			return 0, 0, 0, end
		case next > 0 && w.state.CompareAndSwap(v, withFields(v, next-1, next, end)):
			return from, next - 1, 0, 0
		}
	}
}

// A turn has room for one: who puts something in acks, and takes it out again. It is no lock, for sources are called meanwhile.
type turn chan struct{}

// takeTurn waits until nobody acks a part of w, and has others wait until it is passed. For those who take successes from a run
// while its worker goes on. Else: the watchdog takes messages 0 to 4 of a run; before it has acked them 5 returns, and the worker
// acks that; the outputs of a key stand in the wrong order. Or the claim ends between the two: 0 to 4 come again behind 5.
func (w *work) takeTurn() (pass func()) {
	if !w.run {
		return func() {}
	}
	if w.acking.Load() == nil {
		t := make(turn, 1)
		w.acking.CompareAndSwap(nil, &t)
	}
	t := *w.acking.Load()
	t <- struct{}{}
	return func() { <-t }
}

// awaitTurn waits until nobody acks what stands before that which the worker has just taken out of w.
func (w *work) awaitTurn() {
	if w.acking.Load() != nil {
		w.takeTurn()()
	}
}

// mark sets a flag if message i is still running.
func (w *work) mark(i int, flag uint64) bool {
	for {
		v := w.state.Load()
		_, next, end := unpackState(v)
		if next-1 != i || next > end || v&(flag|disowned) != 0 {
			return false
		}
		if w.state.CompareAndSwap(v, v|flag) {
			return true
		}
	}
}

// ask marks the running message, i, as asked for its deadline. Not ok: none runs.
func (w *work) ask() (i int, ok bool) {
	if i = w.running(); i < 0 {
		return i, false
	}
	if !w.mark(i, asked) {
		if v := w.state.Load(); v&asked == 0 || v&disowned != 0 || w.running() != i {
			return i, false
		}
	}
	return i, true
}

// disown takes message i from a stuck worker, with the successes [from, i) before it and the unstarted [i+1, end) behind it.
func (w *work) disown(i int) (from, end int, ok bool) {
	for {
		v := w.state.Load()
		from, next, end := unpackState(v)
		if next-1 != i || next > end || from > i || v&disowned != 0 { // from > i: its worker is deciding about it
			return 0, 0, false
		}
		if w.state.CompareAndSwap(v, withFields(v, i+1, next, next)|disowned) {
			return from, end, true
		}
	}
}

// running is the index of the message in a handler; -1: none.
func (w *work) running() int {
	_, next, end := unpackState(w.state.Load())
	if next == 0 || next > end {
		return -1
	}
	return next - 1
}

// alone says that the running message is all that the work has: no other is unsettled or not started.
func (w *work) alone() bool {
	from, next, end := unpackState(w.state.Load())
	return next > 0 && from == next-1 && next == end
}

// given says that the watchdog has given up the worker, whose handler has not returned. The worker ends that with the next take.
func (w *work) given() bool {
	v := w.state.Load()
	_, next, end := unpackState(v)
	return v&(disowned|replaced) != 0 && next <= end
}

// void says that what the running call comes to counts for nothing: its message was taken from a stuck worker.
func (w *work) void() bool { return w.state.Load()&disowned != 0 }

// unstarted is how many messages nobody has started.
func (w *work) unstarted() int {
	_, next, end := unpackState(w.state.Load())
	if w.batch && next < end {
		return len(w.ms)
	}
	return max(0, end-next)
}

// begun is since when the message runs that is now seen to run for the first time. The work was held for so long: of several
// messages nobody knows when this one began.
func (w *work) begun(held time.Duration) time.Time {
	if len(w.ms) == 1 {
		return time.Now().Add(-held)
	}
	return time.Now()
}

// see notes that message i runs, since then.
func (w *work) see(i int, goroutine uint64, since time.Time) {
	w.seen = &seen{i: i, at: since, goroutine: goroutine}
}

// A sighting is a message in a handler.
type sighting struct {
	m         *Message  // the first, of a batch
	n         int       // how many were handed over together
	at        time.Time // since when, late by scanAlone at most
	goroutine uint64    // 0: not known yet
}

// sight is what of w is in a handler, as far as the watchdog saw it.
func (w *work) sight() (s sighting, ok bool) {
	i := w.running()
	if i < 0 {
		return s, false
	}
	s = sighting{m: &w.ms[i], n: 1, at: time.Now()}
	if w.batch {
		s.n = len(w.ms)
	}
	if w.seen != nil && w.seen.i == i {
		s.at, s.goroutine = w.seen.at, w.seen.goroutine
	}
	return s, true
}

// backs gives ms back at once, with the runs they have had.
func backs(ms []broker.Message) []broker.Back {
	back := make([]broker.Back, len(ms))
	for i := range ms {
		back[i] = broker.Back{Token: ms[i].Token, Runs: ms[i].Runs}
	}
	return back
}
