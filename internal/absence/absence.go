// Package absence remembers topics that do not exist, for who publishes to them again and again. To find that out may take as
// long as a request may take, and where some of the messages go there all workers would soon do that. So one at a time asks, and
// the others fail at once.
package absence

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// believed is how long a topic that does not exist is believed not to.
	believed = 10 * time.Second
	// most bounds how many are remembered.
	most = 1000
)

// Topics are those that do not exist, or did not a moment ago. The zero value knows of none. Safe for concurrent use; as long as
// none is known it takes no lock.
type Topics struct {
	known atomic.Int32
	mu    sync.Mutex
	of    map[string]absence
}

type absence struct {
	err   error
	until time.Time
}

// Of says why the topic is not there, and how long that is believed. nil: it is there, as far as anybody knows, or the caller is
// the one to ask, and tells with Learn.
func (t *Topics) Of(topic string) (wait time.Duration, err error) {
	if t.known.Load() == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.of[topic]
	if !ok {
		return 0, nil
	}
	now := time.Now()
	if now.Before(a.until) {
		return a.until.Sub(now), a.err
	}
	t.of[topic] = absence{a.err, now.Add(believed)}
	return 0, nil
}

// Learn takes what became of a publish to the topic: broker.ErrNoTopic, or that it is there. Another error says nothing.
func (t *Topics) Learn(topic string, err error) {
	missing := errors.Is(err, broker.ErrNoTopic)
	if !missing && (err != nil || t.known.Load() == 0) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.of[topic]; missing && (ok || len(t.of) < most) {
		if t.of == nil {
			t.of = map[string]absence{}
		}
		t.of[topic] = absence{err, time.Now().Add(believed)}
	} else if !missing {
		delete(t.of, topic)
	}
	t.known.Store(int32(len(t.of)))
}
