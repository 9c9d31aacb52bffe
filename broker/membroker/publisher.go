package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Publisher writes to the broker, with its faults; see broker.Publisher.
type Publisher struct {
	b    *Broker
	life *kit.Publishing
}

// Publisher makes a publisher.
func (b *Broker) Publisher() *Publisher {
	return &Publisher{b: b, life: kit.NewPublishing("membroker")}
}

// Publish stores messages. See broker.Publisher.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	return p.life.Do(ctx, func(ctx context.Context) error {
		if err := p.reach(ctx); err != nil {
			return fmt.Errorf("membroker: publishing: %w", err)
		}
		return p.storeAll(ms, time.Now())
	})
}

func (p *Publisher) storeAll(ms []broker.Outgoing, now time.Time) error {
	errs, failed := make([]error, len(ms)), false
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for i, m := range ms {
		errs[i] = p.store(m, now)
		failed = failed || errs[i] != nil
	}
	if failed {
		return &broker.PublishError{Errs: errs}
	}
	return nil
}

// store runs at the broker.
func (p *Publisher) store(m broker.Outgoing, now time.Time) error {
	if err := p.b.fits(&m); err != nil {
		return err
	}
	if err := p.b.faults.fail(OpPublish); err != nil {
		return fmt.Errorf("membroker: publishing to %q: %w", m.Topic, err)
	}
	if err := p.b.store(m, -1, now); err != nil {
		return fmt.Errorf("membroker: publishing: %w", err)
	}
	return nil
}

// reach waits as long as the broker takes, and until it is there.
func (p *Publisher) reach(ctx context.Context) error {
	p.b.mu.Lock()
	wait := p.b.faults.latency
	p.b.mu.Unlock()
	for {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		p.b.mu.Lock()
		down := p.b.faults.down
		p.b.mu.Unlock()
		if !down {
			return nil
		}
		wait = retryEvery
	}
}

// sleep returns the cause of ctx's end where that comes before d is over.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// Close waits for publishes under way. See broker.Publisher.
func (p *Publisher) Close(ctx context.Context) error {
	return p.life.Close(ctx, func() error { return nil })
}
