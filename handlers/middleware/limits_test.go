package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// consume runs a consumer of all topics of b until stop is called, which returns its figures.
func consume(t *testing.T, b *membroker.Broker, topics []string, cfg consumer.Config) (c *consumer.Consumer,
	stop func() consumer.Stats) {
	t.Helper()
	cfg.Source = b.Source(membroker.SourceConfig{Topics: topics})
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() consumer.Stats {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return c.Stats()
	}
}

func write(t *testing.T, b *membroker.Broker, topic string, n int, key func(int) []byte) {
	t.Helper()
	for i := range n {
		if err := b.Produce(broker.Outgoing{Topic: topic, Key: key(i), Value: fmt.Appendf(nil, "%s %d", topic, i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func noKey(int) []byte { return nil }

// A slow handler that is limited leaves the workers to the others, its messages come in their turn, and nothing is an attempt.
func TestConcurrencyLimit(t *testing.T) {
	for _, leased := range []bool{false, true} {
		t.Run(fmt.Sprint("leased ", leased), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"slow": 1, "quick": 1}, Leased: leased, Lease: time.Minute})
				write(t, b, "slow", 100, noKey)
				write(t, b, "quick", 1000, noKey)
				l, err := middleware.NewConcurrencyLimit(2)
				if err != nil {
					t.Fatal(err)
				}
				var running, most, slow, quick atomic.Int64
				slowly := l.Middleware(func(_ context.Context, m *consumer.Message) error {
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					if m.Runs != 0 {
						t.Errorf("%d runs", m.Runs)
					}
					time.Sleep(time.Second)
					running.Add(-1)
					slow.Add(1)
					return nil
				})
				_, stop := consume(t, b, []string{"slow", "quick"}, consumer.Config{
					Pool: consumer.Pool{Min: 4, Max: 4}, Retry: consumer.Retry{MaxAttempts: 2},
					Handler: func(ctx context.Context, m *consumer.Message) error {
						if strings.HasPrefix(string(m.Value), "slow") {
							return slowly(ctx, m)
						}
						time.Sleep(time.Millisecond)
						quick.Add(1)
						return nil
					}})
				time.Sleep(5 * time.Second)
				if quick.Load() != 1000 || slow.Load() > 10 {
					t.Errorf("%d quick ones and %d slow ones after 5 s", quick.Load(), slow.Load())
				}
				time.Sleep(50 * time.Second)
				s := stop()
				if slow.Load() != 100 || most.Load() != 2 {
					t.Errorf("%d of 100 slow ones, %d at once", slow.Load(), most.Load())
				}
				if s.Handled != 1100 || s.Failed != 0 || s.InFlight != 0 || s.Deferred < 90 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// The limit can be changed, and what waits when the stop comes goes back.
func TestConcurrencyLimitSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		write(t, b, "in", 200, noKey)
		l, err := middleware.NewConcurrencyLimit(1)
		if err != nil {
			t.Fatal(err)
		}
		var running, most, calls atomic.Int64
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 16, Max: 16},
			Handler: l.Middleware(func(context.Context, *consumer.Message) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				calls.Add(1)
				time.Sleep(time.Second)
				running.Add(-1)
				return nil
			})})
		time.Sleep(10*time.Second + time.Millisecond)
		if most.Load() != 1 || calls.Load() != 11 {
			t.Errorf("limit 1: %d at once, %d calls", most.Load(), calls.Load())
		}
		if err := l.Set(8); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if most.Load() != 8 || calls.Load() < 11+5*8-8 {
			t.Errorf("limit 8: %d at once, %d calls", most.Load(), calls.Load())
		}
		s := stop()
		if s.InFlight != 0 || s.Handled+b.Unsettled("group") != 200 {
			t.Errorf("%d unsettled, stats %+v", b.Unsettled("group"), s)
		}
		if err := l.Set(0); err == nil {
			t.Error("0 was accepted")
		}
	})
}

// In an order a deferred message keeps its lane.
func TestConcurrencyLimitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 2}})
		write(t, b, "in", 600, func(i int) []byte { return fmt.Appendf(nil, "k%d", i%30) })
		l, err := middleware.NewConcurrencyLimit(5)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		last := map[string]int64{}
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Order: consumer.OrderKey,
			Handler: l.Middleware(func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if before, seen := last[string(m.Key)]; seen && m.Offset < before {
					t.Errorf("%s: offset %d after %d", m.Key, m.Offset, before)
				}
				last[string(m.Key)] = m.Offset
				return nil
			})})
		time.Sleep(time.Minute)
		if s := stop(); s.Handled != 600 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Each key keeps to its rate, and does not wait for others; nothing is an attempt.
func TestKeyRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		write(t, b, "in", 500, func(i int) []byte {
			if i%5 == 0 {
				return nil
			}
			return fmt.Appendf(nil, "k%d", i%5)
		})
		l, err := middleware.NewKeyRateLimit(10, 2)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var mu sync.Mutex
		times := map[string][]time.Duration{}
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Max: 8}, Retry: consumer.Retry{MaxAttempts: 1},
			Handler: l.Middleware(func(_ context.Context, m *consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				times[string(m.Key)] = append(times[string(m.Key)], time.Since(start))
				return nil
			})})
		time.Sleep(time.Minute)
		if s := stop(); s.Handled != 500 || s.Failed != 0 {
			t.Errorf("stats %+v", s)
		}
		for key, at := range times {
			took := at[len(at)-1]
			if key == "" && took > 100*time.Millisecond || key != "" && (took < 9800*time.Millisecond || took > 13*time.Second) {
				t.Errorf("100 of key %q took %v", key, took)
			}
		}
	})
}

// What waits for a key is called in its turn: it does not look at each token whether that is its own, which would be as many
// calls as half the square of their number. Nor does it once the limit is another.
func TestKeyRateLimitCallsEachOnce(t *testing.T) {
	for name, set := range map[string]func(*middleware.KeyRateLimit) error{
		"as it was": func(*middleware.KeyRateLimit) error { return nil },
		"changed":   func(l *middleware.KeyRateLimit) error { return l.Set(200, 1) },
		"by name":   func(l *middleware.KeyRateLimit) error { return l.Change(map[string]float64{"per_second": 200}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 1000
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				l, err := middleware.NewKeyRateLimit(100, 1)
				if err != nil {
					t.Fatal(err)
				}
				limited := l.Middleware(ok)
				var calls atomic.Int64
				_, stop := consume(t, b, []string{"in"}, consumer.Config{Budget: broker.Budget{Messages: n, Bytes: 1 << 20},
					Handler: func(ctx context.Context, m *consumer.Message) error {
						calls.Add(1)
						return limited(ctx, m)
					}})
				write(t, b, "in", n, func(int) []byte { return []byte("k") })
				time.Sleep(time.Second)
				if err := set(l); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if s := stop(); s.Handled != n || calls.Load() > 4*n {
					t.Errorf("%d of %d handled, in %d calls", s.Handled, n, calls.Load())
				}
			})
		})
	}
}

// Keys that are quiet are forgotten.
func TestKeyRateLimitForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := middleware.NewKeyRateLimit(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := l.Middleware(ok)
		for i := range 100_000 {
			m := message(1)
			m.Key = fmt.Appendf(nil, "%d", i)
			if err := h(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if n := l.Keys(); n > 5000 {
			t.Errorf("%d keys are remembered", n)
		}
		if err := l.Set(-1, 1); err == nil {
			t.Error("a negative rate was accepted")
		}
		if _, err := middleware.NewKeyRateLimit(1, 0); err == nil {
			t.Error("no burst was accepted")
		}
	})
}

// A Defer is known as one, however it is wrapped.
// A key that had no limit for a while has the one that is set then.
func TestKeyRateLimitAfterNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := middleware.NewKeyRateLimit(math.Inf(1), 1)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		handle := l.Middleware(func(context.Context, *consumer.Message) error { calls++; return nil })
		call := func(want int) {
			t.Helper()
			calls = 0
			for range 100 {
				if err := handle(t.Context(), &consumer.Message{Key: []byte("k")}); err != nil && !consumer.IsDeferred(err) {
					t.Fatal(err)
				}
			}
			if calls != want {
				t.Errorf("%d calls of 100 begin at %v, want %d", calls, l.Settings(), want)
			}
		}
		call(100)
		if err := l.Set(1, 5); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		call(5)
		if err := l.Set(math.Inf(1), 1); err != nil {
			t.Fatal(err)
		}
		call(100)
	})
}

func TestIsDeferred(t *testing.T) {
	deferred := consumer.Defer(time.Second, nil)
	if !consumer.IsDeferred(fmt.Errorf("outer: %w", deferred)) || consumer.IsDeferred(errors.New("x")) || consumer.IsDeferred(nil) {
		t.Error("IsDeferred is wrong")
	}
}

// A million keys that are slow to get their tokens back are not all remembered; the one that was used last is.
func TestKeyRateLimitIsBounded(t *testing.T) {
	l, err := middleware.NewKeyRateLimit(0.001, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := l.Middleware(func(context.Context, *consumer.Message) error { return nil })
	call := func(key string) error { return h(t.Context(), &consumer.Message{Key: []byte(key)}) }
	most := 0
	for i := range 300_000 {
		if err := call(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		most = max(most, l.Keys())
	}
	if most > middleware.MaxKeys {
		t.Errorf("%d keys are remembered, want at most %d", most, middleware.MaxKeys)
	}
	for i := 300_000 - middleware.MaxKeys/2; i < 300_000; i++ {
		if err := call(strconv.Itoa(i)); !consumer.IsDeferred(err) {
			t.Fatalf("key %d, one of the last, is forgotten: %v", i, err)
		}
	}
}
