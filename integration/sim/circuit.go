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
	p       *process
	breaker *middleware.CircuitBreaker

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
	var err error
	x.breaker, err = middleware.NewCircuitBreaker(middleware.BreakerConfig{
		MinCalls: 3, FailureRate: 0.3, Window: 2 * time.Second, OpenFor: 400 * time.Millisecond, Probes: 1 + s.Workers/3,
		OnChange: x.turn,
	})
	if err != nil {
		return nil, err
	}
	return x.breaker.Middleware(x.through(next)), nil
}

func (x *circuit) turn(state string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.state, x.since = state, time.Now()
	x.p.run.book.note("%s: its circuit is %s", x.p.name, state)
}

// isOpen says that it has opened before now. It may be told later that it is not open any more: its state tells that, too.
func (x *circuit) isOpen() bool {
	x.mu.Lock()
	open := x.state == "open" && time.Now().After(x.since)
	x.mu.Unlock()
	return open && x.breaker.State() == "open"
}

// through looks at each call that the breaker lets through.
func (x *circuit) through(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		if x.isOpen() {
			x.p.run.book.find("%s: m%d is let through, and the circuit is open", x.p.name, numberOf(m.Value))
		}
		return next(ctx, m)
	}
}
