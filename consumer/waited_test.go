package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestWaited: what a handler only waited for is no time of it: not for the pool, nor for those that ask what a process can do,
// nor in the metrics. The same where its context is asked for its deadline.
func TestWaited(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		onEach(t, func(t *testing.T, b *membroker.Broker) {
			produce(t, b, 50)
			r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: timeout,
				Handler: func(ctx context.Context, m *consumer.Message) error {
					_, _ = ctx.Deadline()
					if string(m.Value) == "20" {
						time.Sleep(time.Minute)
						consumer.Waited(ctx, time.Minute)
					}
					time.Sleep(time.Second)
					return nil
				}})
			time.Sleep(10 * time.Minute)
			if p := r.Stats().Pool; p.Done != 50 || p.Work != 50*time.Second {
				t.Errorf("%d calls in %v, want 50 in 50 s", p.Done, p.Work)
			}
			took := time.Duration(0)
			for _, e := range eventsOf[consumer.Handled](r.journal) {
				took += e.Took
			}
			if took != 50*time.Second {
				t.Errorf("told of %v, want 50 s", took)
			}
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
	consumer.Waited(t.Context(), time.Second) // of no handler: nothing happens
}

// TestDeferredIsNoCall: what was put off was not handled, one by one or in a batch, and tells nothing of how long that takes.
func TestDeferredIsNoCall(t *testing.T) {
	for _, batch := range []bool{false, true} {
		onEach(t, func(t *testing.T, b *membroker.Broker) {
			produce(t, b, 20)
			begun := time.Now()
			handle := func() error {
				if time.Since(begun) < time.Minute {
					return consumer.Defer(time.Minute, nil)
				}
				time.Sleep(time.Second)
				return nil
			}
			cfg := consumer.Config{Handler: func(context.Context, *consumer.Message) error { return handle() }}
			if batch {
				cfg.Handler = nil
				cfg.Batch = &consumer.Batch{Size: 5, Handler: func(context.Context, []*consumer.Message) error { return handle() }}
			}
			r := start(t, b, cfg)
			time.Sleep(10 * time.Minute)
			if s := r.Stats(); s.Pool.Done != 20 || s.Deferred != 20 {
				t.Errorf("batch %v: %d calls, %d put off; want 20 each", batch, s.Pool.Done, s.Deferred)
			}
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
