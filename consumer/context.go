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
	gone   bool // it is in no slot any more; the worker's own
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
	x.hand = (x.hand + 1) % len(x.slots)
	if old := x.slots[x.hand]; old != nil {
		old.drop()
	}
	x.slots[x.hand] = s
	x.shown.Store(s)
	return s.ctx
}

// renew returns a new context for k, after the watchdog has ended the one in use.
func (x *contexts) renew(k *claim) context.Context {
	for i, s := range x.slots {
		if s != nil && s.k == k {
			s.drop()
			x.slots[i] = nil
		}
	}
	return x.get(k)
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
