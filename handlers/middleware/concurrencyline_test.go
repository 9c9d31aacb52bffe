package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

func concurrency(t *testing.T, limit int) *middleware.ConcurrencyLimit {
	t.Helper()
	l, err := middleware.NewConcurrencyLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestConcurrencyLimitOldestFirst: under a backlog to which more comes all the time, messages are handled in the order in which
// they came: who looks for itself keeps its place, and a new one does not take the slot of one that was called.
func TestConcurrencyLimitOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var done begun
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 16, Max: 16},
			Handler: concurrency(t, 2).Middleware(func(ctx context.Context, m *consumer.Message) error {
				time.Sleep(100 * time.Millisecond)
				return done.handle(ctx, m)
			})})
		for range 600 {
			write(t, b, "in", 4, noKey)
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		if n := done.count(); n < 1190 || n > 1202 {
			t.Errorf("%d calls in a minute, 2 at once, of a tenth of a second", n)
		}
		sorted := slices.Sorted(slices.Values(done.offsets))
		for i, o := range done.offsets {
			if d := o - sorted[i]; d < -16 || d > 16 { // that many workers do not come in order
				t.Fatalf("call %d is of offset %d, and that of offset %d is due", i, o, sorted[i])
			}
		}
	})
}

// TestLimitsOfRepeats: a turn that is kept for a message which does not come, since a Dedup before the limit finds that it is a
// repeat, is soon the next one's.
func TestLimitsOfRepeats(t *testing.T) {
	perKey, err := middleware.NewKeyRateLimit(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, limited := range map[string]consumer.Middleware{"concurrency": concurrency(t, 1).Middleware,
		"rate": limit(t, 20, 1).Middleware, "rate of a key": perKey.Middleware} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { limitsRepeats(t, limited) }) })
	}
}

func limitsRepeats(t *testing.T, limited consumer.Middleware) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	for i := range 60 {
		id := []byte("again")
		if i >= 10 {
			id = fmt.Append(nil, i)
		}
		o := broker.Outgoing{Topic: "in", Key: []byte("k"), Headers: []broker.Header{{Key: "id", Value: id}}}
		if err := b.Produce(o); err != nil {
			t.Fatal(err)
		}
	}
	var done begun
	chain := consumer.Chain(middleware.Dedup(100, middleware.ByHeader("id")), limited)
	_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 4, Max: 4},
		Handler: chain(func(ctx context.Context, m *consumer.Message) error {
			time.Sleep(50 * time.Millisecond)
			return done.handle(ctx, m)
		})})
	time.Sleep(4 * time.Second)
	if n := done.count(); n < 51 {
		t.Errorf("%d calls in 4 s, want 51: there may be 20 a second", n)
	}
	stop()
}

// TestConcurrencyLimitBehindARateLimit: where those that are called cannot come at once, since the rate limit before it has them
// wait again, others that come have the slots meanwhile.
func TestConcurrencyLimitBehindARateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		write(t, b, "in", 1500, noKey)
		var done begun
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 64, Max: 64},
			Handler: consumer.Chain(limit(t, 10, 1).Middleware, concurrency(t, 40).Middleware)(
				func(ctx context.Context, m *consumer.Message) error {
					time.Sleep(8 * time.Second)
					return done.handle(ctx, m)
				})})
		time.Sleep(2 * time.Minute)
		if n := done.count(); n < 560 {
			t.Errorf("%d calls of 8 s in 2 min, 40 at once, want 580", n)
		}
		stop()
	})
}
