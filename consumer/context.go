package consumer

import (
	"context"
	"sync/atomic"
	"time"
)

// contexts of one worker: one for each of the last few claims it was at. All of them would be workers × partitions.
type contexts struct {
	timeout time.Duration // of each call; 0: none
	clock   clock
	began   int64        // when the work at hand was begun, by the clock, where there is a timeout
	waited  atomic.Int64 // ns of the calls in the work at hand that were no handling (Waited)
	hand    int
	// slots, and the claims they are of: who looks for one looks at these alone, where each slot would have to be brought from
	// memory. A worker of thousands has little in the processor's caches.
	claims [8]uint64
	slots  [8]*contextSlot
	// shown is the one in use, for the watchdog.
	shown atomic.Pointer[contextSlot]
}

// A contextSlot is a context of handlers. It becomes a child of its claim's context when somebody asks for what that takes: to
// make a child and to end it costs about a microsecond, most handlers never ask, and with many partitions each call is of another
// claim.
type contextSlot struct {
	// ctx is the claim's. Not the claim: a worker that is idle for long has slots of claims that ended long ago, and must not keep
	// these in memory, with all that their adapter knows of them.
	ctx     context.Context
	feed    *feed
	leaving <-chan struct{}      // the claim's
	over    atomic.Bool          // it is in no slot any more
	at      atomic.Pointer[work] // what it is used for, where handlers emit or have a timeout; nil: nothing now
	child   atomic.Pointer[childContext]
	timeout time.Duration
	clock   clock
	began   atomic.Int64  // when the one message of its work began, by the clock; 0: it has several
	waited  *atomic.Int64 // the worker's
	// due is its deadline, once somebody has asked; it is of one message then (work.ask).
	due atomic.Pointer[time.Time]
}

type childContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

var _ context.Context = (*contextSlot)(nil)

// Deadline, Done, Err and Value make it a context.Context. Deadline is found out when somebody asks, so it costs nothing for a
// message. It is never later than when the watchdog ends the context. From any goroutine, at any time.
func (s *contextSlot) Deadline() (time.Time, bool) {
	if s.due.Load() == nil {
		due, ok := s.ask()
		if !ok {
			return s.ctx.Deadline()
		}
		if end, ok := s.ctx.Deadline(); ok && end.Before(due) {
			due = end
		}
		s.due.CompareAndSwap(nil, &due)
	}
	return *s.due.Load(), true
}

// ask is when the time of the message that runs is over. Not ok: it has no timeout, or none runs.
func (s *contextSlot) ask() (due time.Time, ok bool) {
	w := s.at.Load()
	if w == nil || s.timeout == 0 {
		return due, false
	}
	i, ok := w.ask()
	if !ok {
		return due, false
	}
	began := time.Now()
	if at := s.began.Load(); at != 0 { // the watchdog knows it, too, from its first look on, which may be yet to come
		began = s.clock.epoch.Add(time.Duration(at))
	}
	return w.k.seenAt(w, i, began).Add(s.timeout), true
}

// overdue says whether the deadline that somebody asked for is over.
func (s *contextSlot) overdue() bool {
	due := s.due.Load()
	return due != nil && !time.Now().Before(*due)
}

// Done is closed when the claim ends, or the watchdog ends it.
func (s *contextSlot) Done() <-chan struct{} { return s.made().Done() }

func (s *contextSlot) Err() error {
	switch c := s.child.Load(); {
	case c != nil:
		return c.Err()
	case s.over.Load():
		return context.Canceled
	}
	return s.ctx.Err()
}

func (s *contextSlot) Value(key any) any {
	switch key {
	case emitKey{}:
		return s
	case leavingKey{}:
		return s.leaving
	case waitedKey{}:
		return s.waited
	}
	return s.made().Value(key) // package context asks, too, for what its functions need
}

// made is the child. From any goroutine, at any time.
func (s *contextSlot) made() *childContext {
	if c := s.child.Load(); c != nil {
		return c
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	c := &childContext{ctx, cancel}
	if !s.child.CompareAndSwap(nil, c) {
		cancel(nil)
		return s.child.Load()
	}
	if s.over.Load() { // drop has not seen it
		cancel(context.Canceled)
	}
	return c
}

func (s *contextSlot) drop() {
	s.at.Store(nil) // the values of a call stay with a message that failed, and the call's work need not
	s.over.Store(true)
	if c := s.child.Load(); c != nil {
		c.cancel(context.Canceled)
	}
}

// get returns the worker's context for k. One that the watchdog has ended is not here any more: see renew.
func (x *contexts) get(k *claim) *contextSlot {
	for i, id := range x.claims {
		if id == k.id {
			s := x.slots[i]
			if x.shown.Load() != s {
				x.shown.Store(s)
			}
			return s
		}
	}
	s := &contextSlot{ctx: k.ctx, feed: k.feed, leaving: k.leaving, timeout: x.timeout, clock: x.clock, waited: &x.waited}
	x.hand = (x.hand + 1) % len(x.slots)
	if old := x.slots[x.hand]; old != nil {
		old.drop()
	}
	x.slots[x.hand], x.claims[x.hand] = s, k.id
	x.shown.Store(s)
	return s
}

// use is get for the calls of a work, which may emit, and may have a timeout.
func (x *contexts) use(w *work) context.Context {
	s := x.get(w.k)
	if x.timeout > 0 {
		began := int64(0)
		if len(w.ms) == 1 {
			began = x.began
		}
		s.began.Store(began) // before anybody can ask
	}
	if w.k.feed.emitting || x.timeout > 0 {
		s.at.Store(w)
	}
	return s
}

// renew returns a new context for the calls of a work, after the watchdog has ended the one in use, or it had a deadline: that of
// the next message is another. And what was made of it, with a later one, relies on it to end.
func (x *contexts) renew(w *work) context.Context {
	for i, s := range x.slots {
		if s != nil && x.claims[i] == w.k.id {
			s.drop()
			x.slots[i], x.claims[i] = nil, 0
		}
	}
	return x.use(w)
}

func (x *contexts) end() {
	for i, s := range x.slots {
		if s != nil {
			s.drop()
			x.slots[i], x.claims[i] = nil, 0
		}
	}
}

// valued is a context with the values of another one before its own.
type valued struct {
	context.Context
	values context.Context
}

func (v valued) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// withValues is ctx with the values of another context, which does not end; nil: of none.
func withValues(ctx, values context.Context) context.Context {
	if values == nil {
		return ctx
	}
	return valued{ctx, values}
}

// Leaving is closed when nothing more of a handler's message may start here: a stop has begun, or its partition goes to another
// process. Handlers that run may finish, so their context goes on; one that only waits for leave to begin returns Defer(0, nil)
// then, and its message goes back to the broker at once. nil where ctx is not that of a handler in a Consumer.
func Leaving(ctx context.Context) <-chan struct{} {
	leaving, _ := ctx.Value(leavingKey{}).(<-chan struct{})
	return leaving
}

type leavingKey struct{}

// Waited tells that d of the time of ctx's handler was no handling: it waited for leave to begin, or tried whether what it calls
// works again. It counts for nothing then: not in the metrics, not for the pool, and not for longshore scaler, which would ask
// for more processes to wait with. By any goroutine while the handler runs; it does not block. Nothing happens where ctx is not
// that of a handler in a Consumer.
func Waited(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	if waited, ok := ctx.Value(waitedKey{}).(*atomic.Int64); ok {
		waited.Add(int64(d))
	}
}

type waitedKey struct{}
