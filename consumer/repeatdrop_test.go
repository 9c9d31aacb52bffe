package consumer_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// drops is a publisher to a broker that drops what it has by the same ID, as JetStream does within its duplicate window.
type drops struct {
	broker.Publisher
	mu  sync.Mutex
	has map[string]bool
}

func (p *drops) Publish(ctx context.Context, ms []broker.Outgoing) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var fresh []broker.Outgoing
	for _, o := range ms {
		if o.ID == "" || !p.has[o.ID] {
			fresh = append(fresh, o)
		}
	}
	if err := p.Publisher.Publish(ctx, fresh); err != nil {
		return err
	}
	for _, o := range fresh {
		p.has[o.ID] = true
	}
	return nil
}

// A message that no handler may see, with no place for dead letters, goes round in a retry topic that drops repeats, and stays
// there: none of its ways through it is taken for a repeat of the one before.
func TestTooLargeGoesRoundWhereRepeatsAreDropped(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		topics := retries(b)
		topics.Publisher = &drops{Publisher: topics.Publisher, has: map[string]bool{}}
		cfg := consumer.Config{
			MaxHeaderBytes: 1, Retry: consumer.Retry{Topics: topics,
				Backoff: consumer.Backoff{Initial: time.Minute, Max: time.Minute, Jitter: -1}},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		}
		if err := b.Produce(broker.Outgoing{Topic: "in", Headers: []broker.Header{{Key: "k", Value: []byte("v")}}}); err != nil {
			t.Fatal(err)
		}
		r := start(t, b, cfg)
		time.Sleep(10 * time.Minute)
		n := len(eventsOf[consumer.Failed](r.journal))
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n < 5 || b.Unsettled("group")+b.Unsettled("group-retry") != 1 {
			t.Errorf("it failed %d times in ten minutes, and %d are left of it", n, b.Unsettled("group")+b.Unsettled("group-retry"))
		}
	})
}
