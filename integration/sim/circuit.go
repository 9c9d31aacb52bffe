package sim

import (
	"context"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// A circuit is what a process's circuit breaker says of itself, held against what it lets through.
type circuit struct {
	p     *process
	mu    sync.Mutex
	state string
	since time.Time
}

// spare puts a circuit breaker before the handler of a process, where the settings say so.
func (p *process) spare(next consumer.Handler) (consumer.Handler, error) {
	s := p.run.schedule.Settings
	if !s.Breaker {
		return next, nil
	}
	x := &circuit{p: p}
	b, err := middleware.NewCircuitBreaker(middleware.BreakerConfig{
		MinCalls: 3, FailureRate: 0.3, Window: 2 * time.Second, OpenFor: 400 * time.Millisecond, Probes: 1 + s.Workers/3,
		OnChange: x.turn,
	})
	if err != nil {
		return nil, err
	}
	return b.Middleware(x.through(next)), nil
}

func (x *circuit) turn(state string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.state, x.since = state, time.Now()
	x.p.run.book.note("%s: its circuit is %s", x.p.name, state)
}

// through looks at each call that the breaker lets through.
func (x *circuit) through(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		x.mu.Lock()
		if x.state == "open" && time.Now().After(x.since) {
			x.p.run.book.find("%s: m%d is let through, and the circuit is open", x.p.name, numberOf(m.Value))
		}
		x.mu.Unlock()
		return next(ctx, m)
	}
}
