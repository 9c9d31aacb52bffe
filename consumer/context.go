package consumer

import (
	"context"
	"sync/atomic"
)

// contexts of one worker: one for each of the last few claims it was at. All of them would be workers × partitions; a new one for each change
// of claim costs about a microsecond.
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
}

// get returns the worker's context for k.
func (x *contexts) get(k *claim) context.Context {
	for _, s := range x.slots {
		if s != nil && s.k == k && s.ctx.Err() == nil {
			x.shown.Store(s)
			return s.ctx
		}
	}
	s := &contextSlot{k: k}
	s.ctx, s.cancel = context.WithCancelCause(k.ctx)
	x.hand = (x.hand + 1) % len(x.slots)
	if old := x.slots[x.hand]; old != nil {
		old.cancel(context.Canceled)
	}
	x.slots[x.hand] = s
	x.shown.Store(s)
	return s.ctx
}

// renew returns a new context for k, after the watchdog has ended the one in use.
func (x *contexts) renew(k *claim) context.Context {
	for i, s := range x.slots {
		if s != nil && s.k == k {
			s.cancel(context.Canceled)
			x.slots[i] = nil
		}
	}
	return x.get(k)
}

func (x *contexts) end() {
	for i, s := range x.slots {
		if s != nil {
			s.cancel(context.Canceled)
			x.slots[i] = nil
		}
	}
}
