package consumer

import (
	"context"
	"slices"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// Emitted is what was emitted in a context of RecordEmits. Safe for concurrent use.
type Emitted struct {
	mu   sync.Mutex
	outs []broker.Outgoing
}

// RecordEmits is for tests, and others who call a handler without a consumer: what it emits in the context, made of ctx, is kept
// in the Emitted, and goes nowhere. Who returned an error has emitted nothing, as far as the engine is concerned, so look at what
// the handler returned, too. EmitBy publishes by the publisher that it was given, as it does where the source is not atomic.
func RecordEmits(ctx context.Context) (context.Context, *Emitted) {
	e := &Emitted{}
	return context.WithValue(ctx, emitKey{}, e), e
}

// Outs returns what was emitted so far, in order.
func (e *Emitted) Outs() []broker.Outgoing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.outs)
}

func (e *Emitted) add(outs []broker.Outgoing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outs = append(e.outs, outs...)
}
