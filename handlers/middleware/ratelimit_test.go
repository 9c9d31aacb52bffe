package middleware_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
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

// pass calls h for a message until it is not deferred, or ctx ends.
func pass(ctx context.Context, h consumer.Handler, token uint64) error {
	m := message(1)
	m.Token = token
	for {
		if err := h(ctx, m); !consumer.IsDeferred(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func ok(context.Context, *consumer.Message) error { return nil }

// 100 workers together keep to the rate.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limit(t, 10, 5).Middleware(ok)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 105 {
			wg.Go(func() {
				if err := pass(t.Context(), h, uint64(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+10*time.Millisecond {
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
		for i := range 11 { // the burst has one; ten wait
			wg.Go(func() {
				if err := pass(t.Context(), h, uint64(i)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		if err := l.Set(10, 1); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if took := time.Since(start) - time.Minute; took < time.Second || took > time.Second+10*time.Millisecond {
			t.Errorf("ten calls at 10/s took %v after the change, want 1s", took)
		}
		if err := l.Set(math.Inf(1), 1); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for range 1000 {
			if err := h(t.Context(), message(1)); err != nil {
				t.Fatal(err)
			}
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
		for pass(ctx, h, 1) == nil {
		}
		wg.Wait()
		if calls < 29 || calls > 31 {
			t.Errorf("%d calls in 20s at 1/s with a burst of 10, want 30", calls)
		}
	})
}

// A handler that is limited leaves the workers to the others, its messages come in their order, and nothing is an attempt.
func TestRateLimitHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"slow": 1, "quick": 1}})
		write(t, b, "slow", 60, noKey)
		write(t, b, "quick", 1000, noKey)
		var slow, quick atomic.Int64
		limited := limit(t, 1, 1).Middleware(func(_ context.Context, m *consumer.Message) error {
			if n := slow.Add(1); m.Offset != n-1 || m.Runs != 0 {
				t.Errorf("message %d is number %d, after %d runs", m.Offset, n, m.Runs)
			}
			return nil
		})
		_, stop := consume(t, b, []string{"slow", "quick"}, consumer.Config{
			Pool: consumer.Pool{Min: 1, Max: 1}, Retry: consumer.Retry{MaxAttempts: 2},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if strings.HasPrefix(string(m.Value), "slow") {
					return limited(ctx, m)
				}
				time.Sleep(time.Millisecond)
				quick.Add(1)
				return nil
			}})
		time.Sleep(5 * time.Second)
		if quick.Load() != 1000 || slow.Load() > 7 {
			t.Errorf("%d quick ones and %d slow ones after 5 s", quick.Load(), slow.Load())
		}
		time.Sleep(time.Minute)
		if s := stop(); slow.Load() != 60 || s.Handled != 1060 || s.Failed != 0 || s.InFlight != 0 {
			t.Errorf("%d of 60 slow ones; %+v", slow.Load(), s)
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
	l, err := middleware.NewRateLimit(1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := l.Middleware(func(context.Context, *consumer.Message) error { return nil })
	first, second := &consumer.Message{Token: 1}, &consumer.Message{Token: 2}
	fmt.Println("waits:", consumer.IsDeferred(h(context.Background(), first)), consumer.IsDeferred(h(context.Background(), second)))
	_ = l.Set(5000, 10) // at any time
	// Output: waits: false true
}

// 0 per second holds all calls until Set, those for which a burst was saved up, too.
func TestRateLimitOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range map[string]*middleware.RateLimit{"new": limit(t, 0, 3), "set": limit(t, 10, 3)} {
			if err := l.Set(0, 3); err != nil && name == "set" {
				t.Fatal(err)
			}
			h := l.Middleware(ok)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := pass(ctx, h, 1); err == nil {
				t.Errorf("%s: a call began", name)
			}
			cancel()
			if err := l.Set(10, 3); err != nil {
				t.Fatal(err)
			}
			if err := pass(t.Context(), h, 1); err != nil {
				t.Errorf("%s: after Set: %v", name, err)
			}
		}
	})
}
