package page_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/longshoremq/longshore/consumer"
)

// healing is a handler that fails until it is healed.
type healing struct{ healed atomic.Bool }

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
