package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestRevokedIsNoBacklog: what was given back at a revocation waits for no worker any more, though all workers are in handlers
// that take long and nobody comes by the queue. Else the pool grows for what others have.
func TestRevokedIsNoBacklog(t *testing.T) {
	levels := &consumer.Priority{Levels: []int{2, 1}, Of: func(m *consumer.Message) int { return int(m.Offset % 2) }}
	for name, cfg := range map[string]consumer.Config{
		"single":        {},
		"priority":      {Priority: levels},
		"in an order":   {Order: consumer.OrderKey},
		"batches":       {Batch: &consumer.Batch{Size: 5}},
		"batches, lane": {Order: consumer.OrderKey, Batch: &consumer.Batch{Size: 5, ByKey: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { revokedIsNoBacklog(t, cfg) })
		})
	}
}

func revokedIsNoBacklog(t *testing.T, cfg consumer.Config) {
	const messages = 50
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
	end := make(chan struct{})
	cfg.Pool = consumer.Pool{Min: 1, Max: 1}
	cfg.Budget = broker.Budget{Messages: 1000, Bytes: 1 << 20}
	cfg.Source = struct{ broker.Source }{ // one that holds as much as the budget allows
		b.Source(membroker.SourceConfig{Topics: []string{"in"}, RevokeWait: time.Millisecond})}
	if cfg.Batch != nil {
		cfg.Batch.Handler = func(context.Context, []*consumer.Message) error { <-end; return nil }
	} else {
		cfg.Handler = func(context.Context, *consumer.Message) error { <-end; return nil }
	}
	r := start(t, b, cfg)
	for i := range messages {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{byte(i % 25)}, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if s := r.Stats().Pool; s.Backlog == 0 || s.Queued == 0 {
		t.Fatalf("nothing waits for the worker, of %d", s.In)
	}
	if err := b.Trim("in", 0, messages); err != nil { // nothing of it comes again
		t.Fatal(err)
	}
	if err := b.Bounce("group", "in", 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if s := r.Stats().Pool; s.Backlog != 0 || s.Expected != 0 || s.Queued != 0 {
		t.Errorf("%d messages wait, %d are expected, %d works are queued; all went back", s.Backlog, s.Expected, s.Queued)
	}
	if err := r.SetLimits(1, 8); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	for _, e := range eventsOf[consumer.Scaled](r.journal) {
		if e.Target > 1 {
			t.Errorf("%d workers for the one message that is in a handler: %s", e.Target, e.Why())
		}
	}
	close(end)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}
