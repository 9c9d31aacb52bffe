package middleware_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// A concurrency limit whose calls take long forgets the messages that waited for it and went back to the broker with their
// claims, of which each rebalance brings as many again.
func TestConcurrencyLimitForgetsEndedClaims(t *testing.T) {
	const rounds, messages = 100, 200
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
		limit, err := middleware.NewConcurrencyLimit(1)
		if err != nil {
			t.Fatal(err)
		}
		end := make(chan struct{})
		limited := limit.Middleware(func(context.Context, *consumer.Message) error {
			<-end
			return nil
		})
		var mu sync.Mutex
		claims := map[weak.Pointer[broker.Claim]]bool{}
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 2, Max: 2},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				mu.Lock()
				claims[weak.Make(m.Claim)] = true
				mu.Unlock()
				return limited(ctx, m)
			}})
		write(t, b, "in", messages, noKey)
		for range rounds {
			time.Sleep(20 * time.Second)
			if err := b.Bounce("group", "in", 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		runtime.GC()
		mu.Lock()
		kept := 0
		for c := range claims {
			if c.Value() != nil {
				kept++
			}
		}
		// Workers know a few of them still.
		if len(claims) < rounds || kept > rounds/2 {
			t.Errorf("%d of %d claims are in memory", kept, len(claims))
		}
		mu.Unlock()
		close(end)
		stop()
	})
}
