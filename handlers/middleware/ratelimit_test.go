package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

func limit(t *testing.T, perSecond float64, burst int) *middleware.RateLimit {
	t.Helper()
	l, err := middleware.NewRateLimit(perSecond, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ok(context.Context, *consumer.Message) error { return nil }

// 100 workers together keep to the rate.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limit(t, 10, 5).Middleware(ok)
		start := time.Now()
		var wg sync.WaitGroup
		for range 105 {
			wg.Go(func() {
				if err := h(t.Context(), message(1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+time.Millisecond {
			t.Errorf("105 calls at 10/s with a burst of 5 took %v, want 10s", took)
		}
	})
}

// A new rate is for those that wait already, too; 0 holds all, and infinity lets all pass.
func TestRateLimitSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, 0, 1)
		h := l.Middleware(ok)
		start := time.Now()
		var wg sync.WaitGroup
		for range 11 { // the burst has one; ten wait
			wg.Go(func() {
				if err := h(t.Context(), message(1)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Hour)
		if err := l.Set(10, 1); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if took := time.Since(start) - time.Hour; took < time.Second || took > time.Second+time.Millisecond {
			t.Errorf("ten calls at 10/s took %v after the change, want 1s", took)
		}
		if err := l.Set(math.Inf(1), 1); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for range 1000 {
			_ = h(t.Context(), message(1))
		}
		if took := time.Since(now); took != 0 {
			t.Errorf("without a limit 1,000 calls took %v", took)
		}
	})
}

// Changing the limit again and again gives no extra calls, and starves none.
func TestRateLimitSetOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, 1, 10)
		calls := 0
		h := l.Middleware(func(context.Context, *consumer.Message) error { calls++; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(300 * time.Millisecond)
				_ = l.Set(1, 10+i%2)
			}
		})
		for h(ctx, message(1)) == nil {
		}
		wg.Wait()
		if calls < 29 || calls > 31 {
			t.Errorf("%d calls in 20s at 1/s with a burst of 10, want 30", calls)
		}
	})
}

// A context that ends while waiting: its cause, no call, and the turn is given back.
func TestRateLimitContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit(t, 1, 1)
		calls := 0
		h := l.Middleware(func(context.Context, *consumer.Message) error { calls++; return nil })
		_ = h(t.Context(), message(1))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(consumer.ErrShutdown) })
		if err := h(ctx, message(2)); !errors.Is(err, consumer.ErrShutdown) || calls != 1 {
			t.Errorf("error %v after %d calls", err, calls)
		}
		start := time.Now()
		if err := h(t.Context(), message(3)); err != nil || time.Since(start) > time.Second {
			t.Errorf("the next call: %v after %v", err, time.Since(start))
		}
	})
}

func TestRateLimitRefuses(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		burst int
	}{{-1, 1}, {math.NaN(), 1}, {1, 0}} {
		if _, err := middleware.NewRateLimit(c.rate, c.burst); err == nil {
			t.Errorf("%v, %d: accepted", c.rate, c.burst)
		}
		if err := limit(t, 1, 1).Set(c.rate, c.burst); err == nil {
			t.Errorf("Set(%v, %d): accepted", c.rate, c.burst)
		}
	}
}

func ExampleRateLimit() {
	l, err := middleware.NewRateLimit(1000, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := l.Middleware(func(context.Context, *consumer.Message) error { return nil })
	start := time.Now()
	for range 11 {
		_ = h(context.Background(), &consumer.Message{})
	}
	fmt.Println("at least 10ms:", time.Since(start) >= 10*time.Millisecond)
	_ = l.Set(5000, 10) // at any time
	// Output: at least 10ms: true
}
