package consumer

import (
	"context"
	"sync/atomic"
)

// contexts of one worker: one for each of the last few claims it was at. All of them would be workers × partitions; a new one for
// each change of claim costs about a microsecond.
type contexts struct {
	slots [8]*contextSlot
	hand  int
	// shown is the one in use, for the watchdog.
	shown atomic.Pointer[contextSlot]
}

type contextSlot struct {
	k      *claim
	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   bool                 // it is in no slot any more; the worker's own
	at     atomic.Pointer[work] // what it is used for, where handlers emit
}

// get returns the worker's context for k. One that the watchdog has ended is not here any more: see renew.
func (x *contexts) get(k *claim) context.Context {
	if s := x.shown.Load(); s != nil && s.k == k && !s.gone {
		return s.ctx
	}
	for _, s := range x.slots {
		if s != nil && s.k == k {
			x.shown.Store(s)
			return s.ctx
		}
	}
	s := &contextSlot{k: k}
	s.ctx, s.cancel = context.WithCancelCause(k.ctx)
	if k.feed.emitting {
		s.ctx = context.WithValue(s.ctx, emitKey{}, s)
	}
	x.hand = (x.hand + 1) % len(x.slots)
	if old := x.slots[x.hand]; old != nil {
		old.drop()
	}
	x.slots[x.hand] = s
	x.shown.Store(s)
	return s.ctx
}

// use is get for the calls of a work, which may emit.
func (x *contexts) use(w *work) context.Context {
	ctx := x.get(w.k)
	if w.k.feed.emitting {
		x.shown.Load().at.Store(w)
	}
	return ctx
}

// renew returns a new context for the calls of a work, after the watchdog has ended the one in use.
func (x *contexts) renew(w *work) context.Context {
	k := w.k
	for i, s := range x.slots {
		if s != nil && s.k == k {
			s.drop()
			x.slots[i] = nil
		}
	}
	return x.use(w)
}

func (x *contexts) end() {
	for i, s := range x.slots {
		if s != nil {
			s.drop()
			x.slots[i] = nil
		}
	}
}

func (s *contextSlot) drop() {
	s.gone = true
	s.cancel(context.Canceled)
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
