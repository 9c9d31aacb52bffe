package page_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// healing is a handler that fails until it is healed.
type healing struct{ healed atomic.Bool }

// A gate confirms what is replayed to orders late: where so many went there, it waits until it is opened.
type gate struct {
	broker.Publisher
	after int
	open  chan struct{}
	gone  atomic.Int64
}

func (g *gate) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := g.Publisher.Publish(ctx, ms)
	if ms[0].Topic == "orders" && g.gone.Add(int64(len(ms))) > int64(g.after) {
		<-g.open
	}
	return err
}

// payloads is a handler that keeps what it handled, with the header tenant.
type payloads struct {
	mu  sync.Mutex
	all []string
}

func (p *payloads) handle(_ context.Context, m *consumer.Message) error {
	if strings.HasPrefix(string(m.Value), "bad") {
		return consumer.Permanent(errBad)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := string(m.Value)
	if v, ok := m.Headers.Get("tenant"); ok {
		text += " tenant=" + string(v)
	}
	p.all = append(p.all, text)
	return nil
}

func (p *payloads) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one == text {
			return true
		}
	}
	return false
}
