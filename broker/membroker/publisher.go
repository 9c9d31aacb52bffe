package membroker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Publisher writes to the broker, with its faults; see broker.Publisher.
type Publisher struct {
	b       *Broker
	mu      sync.Mutex
	closed  bool
	running int
	idle    chan struct{} // closed when running gets to 0 after Close
}

// Publisher makes a publisher.
func (b *Broker) Publisher() *Publisher { return &Publisher{b: b, idle: make(chan struct{})} }

// Publish stores messages. See broker.Publisher.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("membroker: publishing: %w", broker.ErrClosed)
	}
	p.running++
	p.mu.Unlock()
	defer p.finished()
	if err := p.reach(ctx); err != nil {
		return err
	}
	errs := make([]error, len(ms))
	failed := false
	now := time.Now()
	p.b.mu.Lock()
	for i, m := range ms {
		if errs[i] = p.b.publish(m, now); errs[i] != nil {
			failed = true
		}
	}
	p.b.mu.Unlock()
	if failed {
		return &broker.PublishError{Errs: errs}
	}
	return nil
}

// publish needs b.mu.
func (b *Broker) publish(m broker.Outgoing, now time.Time) error {
	size := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if size > b.cfg.MaxMessageBytes {
		return fmt.Errorf("membroker: publishing to %q: %d bytes, at most %d: %w", m.Topic, size, b.cfg.MaxMessageBytes, broker.ErrRefused)
	}
	if err := b.faults.fail(OpPublish); err != nil {
		return fmt.Errorf("membroker: publishing to %q: %w", m.Topic, err)
	}
	if err := b.store(m, -1, now); err != nil {
		return fmt.Errorf("membroker: publishing: %w", err)
	}
	return nil
}

// reach waits until the broker is there.
func (p *Publisher) reach(ctx context.Context) error {
	p.b.mu.Lock()
	wait := p.b.faults.latency
	p.b.mu.Unlock()
	for {
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return fmt.Errorf("membroker: publishing: %w", ctx.Err())
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("membroker: publishing: %w", err)
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

func (p *Publisher) finished() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running--; p.running == 0 && p.closed {
		close(p.idle)
	}
}

// Close waits for publishes under way. See broker.Publisher.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		if p.running == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		return nil
	default:
	}
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("membroker: closing the publisher: %w", ctx.Err())
	}
}
