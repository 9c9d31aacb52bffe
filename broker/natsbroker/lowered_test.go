package natsbroker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestMaxDeliverIsLowered: somebody gives the consumer a max_deliver while it is in use. The server drops what is given back at
// its last delivery, so that it becomes a dead letter before, whatever is left of its attempts.
func TestMaxDeliverIsLowered(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"one by one": false, "batches": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 1)
			if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"d"}}); err != nil {
				t.Fatal(err)
			}
			src, err := natsbroker.NewSource(config(ts.url()))
			if err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			fail := func() error {
				once.Do(func() { a.change(func(cc *jetstream.ConsumerConfig) { cc.MaxDeliver = 2 }) })
				return errors.New("no")
			}
			cfg := consumer.Config{
				Source: src, Logger: zerolog.Nop(), DeadLetter: &consumer.DeadLetter{Publisher: newPublisher(t, ts.url()), Topic: "d"},
				Retry: consumer.Retry{MaxAttempts: 100, Backoff: consumer.Backoff{Initial: 10 * time.Millisecond}},
			}
			if batch {
				cfg.Batch = &consumer.Batch{Handler: func(context.Context, []*consumer.Message) error { return fail() }}
			} else {
				cfg.Handler = func(context.Context, *consumer.Message) error { return fail() }
			}
			c, err := consumer.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() { over <- c.Run(ctx) }()
			eventually(t, "there is a dead letter", func() bool {
				d, err := a.js.Stream(t.Context(), "D")
				return err == nil && d.CachedInfo().State.Msgs == 1
			})
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
	}
}
