package consumer_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Who wants no limit says the largest value that there is.
func TestLargestValues(t *testing.T) {
	const never = time.Duration(math.MaxInt64)
	for name, cfg := range map[string]consumer.Config{
		"timeout":     {Timeout: never},
		"stuck after": {Timeout: time.Second, StuckAfter: never},
		"max stuck":   {Timeout: time.Second, MaxStuck: math.MaxInt},
		"drain":       {DrainTimeout: never, CancelGrace: never, CloseTimeout: never, OpenTimeout: never},
		"budget":      {Budget: broker.Budget{Messages: math.MaxInt, Bytes: math.MaxInt64}},
		"lane":        {Order: consumer.OrderKey, Lane: consumer.Lane{Limit: math.MaxInt}},
		"attempts":    {Retry: consumer.Retry{MaxAttempts: math.MaxInt, GiveUpAfter: never}},
		"backoff":     {Retry: consumer.Retry{Backoff: consumer.Backoff{Max: never}}},
		"message":     {MaxMessageBytes: math.MaxInt, MaxHeaderBytes: math.MaxInt},
		"pool":        {Pool: consumer.Pool{IdleTimeout: never}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produceKeyed(t, b, 100, 20)
				var l ledger
				cfg.Handler = func(_ context.Context, m *consumer.Message) error {
					time.Sleep(2 * time.Second)
					l.add(m)
					return nil
				}
				r := start(t, b, cfg)
				time.Sleep(time.Minute) // workers are idle
				produceKeyed(t, b, 100, 20)
				for range 60 {
					time.Sleep(time.Second)
					if err := r.Health(time.Minute); err != nil {
						t.Error(err)
						break
					}
				}
				time.Sleep(time.Minute)
				if s := r.Stats(); s.Handled != 200 || s.Failed+s.Retried+int64(s.Stuck) != 0 {
					t.Errorf("%d handled, %d failed, %d stuck, want 200 handled", s.Handled, s.Failed, s.Stuck)
				}
				if n := len(eventsOf[consumer.Stuck](r.journal)); n > 0 {
					t.Errorf("%d are called stuck", n)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestLargestLimitBesideAnother: no limit for the one is none for the other.
func TestLargestLimitBesideAnother(t *testing.T) {
	for name, cfg := range map[string]consumer.Config{
		"message": {MaxMessageBytes: math.MaxInt, MaxHeaderBytes: 1000},
		"headers": {MaxMessageBytes: 1000, MaxHeaderBytes: math.MaxInt},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				large := make([]byte, 2000)
				hs := []broker.Header{{Key: "h", Value: large}}
				if err := b.Produce(broker.Outgoing{Topic: "in", Value: large, Headers: hs}); err != nil {
					t.Fatal(err)
				}
				cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
				cfg.Handler = func(context.Context, *consumer.Message) error {
					t.Error("a handler has the message")
					return nil
				}
				r := start(t, b, cfg)
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if n := len(b.Messages("dead")); n != 1 {
					t.Errorf("%d dead letters, want 1", n)
				}
			})
		})
	}
}

// Nor is a consumer ill for a probe that never wants to find it so.
func TestHealthForEver(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 20)
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Max: 1}, Handler: func(context.Context, *consumer.Message) error {
			time.Sleep(time.Hour)
			return nil
		}})
		for range 20 {
			time.Sleep(time.Minute)
			if err := r.Health(math.MaxInt64); err != nil {
				t.Error(err)
				break
			}
		}
		time.Sleep(24 * time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
