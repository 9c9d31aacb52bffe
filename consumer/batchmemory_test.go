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

// A batch that was handled is not in memory any more, however long it might have lingered: with a Linger of minutes it would be
// many times the budget. Messages come a few at a time, so each batch gathers.
func TestHandledBatchesAreNotKept(t *testing.T) {
	const messages, size, atOnce = 5000, 10, 7
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	var seen kept[consumer.Message]
	r := start(t, b, consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Prefetch: atOnce}), Chunk: atOnce,
		Batch: &consumer.Batch{Size: size, Linger: time.Hour, Handler: func(_ context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				seen.add(m)
			}
			return nil
		}}})
	for range messages {
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
	var handled, left int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// What the workers, the slab and the cutter hold still is no more than some batches.
		if handled, left = seen.count(); handled == messages && left < messages/10 {
			break
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if handled != messages || left >= messages/10 {
		t.Errorf("%d of %d handled, %d of them are kept in memory", handled, messages, left)
	}
}

// What waits for others of its key keeps no answer of the broker in memory, with all that came in it and was handled long ago.
func TestLingeringKeepsNoAnswers(t *testing.T) {
	const rounds, size = 200, 127
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				var answers kept[byte]
				c, stop := quiet(t, consumer.Config{
					Source: packed{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), &answers}, Order: order,
					Batch: &consumer.Batch{Size: size, ByKey: true, Linger: time.Hour,
						Handler: func(context.Context, []*consumer.Message) error { return nil }}})
				for no := range byte(rounds) {
					some := make([]broker.Outgoing, 1+size)
					for i := range some {
						some[i] = broker.Outgoing{Topic: "in", Key: []byte{'h', no}, Value: make([]byte, 100)}
					}
					some[0].Key = []byte{'r', no}
					if err := b.Produce(some...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if s := c.Stats(); s.InFlight != rounds {
					t.Errorf("%d messages wait for others, want %d", s.InFlight, rounds)
				}
				if all, kept := answers.count(); all < rounds || kept > rounds/10 {
					t.Errorf("%d of %d answers are in memory", kept, all)
				}
				stop()
			})
		})
	}
}
