package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// The two kinds of broker that the engine must act alike on: one that forgets attempts and keeps no delay, where the engine
// parks; and one that keeps delays and counts deliveries.
var kinds = map[string]membroker.Config{
	"partitioned": {Topics: map[string]int{"in": 2}, Lease: time.Minute},
	"leased":      {Topics: map[string]int{"in": 1}, Leased: true, Lease: time.Minute},
}

// onEach runs a test on each kind, in a bubble of virtual time.
func onEach(t *testing.T, f func(t *testing.T, b *membroker.Broker)) {
	for name, cfg := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, membroker.New(cfg)) })
		})
	}
}

// journal keeps the events of a consumer.
type journal struct {
	mu     sync.Mutex
	events []consumer.Event
}

func (j *journal) observe(e consumer.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// eventsOf returns the events of one type.
func eventsOf[E consumer.Event](j *journal) (out []E) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if x, ok := e.(E); ok {
			out = append(out, x)
		}
	}
	return out
}

// running is a consumer under test.
type running struct {
	*consumer.Consumer
	*journal
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// start runs a consumer on "in", with short waits unless cfg says otherwise.
func start(t *testing.T, b *membroker.Broker, cfg consumer.Config) *running {
	t.Helper()
	return startHeld(t, b, cfg, func() {})
}

// startHeld is start with workers that call hold before they begin with what they were handed.
func startHeld(t *testing.T, b *membroker.Broker, cfg consumer.Config, hold func()) *running {
	t.Helper()
	if cfg.Logger.GetLevel() == 0 && !cfg.Logger.Error().Enabled() {
		cfg.Logger = zerolog.Nop()
	}
	r := &running{journal: &journal{}, done: make(chan struct{})}
	if cfg.Source == nil && cfg.Sources == nil {
		cfg.Source = b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	}
	cfg.Observers = append(cfg.Observers, r.observe)
	var err error
	if r.Consumer, err = consumer.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.HoldWorkers(hold)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithValue(t.Context(), valueKey{}, "from Run"))
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		if t.Failed() { // what a test left behind when it failed would end the whole run, with a panic of its bubble
			_ = r.end()
		}
	})
	return r
}

type valueKey struct{}

// end stops the consumer and returns Run's error.
func (r *running) end() error {
	r.stop()
	<-r.done
	return r.err
}

func produce(t *testing.T, b *membroker.Broker, n int) {
	t.Helper()
	for i := range n {
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: fmt.Appendf(nil, "%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// ledger counts how often each payload was handled.
type ledger struct {
	mu sync.Mutex
	n  map[string]int
}

func (l *ledger) add(m *consumer.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[string]int{}
	}
	l.n[string(m.Value)]++
}

// check wants each of n payloads handled once.
func (l *ledger) check(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.n) != n {
		t.Errorf("%d of %d messages were handled", len(l.n), n)
	}
	for v, times := range l.n {
		if times != 1 {
			t.Errorf("message %s was handled %d times", v, times)
		}
	}
}

func wantUnsettled(t *testing.T, b *membroker.Broker, want int64) {
	t.Helper()
	if n := b.Unsettled("group"); n != want {
		t.Errorf("%d messages are unsettled at the broker, want %d", n, want)
	}
}
