package consumer

import (
	"context"
	"sync"
)

// A gate holds the dispatchers while the consumer is paused. Sources that can pause by themselves are paused beside it: they give
// back what they have prefetched, and a dispatcher may be in Receive already.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: not paused; closed at resume
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open != nil
}

// wait blocks while the gate is shut and ctx lives.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-ctx.Done():
	}
}
