package consumer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestCopyIsHandedOn: a middleware hands on a copy with another payload; each attempt begins with the message as it came, what is
// emitted for the copy goes with the message, and the dead letter has the message's own bytes.
func TestCopyIsHandedOn(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte("packed")},
			broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte("good")}); err != nil {
			t.Fatal(err)
		}
		var seen []string
		unpacking := func(next consumer.Handler) consumer.Handler {
			return func(ctx context.Context, m *consumer.Message) error {
				seen = append(seen, string(m.Value))
				plain := *m
				plain.Key, plain.Value = nil, append([]byte("un"), m.Value...)
				return next(ctx, &plain)
			}
		}
		c.Pool, c.Retry = consumer.Pool{Max: 1}, consumer.Retry{MaxAttempts: 2}
		c.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
		c.Handler = unpacking(func(ctx context.Context, m *consumer.Message) error {
			if err := consumer.EmitFor(ctx, m, broker.Outgoing{Topic: "out", Value: m.Value}); err != nil {
				t.Error(err)
			}
			if string(m.Value) == "unpacked" {
				return errors.New("fails")
			}
			return nil
		})
		r := start(t, b, c)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		slices.Sort(seen)
		if !slices.Equal(seen, []string{"good", "packed", "packed"}) {
			t.Errorf("the attempts saw %q", seen)
		}
		if dead := b.Messages("dead"); len(dead) != 1 || string(dead[0].Value) != "packed" || string(dead[0].Key) != "k" {
			t.Errorf("dead letters %v", dead)
		}
		wantOut(t, b, "ungood")
	})
}
