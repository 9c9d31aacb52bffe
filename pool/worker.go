package pool

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// state is where a worker is in its life: see the package's drawing.
type state uint8

const (
	fresh     state = iota // started, has not asked for work yet
	idle                   // on the stack, waiting to be woken
	busy                   // has a T in hand
	leaving                // woken to go
	abandoned              // has a T in hand and no slot any more
)

// Worker is one slot of the pool, as Do sees it.
type Worker[T any] struct {
	// Local is the caller's own. It is touched only inside Do and Exit, so it needs no lock, and it stays over a panic.
	Local any
	// Shown is what Do lets Held see.
	Shown atomic.Value

	p    *Pool[T]
	wake chan struct{} // room for one: who takes the worker off the stack sends

	// The worker's own.
	began    time.Duration // when the T in hand was begun
	reported bool          // Do called Report for it
	refused  int64         // what Do called Refused for

	// Messages and handler time reported and not yet folded. Written by the worker, read by the manager.
	n, d atomic.Int64

	// Under the pool's lock.
	state        state
	told         state // what it was woken for; written before the wake, by who took it off the stack
	cur          T
	class        int
	size         int           // messages in cur
	since        time.Duration // when cur was taken, or when the worker became idle
	seq          uint64        // counts T's
	older, newer *Worker[T]    // the busy ones by since
	woken        *Worker[T]    // a list of workers to wake
	timer        *time.Timer   // reports the idle timeout
	armed        bool          // timer runs
	lost         bool          // abandoned at some time: has no slot
	idleLong     bool          // has reported since it became idle
	called       bool          // woken to look for work, and on its way
}

// Began is when the T in hand was begun. Only inside Do.
func (w *Worker[T]) Began() time.Time { return w.p.epoch.Add(w.began) }

// Report adds n messages that were finished and took d of handler time together. Called inside Do, at best once per T or per few
// messages. A Do that never calls it has the whole T counted when it returns, with all its time.
func (w *Worker[T]) Report(n int, d time.Duration) {
	w.reported = true
	w.n.Store(w.n.Load() + int64(n)) // the only writer but for fold, which runs on the same goroutine
	w.d.Store(w.d.Load() + int64(d))
}

// Refused says that n messages of the T in hand were refused by a downstream that has enough to do: they count as no throughput,
// and the pool makes do with fewer workers for a while. Called inside Do.
func (w *Worker[T]) Refused(n int) { w.refused += int64(n) }

// spawn starts a worker. Called with the lock.
func (p *Pool[T]) spawn() {
	p.live++
	p.running++
	w := &Worker[T]{p: p, wake: make(chan struct{}, 1)}
	go w.run()
}

// run is the worker's goroutine: T's until it is told to go.
func (w *Worker[T]) run() {
	for w.serve() {
	}
}

// serve handles T's and returns true after a panic. The deferred function is set up once for many T's, not for each.
func (w *Worker[T]) serve() (again bool) {
	normal := false
	defer func() {
		if normal {
			w.end(false)
			return
		}
		v := recover()
		if v == nil { // Goexit: this goroutine is lost, its slot is not
			w.end(true)
			return
		}
		stack := debug.Stack()
		w.p.mu.Lock()
		w.p.panics++
		w.p.mu.Unlock()
		w.p.cfg.Panic(v, stack)
		again = true
	}()
	for w.next() {
		w.p.cfg.Do(w, w.cur)
	}
	normal = true
	return false
}

// next gives up the T in hand and waits for another. False: the worker is to go.
func (w *Worker[T]) next() bool {
	for {
		p := w.p
		now := p.now()
		p.mu.Lock()
		if !w.finish(now) {
			p.mu.Unlock()
			return false
		}
		if p.queue.items > 0 {
			x, class, admitted := p.queue.pop()
			w.begin(class, x.t, x.n, now)
			var another *Worker[T]
			if p.queue.items > 0 && len(p.idle) > 0 {
				another = p.call()
			}
			p.mu.Unlock()
			w.began = now
			another.wakeAll()
			admitted.wake()
			return true
		}
		w.park(now)
		woken := p.endIfDrained()
		p.mu.Unlock()
		woken.wakeAll()
		<-w.wake
		switch w.told {
		case leaving:
			return false
		case busy:
			w.began = p.now()
			return true
		}
	}
}

// finish folds what the T in hand brought, and says whether the worker stays. Called with the lock.
func (w *Worker[T]) finish(now time.Duration) (stays bool) {
	p := w.p
	switch w.state {
	case busy:
		w.fold(now)
		p.removeBusy(w)
	case abandoned: // its slot has another worker
		w.fold(now)
		p.stuck--
		w.state = leaving
		return false
	}
	if w.called {
		w.called = false
		p.calling = false
	}
	if p.excess > 0 {
		p.excess--
		p.live--
		w.state = leaving
		return false
	}
	return true
}

// fold moves what the worker did into the pool's totals. Called with the lock.
func (w *Worker[T]) fold(now time.Duration) {
	p := w.p
	n, d := w.n.Load(), time.Duration(w.d.Load())
	if w.reported {
		w.n.Store(0)
		w.d.Store(0)
		w.reported = false
	} else {
		n, d = int64(w.size), now-w.began
	}
	p.handled++
	p.done += n
	p.refused += w.refused
	w.refused = 0
	p.work += d
	if n > 0 {
		s := d.Seconds()
		p.squares += s * s / float64(n)
	}
	var zero T
	w.cur = zero
}

