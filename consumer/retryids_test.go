package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// natsHeaders is a publisher that writes headers as that of JetStream does: the ID is one, and what the server would obey has
// another name.
type natsHeaders struct{ broker.Publisher }

func (p natsHeaders) Publish(ctx context.Context, ms []broker.Outgoing) error {
	ms = slices.Clone(ms)
	for i, o := range ms {
		hs := slices.Clone(o.Headers)
		for j, h := range hs {
			if strings.HasPrefix(h.Key, "Nats-") {
				hs[j].Key = broker.ReservedPrefix + h.Key
			}
		}
		ms[i].Headers = append(hs, broker.Header{Key: "Nats-Msg-Id", Value: []byte(o.ID)})
		ms[i].ID = ""
	}
	return p.Publisher.Publish(ctx, ms)
}

// However often a message goes through a retry topic of JetStream, it has the headers that it came with, and no more.
func TestHeadersDoNotGrowInRetryTopics(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		topics := retries(b)
		topics.Publisher = natsHeaders{topics.Publisher}
		if err := b.Produce(broker.Outgoing{Topic: "in", Headers: []broker.Header{{Key: "own", Value: []byte("h")}}}); err != nil {
			t.Fatal(err)
		}
		runs := 0
		r := start(t, b, consumer.Config{Retry: consumer.Retry{MaxAttempts: 10, Topics: topics},
			Handler: func(_ context.Context, m *consumer.Message) error {
				for k, v := range m.Headers.All() {
					if k != "own" {
						t.Errorf("run %d: header %s: %s", runs, k, v)
					}
				}
				if runs++; runs == 5 {
					return nil
				}
				return consumer.RetryAfter(errors.New("later"), time.Minute)
			}})
		time.Sleep(10 * time.Minute)
		if err := r.end(); err != nil || runs != 5 {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
}
