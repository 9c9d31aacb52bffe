package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// A handler that returned nil is not done yet where it emitted something: that is stored afterwards, and may not be. The message
// comes again then, and has to emit again.
func TestDedupOfWhatEmits(t *testing.T) {
	for name, c := range map[string]struct {
		broker membroker.Config
		lose   func(*testing.T, *membroker.Broker) // called in the first call
	}{
		"published before the ack": {
			lose: func(_ *testing.T, b *membroker.Broker) { b.Fail(membroker.OpPublish, 1, errors.New("down")) },
		},
		"stored with the ack": {
			broker: membroker.Config{Atomic: true},
			lose: func(t *testing.T, b *membroker.Broker) {
				if err := b.Steal("group", "in", 0); err != nil {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.broker.Topics = map[string]int{"in": 1, "out": 1}
				b := membroker.New(c.broker)
				write(t, b, "in", 1, func(int) []byte { return nil })
				p := b.Publisher()
				defer func() { _ = p.Close(context.Background()) }()
				calls := 0
				cfg := consumer.Config{Handler: middleware.Dedup(10, middleware.ByPosition)(
					func(ctx context.Context, m *consumer.Message) error {
						if calls++; calls == 1 {
							c.lose(t, b)
						}
						return consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: m.Value})
					})}
				if !c.broker.Atomic {
					cfg.Output = p
				}
				_, stop := consume(t, b, []string{"in"}, cfg)
				time.Sleep(time.Minute)
				s := stop()
				if n := len(b.Messages("out")); n != 1 || b.Unsettled("group") != 0 {
					t.Errorf("%d outputs, %d messages unsettled, want 1 and 0, after %d calls; %d skipped", n, b.Unsettled("group"), calls,
						s.Skipped)
				}
			})
		})
	}
}

// Another message of the same key is a repeat also where the first one emitted with its ack.
func TestDedupOfRepeatsOfWhatEmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Atomic: true, Topics: map[string]int{"in": 1, "out": 1}})
		for range 2 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Headers: []broker.Header{{Key: "ce-id", Value: []byte("o-1")}}}); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 1},
			Handler: middleware.Dedup(10, middleware.ByHeader("ce-id"))(func(ctx context.Context, _ *consumer.Message) error {
				return consumer.Emit(ctx, broker.Outgoing{Topic: "out"})
			})})
		time.Sleep(time.Minute)
		if s := stop(); s.Skipped != 1 || len(b.Messages("out")) != 1 {
			t.Errorf("%d outputs, %d skipped, want 1 and 1", len(b.Messages("out")), s.Skipped)
		}
	})
}