// begin puts t into the worker's hand. Called with the lock.
func (w *Worker[T]) begin(class int, t T, n int, now time.Duration) {
	p := w.p
	w.cur, w.class, w.size, w.since, w.state = t, class, n, now, busy
	w.seq++
	p.busy++
	p.inHand += n
	p.started += now
	if w.older = p.newest; w.older == nil {
		p.oldest = w
	} else {
		w.older.newer = w
	}
	p.newest = w
	if p.blind {
		p.blind = false
		nudge(p.look)
	}
}

// removeBusy takes w out of the busy ones. Called with the lock.
func (p *Pool[T]) removeBusy(w *Worker[T]) {
	p.busy--
	p.inHand -= w.size
	p.started -= w.since
	if w.older == nil {
		p.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		p.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer = nil, nil
}

// park puts w onto the stack. Its timer is set only if it does not run anyway: a worker that is woken and parks again a thousand
// times a second touches it once per IdleTimeout. Called with the lock.
func (w *Worker[T]) park(now time.Duration) {
	p := w.p
	w.state, w.since, w.idleLong = idle, now, false
	p.idle = append(p.idle, w)
	if w.armed {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(p.cfg.IdleTimeout, w.timeout)
	} else {
		w.timer.Reset(p.cfg.IdleTimeout)
	}
}

// timeout is the worker's report: idle for its whole IdleTimeout, it asks to retire. It waits for no answer; the manager's may
// come at any time, or work before it.
func (w *Worker[T]) timeout() {
	p := w.p
	p.mu.Lock()
	w.armed = false
	report := false
	if w.state == idle && !w.idleLong {
		if rest := p.cfg.IdleTimeout - (p.now() - w.since); rest > 0 { // was busy in between
			w.armed = true
			w.timer.Reset(rest)
		} else {
			w.idleLong, report = true, true
			p.reports++
		}
	}
	p.mu.Unlock()
	if report {
		nudge(p.kick)
	}
}

// give takes the worker that became idle last off the stack and puts t into its hand: the caller wakes it, without the lock.
func (p *Pool[T]) give(class int, t T, n int) *Worker[T] {
	w := p.popIdle()
	w.told = busy
	w.begin(class, t, n, p.now())
	return w
}

// call takes the worker that became idle last off the stack, to come and look for work: the caller wakes it, without the lock.
// One is on its way at a time; when it takes something and more is there, it calls the next. So short work is not spread over
// more workers than it needs, and the rest stay idle. Nil: one is on its way already. Called with the lock, and with an idle
// worker.
func (p *Pool[T]) call() *Worker[T] {
	if p.calling {
		return nil
	}
	w := p.popIdle()
	w.state, w.told, w.called, p.calling = fresh, fresh, true, true
	return w
}

func (p *Pool[T]) popIdle() *Worker[T] {
	last := len(p.idle) - 1
	w := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return w
}

// wakeAll wakes a list of workers. Called without the lock.
func (w *Worker[T]) wakeAll() {
	for w != nil {
		next := w.woken
		w.woken = nil
		w.wake <- struct{}{}
		w = next
	}
}

// retire takes the n longest idle workers off the stack and returns them, to be woken without the lock. Called with the lock.
func (p *Pool[T]) retire(n int) (woken *Worker[T]) {
	for _, w := range p.idle[:n] {
		w.state, w.told = leaving, leaving
		w.woken, woken = woken, w
	}
	p.live -= n
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	return woken
}

// abandon gives the slot of a worker that still has its T number seq in hand to another. Called with the lock.
func (p *Pool[T]) abandon(w *Worker[T], seq uint64) {
	if w.state != busy || w.seq != seq || p.stuck >= p.cfg.MaxStuck {
		return
	}
	p.removeBusy(w)
	w.state, w.lost = abandoned, true
	p.stuck++
	p.running--
	p.replace()
}

// replace ends a slot's use by one worker, and starts another if there is anything to do for it. Called with the lock.
func (p *Pool[T]) replace() {
	p.live--
	if p.excess > 0 {
		p.excess--
		return
	}
	if !p.closed || p.queue.items > 0 {
		p.spawn()
	}
}

// end is the last that a worker's goroutine does. After a Goexit in Do another takes the slot.
func (w *Worker[T]) end(goexit bool) {
	p := w.p
	p.mu.Lock()
	if goexit {
		p.goexits++
		w.finishLast(p.now())
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	woken := p.endIfDrained()
	p.mu.Unlock()
	woken.wakeAll()
	if p.cfg.Exit != nil {
		p.cfg.Exit(w)
	}
	p.mu.Lock()
	if !w.lost {
		p.running--
		p.endIfOver()
	}
	p.mu.Unlock()
}

// finishLast is finish for a worker whose goroutine is lost. Called with the lock.
func (w *Worker[T]) finishLast(now time.Duration) {
	p := w.p
	lost := w.state == abandoned
	w.fold(now)
	if lost {
		p.stuck--
	} else {
		p.removeBusy(w)
		p.replace()
	}
	w.state = leaving
}
