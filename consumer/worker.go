package consumer

import (
	"context"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// workers is what the pool's workers do: they call handlers, ack what these finished, and pass on what failed.
type workers struct {
	handler Handler
	batch   BatchHandler // instead, where there are batches
	around  Around       // nil: none
	who     string       // names the consumer in what it publishes
	guard   guard
	limited bool // the guard looks at each message
	timeout time.Duration
	tell    *teller
	till    *till
	judge   *judge
	pace    *pace
	do      func(*pool.Worker[*work], *work) // handle

	stuck  atomic.Int64 // handlers that the watchdog gave up and that have not returned
	strays strays       // those of them whose messages were taken over
}

func newWorkers(cfg *Config, tell *teller, t *till, j *judge, p *pace) *workers {
	ws := &workers{handler: cfg.Handler, around: cfg.Around, who: cfg.who(), guard: newGuard(cfg), timeout: cfg.Timeout, tell: tell,
		till: t, judge: j, pace: p}
	ws.limited = ws.guard.limited()
	if cfg.Batch != nil {
		ws.batch = cfg.Batch.Handler
	}
	ws.do = ws.handle
	return ws
}

// local is a worker's own: its contexts and its buffers.
type local struct {
	contexts
	tokens []uint64
	// calls, good, skipped and refused count the handler calls in the work at hand, those that returned nil, those that returned
	// Skip, and those that returned Overloaded; failed those of the others that are to be tried again.
	calls, good, skipped, refused, failed int
	goroutine                             uint64

	// begun is the call at hand as Around began it, and told the same for the watchdog, where somebody is told of its end.
	begun begun
	told  atomic.Pointer[told]
	one   [1]*Message // lends Around its list
}

// handle does a work: the pool's Do.
func (ws *workers) handle(p *pool.Worker[*work], w *work) {
	l, _ := p.Local.(*local)
	if l == nil {
		l = &local{contexts: contexts{timeout: ws.timeout, clock: ws.tell.clock}, goroutine: goroutineID()}
		p.Local = l
		p.Shown.Store(l)
	}
	if ws.timeout > 0 {
		l.began = l.clock.at(p.Began())
	}
	l.calls, l.good, l.skipped, l.refused, l.failed = 0, 0, 0, 0, 0
	if v, ok := ws.handleAll(p, l, w); ok {
		ws.finish(l, w, v)
		ws.account(p, l)
	}
	l.forget(w)
}

// forget lets go of a work: a worker may be idle for long, and would keep it, with its messages and all that lies beside them.
func (l *local) forget(w *work) {
	if w.k.feed.emitting || l.timeout > 0 {
		l.shown.Load().at.Store(nil)
	}
	if l.begun.ctx == nil {
		return
	}
	l.begun, l.one[0] = begun{}, nil
	l.told.Store(nil)
}

// account tells pool, pace and observers of the calls in the work at hand.
func (ws *workers) account(p *pool.Worker[*work], l *local) {
	took := time.Since(p.Began())
	if l.waited.Load() > 0 {
		took = max(0, took-time.Duration(l.waited.Swap(0)))
	}
	if l.failed > 0 && l.failed == l.calls && ws.pace.quick(l.calls, took) {
		l.calls = 0
	}
	if l.calls == 0 { // all was put off, taken away or turned down: told nothing, the pool would count it as done
		p.Report(0, 0)
		return
	}
	p.Report(l.calls, took)
	if l.refused > 0 {
		p.Refused(l.refused)
	}
	ws.pace.observe(l.calls, took, l.good > 0)
	if l.good+l.skipped > 0 {
		ws.tell.progress.Store(ws.tell.clock.at(p.Began().Add(took)))
	}
	if l.good > 0 {
		ws.tell.tellHandled(l.good, share(took, l.good, l.calls))
	}
}

// share is the part of what calls took together that n of them have: how long each took nobody knows.
func share(took time.Duration, n, calls int) time.Duration {
	if n == calls {
		return took
	}
	return time.Duration(float64(took) * float64(n) / float64(calls))
}

// handleAll handles messages of w until its end, where its state is v. Not ok: a handler did not return, and w is out of the
// worker's hands.
func (ws *workers) handleAll(p *pool.Worker[*work], l *local, w *work) (v uint64, ok bool) {
	i, clean := -1, false
	defer func() {
		if !clean {
			ws.unwound(p, l, w, i, recover())
		}
	}()
	ctx, handler, guarded, around := l.use(w), ws.handler, ws.limited || w.crashed, ws.around != nil
	for {
		var more bool
		i, v, more = w.take()
		if v&spent != 0 {
			w.state.And(^spent)
			ctx = l.renew(w)
		}
		switch {
		case !more:
			clean = true
			return v, true
		case !w.k.Startable():
			ws.refuse(l, w, i, w.k.whyNothingStarts())
			continue
		case w.k.feed.leases != nil && ws.waitedLong(p, w, i) && w.k.feed.lapsed(w.k.Claim, w.ms[i].Token):
			ws.refuse(l, w, i, "")
			continue
		case w.run && v&replaced != 0:
			ws.handOver(l, w, i)
			continue
		case w.batch:
			ws.callBatch(ctx, l, w, i)
			continue
		case around:
			ws.callAround(ctx, l, w, i)
			continue
		}
		// One message, here and not in a function of its own: that call would cost a tenth of all that the engine does for it.
		l.calls++
		m := &w.ms[i]
		var err error
		if guarded {
			err = ws.guard.check(m)
		}
		if err == nil {
			err = handler(ctx, m)
		}
		if err == nil && w.emitted.Load() != nil {
			err = ws.publishEmitted(ctx, w, i)
		}
		if err != nil {
			l.count(err)
			ws.failed(l, w, i, err)
			continue
		}
		l.good++
		if w.each {
			ws.ackEach(l, w, i)
		}
	}
}

// ackEach acks a message that its handler finished before the next one of its work is started.
func (ws *workers) ackEach(l *local, w *work, i int) {
	if from, _, ok := w.takeOut(i); ok { // else disowned: the watchdog has decided
		ws.ackPart(l, w, from, i+1)
	}
}

// ackPart acks messages [a, b) of w, which the worker has taken out of it.
func (ws *workers) ackPart(l *local, w *work, a, b int) {
	w.awaitTurn()
	ws.till.ackPart(w, a, b, &l.tokens)
}

// callBatch calls the batch handler with all messages of w.
func (ws *workers) callBatch(ctx context.Context, l *local, w *work, i int) {
	l.calls += len(w.ms)
	if ws.around != nil {
		ctx = ws.begin(ctx, l, w, i, pointers(w.ms))
	}
	if err := ws.publishBatch(ctx, w, ws.handleBatch(ctx, w)); err != nil {
		for _, err := range BatchErrors(err, len(w.ms)) {
			l.count(err)
		}
		ws.failed(l, w, i, err)
		return
	}
	l.good += len(w.ms)
	if l.begun.end != nil {
		ws.ackTold(l, w, i)
	}
}

// pointers are to each of ms.
func pointers(ms []broker.Message) []*Message {
	all := make([]*Message, len(ms))
	for i := range ms {
		all[i] = &ms[i]
	}
	return all
}

// handleBatch calls the batch handler with those that the guard lets pass.
func (ws *workers) handleBatch(ctx context.Context, w *work) error {
	if !ws.limited && !w.crashed {
		return ws.batch(ctx, pointers(w.ms))
	}
	ms := make([]*Message, 0, len(w.ms))
	errs := make([]error, len(w.ms))
	for i := range w.ms {
		if errs[i] = ws.guard.check(&w.ms[i]); errs[i] == nil {
			ms = append(ms, &w.ms[i])
		}
	}
	if len(ms) == 0 {
		return &BatchError{errs}
	}
	err := ws.batch(ctx, ms)
	if len(ms) == len(w.ms) {
		return err
	}
	of := BatchErrors(err, len(ms))
	for i := range errs {
		if errs[i] == nil {
			errs[i], of = of[0], of[1:]
		}
	}
	return &BatchError{errs}
}

// count takes note of what became of a message; nil: of a batch, in which others failed.
func (l *local) count(err error) {
	switch {
	case err == nil:
	case IsDeferred(err):
		l.calls-- // it handled nothing, and tells nothing of how long that takes
	case IsOverloaded(err):
		l.refused++
	case IsSkip(err):
		l.skipped++
	case !IsPermanent(err): // else it is through, as one that was handled
		l.failed++
	}
}

// failed takes message i out of the work, with the successes before it, and has it decided about.
func (ws *workers) failed(l *local, w *work, i int, err error) {
	from, late, ok := w.takeOut(i)
	if !ok {
		return // disowned: the watchdog has decided
	}
	late = late || l.shown.Load().overdue() // whoever minds the deadline is back a moment before the watchdog looks
	ws.ackPart(l, w, from, i)
	if w.batch {
		l.good += ws.judge.failedBatch(w, err, late, l.begun)
		return
	}
	if w.run {
		ws.till.recall(w, i+1)
		w.passed = true
	}
	if late {
		err = &lateError{err}
	}
	ws.judge.failed(w.item(i), err, l.begun)
}

// finish settles the successes at the end of a work.
func (ws *workers) finish(l *local, w *work, v uint64) {
	if !ws.left(w, v) {
		return
	}
	from, _, end := unpackState(v)
	w.awaitTurn()
	ws.till.ackEnd(w, from, end, &l.tokens, true)
}

// left takes note that the worker has left a work, and says whether what it finished there is its own to settle.
func (ws *workers) left(w *work, v uint64) bool {
	if v&(disowned|replaced) != 0 {
		ws.stuck.Add(-1)
	}
	if v&disowned != 0 {
		ws.strays.remove(w)
		return false
	}
	w.k.leave(w)
	return true
}

// shortWait is shorter than any lease that makes sense. What waited here no longer is begun without asking for its lease, which
// takes the adapter's lock, and with quick handlers a tenth of all that a message costs.
const shortWait = time.Second

// askEvery: of quick calls, many of which are a work, one in so many is asked for: to look at the time costs as much as they do.
const askEvery = 16

// waitedLong says whether message i of a work waited for so long that its lease may have run out: before the work was begun, or
// behind others of it, in one of whose calls the process may have stood still.
func (ws *workers) waitedLong(p *pool.Worker[*work], w *work, i int) bool {
	switch {
	case i == 0:
		return ws.tell.clock.at(p.Began())-w.queued > int64(shortWait)
	case w.each || i%askEvery == 0:
		return time.Since(p.Began()) > shortWait
	}
	return false
}

// refuse gives back message i, which was taken and not started, and all behind it: its claim is no longer open; or, without a
// reason, its lease has lapsed, for the process stood still, or was cut off, for so long that others may have what waited here.
func (ws *workers) refuse(l *local, w *work, i int, reason string) {
	from, _, ok := w.takeOut(i)
	if !ok {
		return
	}
	ws.ackPart(l, w, from, i)
	_, _, u0, u1 := w.steal()
	ms, lanes := slices.Concat(w.part(i, i+1), w.part(u0, u1)), append(w.lanesOf(i, i+1), w.lanesOf(u0, u1)...)
	if w.run {
		lanes, w.passed = w.lanes, true
	}
	if reason == "" {
		ws.till.giveBackLapsed(w.k, ms, lanes)
		return
	}
	ws.till.giveBack(w.k, backs(ms), lanes, reason)
}

// handOver leaves the rest of a run, message i first, which was taken and not started, to others: this worker was replaced, and
// nobody looks at it any more, so that a timeout would not end what it started.
func (ws *workers) handOver(l *local, w *work, i int) {
	from, _, ok := w.takeOut(i)
	if !ok {
		return
	}
	ws.ackPart(l, w, from, i)
	ws.till.recall(w, i)
	w.passed = true
	ws.till.release(w.k, w.lanes, false)
}

// unwound is called when a handler did not return: it panicked, or, where there is no panic, ends its goroutine. That one may be
// ending, too, where there is a panic: of a deferred function, after runtime.Goexit. So either way all that is left of the work
// leaves its hands here.
func (ws *workers) unwound(p *pool.Worker[*work], l *local, w *work, i int, panicked any) {
	err := ErrGoexit
	if panicked != nil {
		err = &PanicError{Value: panicked, Stack: debug.Stack()}
	}
	for range w.part(i, i+1) { // a batch fails as a whole
		l.count(err)
	}
	ws.failed(l, w, i, err)
	if v := ws.quit(w, i); v&spent != 0 {
		l.renew(w)
	}
	ws.account(p, l)
}

// quit takes the worker out of a work, message i of which was decided about, and leaves what is unstarted to others. v is the
// work's state.
func (ws *workers) quit(w *work, i int) (v uint64) {
	if w.run {
		ws.till.recall(w, i+1) // else there was nothing to decide, and the lane is its own still
		w.awaitTurn()
		v = w.state.Add(oneTaken)
		_, _, end := unpackState(v)
		if lanes := w.runLane(end); ws.left(w, v) && lanes != nil {
			ws.till.release(w.k, lanes, false)
		}
		return v
	}
	_, _, u0, u1 := w.steal()
	if v = w.state.Add(oneTaken); ws.left(w, v) && u0 < u1 {
		ws.till.again(w.k, w.ms[u0:u1], w.lanesOf(u0, u1), w.past)
	}
	return v
}

// exit ends a leaving worker's contexts; their claims would keep them otherwise. The pool's Exit.
func (ws *workers) exit(p *pool.Worker[*work]) {
	if l, _ := p.Local.(*local); l != nil {
		l.end()
	}
}

// lookStray is how often it is looked whether handlers that were given up have returned.
const lookStray = 10 * time.Millisecond

// awaitStrays waits until those have returned, or ctx ends.
func (ws *workers) awaitStrays(ctx context.Context) {
	tick := time.NewTicker(lookStray)
	defer tick.Stop()
	for ws.stuck.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stuckIn counts the handlers that were called and have not returned, in what the workers have in hand: those that the watchdog
// gave up, and those that run. A worker may have a work in hand without one: it got no processor since, and what it was handed
// was taken from it.
func (ws *workers) stuckIn(hand []*work) int {
	running, given := 0, 0
	for _, w := range hand {
		switch {
		case w.given():
			given++
		case w.running() >= 0:
			running++
		}
	}
	return running + max(given, int(ws.stuck.Load())) // which the watchdog counts a moment after it has given one up
}
