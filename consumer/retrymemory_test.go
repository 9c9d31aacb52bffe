package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A message of a retry topic whose handler takes long keeps none in memory that came together with it.
func TestRetriedMessagesAreNotKept(t *testing.T) {
	const messages, slow = 100, 8
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "retry": 1}})
		var values kept[byte]
		var again atomic.Int64
		end := make(chan struct{})
		c, stop := quiet(t, consumer.Config{
			Budget: broker.Budget{Bytes: 512 << 20}, // of which the retry topics have an eighth
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Second, Jitter: -1}, Topics: &consumer.RetryTopics{
				Steps: []consumer.RetryStep{{Topic: "retry", Delay: time.Second}}, Publisher: b.Publisher(),
				Source: b.Source(membroker.SourceConfig{Topics: []string{"retry"}, Group: "retry", Prefetch: slow}),
			}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Runs == 0 {
					return errors.New("not yet")
				}
				values.add(&m.Value[0])
				if again.Add(1)%slow == 0 {
					<-end
				}
				return nil
			}})
		for range messages {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 512<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for _, topic := range []string{"in", "retry"} {
			if err := b.Trim(topic, 0, messages); err != nil { // it would keep them for others
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.InFlight != messages/slow {
			t.Errorf("%d messages are in handlers, want %d", s.InFlight, messages/slow)
		}
		// What came first, when nobody knew how large they are, stays.
		if all, kept := values.count(); all != messages || kept > messages/slow+2*slow {
			t.Errorf("%d of %d are in memory, %d are in handlers", kept, all, messages/slow)
		}
		close(end)
		stop()
	})
}
