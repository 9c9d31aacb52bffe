package sim

import (
	"context"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// once puts Dedup before the handler of a process, where the settings say so: what it skips was handled before, in this process.
func (p *process) once(next consumer.Handler) consumer.Handler {
	if !p.run.schedule.Settings.Dedup {
		return next
	}
	deduped := middleware.Dedup(100, middleware.ByPosition)(func(ctx context.Context, m *consumer.Message) error {
		ctx.Value(calledKey{}).(*called).called = true
		return next(ctx, m)
	})
	return func(ctx context.Context, m *consumer.Message) error {
		c := &called{}
		defer func() {
			if !c.called {
				p.repeats.Add(1)
			}
		}()
		return deduped(context.WithValue(ctx, calledKey{}, c), m)
	}
}

type calledKey struct{}

// called says whether Dedup has called the handler.
type called struct{ called bool }
