package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A wholePublisher refuses a whole call for the sake of one message, and does not say which.
type wholePublisher struct{ broker.Publisher }

func (p wholePublisher) Publish(ctx context.Context, outs []broker.Outgoing) error {
	if slices.ContainsFunc(outs, func(o broker.Outgoing) bool { return string(o.Value) == "bad" }) {
		return fmt.Errorf("one of %d is too large: %w", len(outs), broker.ErrRefused)
	}
	return p.Publisher.Publish(ctx, outs)
}

// Where a whole call is refused, without a word about which of its outputs that is for, the message of that one alone is given
// up.
func TestWholeCallIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 40)
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		r := start(t, b, consumer.Config{
			Output: wholePublisher{p}, DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Batch: &consumer.Batch{Size: 10, Handler: func(ctx context.Context, ms []*consumer.Message) error {
				for _, m := range ms {
					value := m.Value
					if string(value) == "7" {
						value = []byte("bad")
					}
					if err := consumer.EmitFor(ctx, m, broker.Outgoing{Topic: "out", Value: value}); err != nil {
						return err
					}
				}
				return nil
			}}})
		time.Sleep(time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.Messages("out")); n != 39 {
			t.Errorf("%d outputs, want 39", n)
		}
		if s := r.Stats(); s.Handled != 39 || s.DeadLettered != 1 || s.Failed != 1 {
			t.Errorf("%d handled, %d dead-lettered, %d failed; want 39, 1, 1", s.Handled, s.DeadLettered, s.Failed)
		}
	})
}

// The same of dead letters: those that are taken are there at once, as they are.
func TestWholeCallOfLettersIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i := range 20 {
			value := fmt.Appendf(nil, "%d", i)
			if i == 7 {
				value = []byte("bad")
			}
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: wholePublisher{p}, Topic: "dead", Concurrency: 1},
			Batch: &consumer.Batch{Size: 20, Handler: func(context.Context, []*consumer.Message) error {
				return consumer.Permanent(fmt.Errorf("no"))
			}}})
		time.Sleep(10 * time.Second)
		if n := len(b.Messages("dead")); n != 19 {
			t.Errorf("%d letters, want 19", n)
		}
		if s := r.Stats(); s.LettersDelayed != 1 {
			t.Errorf("%d letters wait, want 1", s.LettersDelayed)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
