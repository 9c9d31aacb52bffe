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

// Workers keep no claims that have ended in memory: an adapter's has a window, or a table of messages, with it.
func TestEndedClaimsAreNotKept(t *testing.T) {
	const rounds, workers = 30, 16
	for name, order := range map[string]consumer.Order{"none": consumer.OrderNone, "key": consumer.OrderKey} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
				claims := &kept[broker.Claim]{}
				source := b.Source(membroker.SourceConfig{Topics: []string{"in"}, RevokeWait: time.Minute})
				c, stop := quiet(t, consumer.Config{Source: claimed{source, claims}, Order: order,
					Pool: consumer.Pool{Min: workers, Max: workers}, Timeout: time.Minute, Chunk: workers,
					Handler: func(ctx context.Context, m *consumer.Message) error {
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(time.Second):
							return nil
						}
					}})
				for no := range rounds {
					for i := range byte(workers) {
						if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{i}, Value: []byte("v")}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(10 * time.Second)
					if err := b.Bounce("group", "in", 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Second)
					if n := c.Stats().Handled; n != int64(workers*(no+1)) {
						t.Fatalf("%d handled in %d rounds", n, no+1)
					}
				}
				// What the dispatcher received last is of some claims.
				if all, kept := claims.count(); all < rounds || kept > 3 {
					t.Errorf("%d of %d claims are in memory", kept, all)
				}
				stop()
			})
		})
	}
}

// A claimed source tells of the claims that it hands out of, each once.
type claimed struct {
	*membroker.Source
	claims *kept[broker.Claim]
}

func (s claimed) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	if n > 0 {
		s.claims.once(dst[0].Claim)
	}
	return n, err
}
