package consumer

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// local is a worker's own: its contexts and its buffers.
type local struct {
	contexts
	tokens []uint64
	// calls, good and refused count the handler calls in the run at hand, those that returned nil, and those that returned
	// Overloaded.
	calls, good, refused int
	goroutine            uint64
}

// work handles a run: the pool's Do.
func (c *Consumer) handle(w *pool.Worker[*work], r *work) {
	l, _ := w.Local.(*local)
	if l == nil {
		l = &local{goroutine: goroutineID()}
		w.Local = l
		w.Shown.Store(l)
	}
	l.calls, l.good, l.refused = 0, 0, 0
	for !c.handleSome(l, r) {
	}
	if l.calls == 0 {
		return
	}
	took := time.Since(w.Began())
	w.Report(l.calls, took)
	if l.refused > 0 {
		w.Refused(l.refused)
	}
	c.pace.observe(l.calls, took)
	if l.good > 0 {
		c.progress.Store(w.Began().Add(took).UnixNano())
		if len(c.counting) > 0 {
			c.tellHandled(l.good, took)
		}
	}
}

// handleSome runs messages of r until its end (true) or until a handler panics (false: call again for the rest).
func (c *Consumer) handleSome(l *local, r *work) (end bool) {
	i, clean := -1, false
	defer func() {
		if clean {
			return
		}
		if p := recover(); p != nil {
			c.failed(l, r, i, &PanicError{Value: p, Stack: debug.Stack()})
			return
		}
		c.goexit(l, r, i)
	}()
	ctx, handler, limited := l.get(r.k), c.handler, c.cfg.MaxMessageBytes+c.cfg.MaxHeaderBytes > 0
	for {
		var v uint64
		var ok bool
		i, v, ok = r.take()
		if v&expired != 0 {
			r.state.And(^expired)
			ctx = l.renew(r.k)
		}
		if !ok {
			clean = true
			c.finish(l, r, v)
			return true
		}
		if !r.k.Startable() {
			c.refuse(l, r, i)
			continue
		}
		if r.batch != nil {
			l.calls += len(r.ms)
			if err := c.callBatch(ctx, r); err != nil {
				l.count(err, len(r.ms))
				c.failed(l, r, i, err)
			} else {
				l.good += len(r.ms)
			}
			continue
		}
		l.calls++
		m := &r.ms[i]
		var err error
		if limited || m.Crashes > 0 {
			err = c.unfit(m)
		}
		if err == nil {
			err = handler(ctx, m)
		}
		if err != nil {
			l.count(err, 1)
			c.failed(l, r, i, err)
			continue
		}
		l.good++
		if r.each {
			if from, _, ok := r.takeOut(i); ok { // else disowned: the watchdog has decided
				c.ackRange(l, r, from, i+1)
			}
		}
	}
}

// count takes the failure of n messages.
func (l *local) count(err error, n int) {
	if IsOverloaded(err) {
		l.refused += n
	}
}

// unfit is the error of a message that no handler is to see.
func (c *Consumer) unfit(m *Message) error {
	if m.Crashes > 0 && c.cfg.DeadLetter != nil {
		return fmt.Errorf("%w: %d processes in a row ended without a goodbye while it was unfinished, the last one while it alone was in a handler", ErrCrashes, m.Crashes)
	}
	if n, limit := len(m.Key)+len(m.Value), c.cfg.MaxMessageBytes; limit > 0 && n > limit {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, n, limit)
	}
	if limit := c.cfg.MaxHeaderBytes; limit > 0 {
		n := 0
		for name, value := range m.Headers.All() {
			if n += len(name) + len(value); n > limit {
				return fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, limit)
			}
		}
	}
	return nil
}

// finish settles the successes at the end of a run.
func (c *Consumer) finish(l *local, r *work, v uint64) {
	if v&(disowned|replaced) != 0 {
		c.stuck.Add(-1)
	}
	if v&disowned != 0 {
		return
	}
	from, _, end := unpackState(v)
	r.k.leave(r)
	c.ackRange(l, r, from, end)
}

// refuse gives back message i, which was taken and not started because its claim is no longer open, and all behind it.
func (c *Consumer) refuse(l *local, r *work, i int) {
	from, _, ok := r.takeOut(i)
	if !ok {
		return
	}
	c.ackRange(l, r, from, i)
	_, _, u0, u1 := r.steal()
	c.giveBack(r.k, append(backs(r.part(i, i+1)), backs(r.part(u0, u1))...), append(r.lanesOf(i, i+1), r.lanesOf(u0, u1)...), "revoked")
}

// failed takes message i out of the run, with the successes before it, and decides about it.
func (c *Consumer) failed(l *local, r *work, i int, err error) {
	from, late, ok := r.takeOut(i)
	if !ok {
		return // disowned: the watchdog has decided
	}
	c.ackRange(l, r, from, i)
	if r.batch != nil {
		l.good += c.failedBatch(r, err, late)
		return
	}
	if IsDeferred(err) {
		l.calls-- // it handled nothing, and tells nothing of how long that takes
	}
	if late {
		err = &lateError{err}
	}
	c.decideOn(r.item(i), err)
}

// lateError is what a handler returned after its context was ended by its timeout.
type lateError struct{ err error }

func (e *lateError) Error() string   { return ErrTimeout.Error() + ": " + e.err.Error() }
func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }

// goexit is called while the goroutine is ending: by then the rest of the run must have left its hands.
func (c *Consumer) goexit(l *local, r *work, i int) {
	c.failed(l, r, i, ErrGoexit)
	_, _, u0, u1 := r.steal()
	v := r.state.Add(oneTaken)
	if v&(disowned|replaced) != 0 {
		c.stuck.Add(-1)
	}
	if v&disowned != 0 {
		return
	}
	r.k.leave(r)
	if u0 < u1 {
		c.again(r.k, r.ms[u0:u1], r.lanesOf(u0, u1), r.first)
	}
}

// exit ends a leaving worker's contexts; their claims would keep them otherwise. The pool's Exit.
func (c *Consumer) exit(w *pool.Worker[*work]) {
	if l, _ := w.Local.(*local); l != nil {
		l.end()
	}
}
