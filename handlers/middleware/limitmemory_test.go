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

// TestConcurrencyLimitForgetsEndedClaims: also where its calls take long.
func TestConcurrencyLimitForgetsEndedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := middleware.NewConcurrencyLimit(1)
		if err != nil {
			t.Fatal(err)
		}
		end := make(chan struct{})
		limited := limit.Middleware(func(context.Context, *consumer.Message) error {
			<-end
			return nil
		})
		forgetsEndedClaims(t, limited, func() { close(end) })
	})
}

// TestRateLimitForgetsEndedClaims: also where it calls hardly any.
func TestRateLimitForgetsEndedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { forgetsEndedClaims(t, limit(t, 0, 1).Middleware(ok), func() {}) })
}

// forgetsEndedClaims proves that a limit forgets the messages that waited for it and went back to the broker with their claims,
// of which each rebalance brings as many again. end lets its handlers return.
func forgetsEndedClaims(t *testing.T, limited consumer.Handler, end func()) {
	t.Helper()
	const rounds, messages = 100, 200
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
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
	end()
	stop()
}
