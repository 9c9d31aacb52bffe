package pool

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Worker is one slot of the pool, as Do sees it.
type Worker[T any] struct {
	// Local is the caller's own. It is touched only inside Do and Exit, so it needs no lock, and it stays over a panic.
	Local any
	// Shown is what Do lets Held see.
	Shown atomic.Value

	cfg   *Config[T]
	floor *floor[T]
	wake  chan struct{} // room for one: who takes the worker off the stack sends

	// The worker's own.
	began    time.Duration // when the T in hand was begun
	reported bool          // Do called Report for it
	crashing bool          // Config.Panic was called and has not returned

	rest time.Duration // the scanner's: what Held called Rest for

	// Messages and handler time reported, and what Do called Refused for, not yet in the totals. Written by the worker, read by the
	// manager.
	n, d, refused atomic.Int64

	place[T] // the floor's
}

// Began is when the T in hand was begun. Only inside Do.
func (w *Worker[T]) Began() time.Time { return w.floor.epoch.Add(w.began) }

// Report adds n messages that were finished and took d of handler time together. Called inside Do, at best once per T or per few
// messages. A Do that never calls it has the whole T counted when it returns, with all its time.
func (w *Worker[T]) Report(n int, d time.Duration) {
	w.reported = true
	w.n.Store(w.n.Load() + int64(n)) // the only writer but for outcome, which runs on the same goroutine
	w.d.Store(w.d.Load() + int64(d))
}

// Refused says that n messages of the T in hand were refused by a downstream that has enough to do: they count as no throughput,
// and where clearly more than one in sixteen are refused the pool makes do with fewer workers for a while. Called inside Do.
func (w *Worker[T]) Refused(n int) { w.refused.Store(w.refused.Load() + int64(n)) }

// Rest says that Held need not be told of the T in hand again before d has passed, nor Split: nothing is to be done about it
// until then. Called inside Held.
func (w *Worker[T]) Rest(d time.Duration) { w.rest = d }

// run is the worker's goroutine: T's until it is told to go. That the goroutine is lost shows here, and not to who recovers: it
// ends, too, where a deferred function panics after runtime.Goexit.
func (w *Worker[T]) run() {
	told := false
	defer func() {
		if w.crashing { // Panic has not returned
			if v := recover(); v != nil { // it panics: nothing is to hold up the end of the process
				panic(v)
			}
		}
		w.end(!told)
	}()
	for w.serve() {
	}
	told = true
}

// serve handles T's and returns true after a panic. The deferred function is set up once for many T's, not for each.
func (w *Worker[T]) serve() (again bool) {
	normal := false
	defer func() {
		if normal {
			return
		}
		v := recover()
		if v == nil { // Goexit: this goroutine is lost, its slot is not
			return
		}
		stack := debug.Stack()
		w.floor.panicked()
		w.crashing = true
		w.cfg.Panic(v, stack)
		w.crashing = false
		again = true
	}()
	for w.next() {
		w.cfg.Do(w, w.cur)
	}
	normal = true
	return false
}

// next gives up the T in hand and waits for another. False: the worker is to go.
func (w *Worker[T]) next() bool {
	for {
		now := w.floor.now()
		switch w.floor.next(w, now) {
		case busy:
			w.began = now
			return true
		case leaving:
			return false
		}
		<-w.wake
		switch w.told {
		case leaving:
			return false
		case busy:
			w.began = w.floor.now()
			return true
		}
	}
}

// soFar is what Do told of the T in hand until now.
func (w *Worker[T]) soFar() outcome {
	n := w.n.Load()
	return outcome{n: n, d: time.Duration(w.d.Load()), refused: min(n, w.refused.Load())}
}

// outcome is what became of the T in hand, for the totals: what was reported of it is reported no more. Called by the floor, so
// that who reads both counts nothing twice, on the worker's goroutine.
func (w *Worker[T]) outcome(now time.Duration) outcome {
	o := outcome{n: int64(w.size), d: now - w.began, refused: w.refused.Load()}
	if w.reports = w.reported; w.reported {
		o.n, o.d = w.n.Load(), time.Duration(w.d.Load())
		w.n.Store(0)
		w.d.Store(0)
		w.reported = false
	}
	if o.refused != 0 { // an atomic store for each T would be felt
		w.refused.Store(0)
	}
	if w.lost { // the time since then was no slot's: ten minutes of it would be the mean of all handlers for some time
		o = outcome{n: o.n - w.early.n, refused: o.refused - w.early.refused}
	}
	var zero T
	w.cur = zero
	return o
}

// timeout is the worker's report: idle for its whole IdleTimeout, it asks to retire. It waits for no answer; the manager's may
// come at any time, or work before it.
func (w *Worker[T]) timeout() { w.floor.timedOut(w) }

// end is the last that a worker's goroutine does.
func (w *Worker[T]) end(goexit bool) {
	w.floor.leaving(w, goexit)
	if w.cfg.Exit != nil {
		w.cfg.Exit(w)
	}
	w.floor.left(w)
}
