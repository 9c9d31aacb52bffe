package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// How much is held of a backlog: without an order what the workers handle soon. With one, what stands in lanes is held besides,
// up to the budget; so that a key behind many messages of others is fetched, and handled beside them.
func TestHeldInLanes(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				const budget, workers, behind = 1000, 16, 600
				for i := range 5000 {
					key := fmt.Sprint(i % 4)
					if i == behind {
						key = "another"
					}
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key)}); err != nil {
						t.Fatal(err)
					}
				}
				var begun atomic.Int64
				r := start(t, b, consumer.Config{
					Order: order, Pool: consumer.Pool{Min: workers, Max: workers}, Budget: broker.Budget{Messages: budget, Bytes: 1 << 20},
					Lane: consumer.Lane{Limit: 500},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if string(m.Key) == "another" {
							begun.Store(time.Now().UnixNano())
						}
						time.Sleep(time.Second)
						return nil
					}})
				time.Sleep(20 * time.Second)
				s := r.Stats()
				t.Logf("%d in flight, %d in lanes", s.InFlight, s.Waiting)
				if order == consumer.OrderNone && s.InFlight > 4*workers {
					t.Errorf("%d in flight, want what the workers handle soon", s.InFlight)
				}
				if order == consumer.OrderKey && (s.InFlight > budget || s.Waiting < budget/2 || begun.Load() == 0) {
					t.Errorf("%d in flight, %d in lanes, the other key has begun: %v; want up to the budget, and that it has", s.InFlight,
						s.Waiting, begun.Load() != 0)
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
