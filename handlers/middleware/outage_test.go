package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
	"github.com/rs/zerolog"
)

// A call that has waited is not made with what is left of the consumer's timeout: it is put off, leaves its place to another, and
// has all of its time when it comes again.
func TestCircuitBreakerCallsAnewAfterAWait(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		for _, inner := range []bool{false, true} {
			t.Run(fmt.Sprint(order, inner), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { callsAnew(t, order, inner) })
			})
		}
	}
}

// callsAnew has a downstream that is down for a minute, and takes 6 s of the 12 s that there are then.
func callsAnew(t *testing.T, order consumer.Order, inner bool) {
	b := membroker.New(membroker.Config{})
	br := breaker(t, middleware.BreakerConfig{})
	up := time.Now().Add(time.Minute)
	var first atomic.Int64
	var cut atomic.Int32
	h := br.Middleware(func(ctx context.Context, _ *consumer.Message) error {
		if time.Now().Before(up) {
			return errDown
		}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) < 10*time.Second {
			t.Errorf("called with %v left, %v", time.Until(end), ok)
		}
		select {
		case <-ctx.Done():
			cut.Add(1)
			return ctx.Err()
		case <-time.After(6 * time.Second):
		}
		first.CompareAndSwap(0, int64(time.Since(up)))
		return nil
	})
	cfg := consumer.Config{Handler: h, Timeout: 12 * time.Second, Order: order, Pool: consumer.Pool{Min: 1, Max: 16}}
	if inner {
		cfg.Handler, cfg.Timeout = middleware.Timeout(12*time.Second)(h), 0
	}
	dead := run(t, b, cfg, 3*time.Minute, 200*time.Millisecond, 60)
	if n := time.Duration(first.Load()); dead > 0 || cut.Load() > 0 || n == 0 || n > 20*time.Second {
		t.Errorf("%d dead letters, %d calls cut, the first success %v after it is up", dead, cut.Load(), n)
	}
}

// run has a consumer work for so long on messages of so many keys, one each interval. It returns how many are dead letters.
func run(t *testing.T, b *membroker.Broker, cfg consumer.Config, d, each time.Duration, keys int) (dead int) {
	t.Helper()
	letters := b.Publisher()
	cfg.Source = b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	cfg.Logger = zerolog.Nop()
	cfg.DeadLetter = &consumer.DeadLetter{Publisher: letters, Topic: "dead"}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	for i := range int(d / each) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: fmt.Appendf(nil, "k%d", i%keys), Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(each)
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := letters.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return len(b.Messages("dead"))
}

// TestCircuitBreakerOpensWhenAllHangs: however long calls take until their timeout ends them, and however few workers there are.
func TestCircuitBreakerOpensWhenAllHangs(t *testing.T) {
	for _, workers := range []int{1, 4, 64} {
		for _, timeout := range []time.Duration{3 * time.Second, 9500 * time.Millisecond, 12 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprint(workers, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var opened, calls atomic.Int32
					br := breaker(t, middleware.BreakerConfig{OnChange: func(s string) {
						if s == "open" {
							opened.Add(1)
						}
					}})
					h := br.Middleware(func(ctx context.Context, _ *consumer.Message) error {
						calls.Add(1)
						<-ctx.Done()
						return ctx.Err()
					})
					run(t, membroker.New(membroker.Config{}), consumer.Config{Handler: h, Timeout: timeout,
						Pool: consumer.Pool{Min: workers, Max: workers}}, 20*time.Minute, time.Second, 60)
					// Those that open it, those that were under way then, and its probes.
					most := int32(20+workers) + int32(20*time.Minute/(timeout+10*time.Second))
					if opened.Load() == 0 || calls.Load() > most {
						t.Errorf("it opened %d times, after %d calls; want %d at most", opened.Load(), calls.Load(), most)
					}
				})
			})
		}
	}
}

// TestCircuitBreakerOutage: ten minutes in which nothing is answered, or all is refused, dead-letter nothing that is good: what
// opens the breaker is an attempt, and its probes are none. In an order, too, where those behind them wait.
func TestCircuitBreakerOutage(t *testing.T) {
	for name, hangs := range map[string]bool{"hangs": true, "refuses": false} {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down, up := time.Now().Add(time.Minute), time.Now().Add(11*time.Minute)
					var first atomic.Int64
					var probes atomic.Int32
					br := breaker(t, middleware.BreakerConfig{OnProbe: func(*consumer.Message, error) { probes.Add(1) }})
					h := br.Middleware(func(ctx context.Context, _ *consumer.Message) error {
						at := time.Now()
						if at.After(down) && at.Before(up) {
							if !hangs {
								return errDown
							}
							<-ctx.Done()
							return ctx.Err()
						}
						time.Sleep(50 * time.Millisecond)
						if at.After(up) {
							first.CompareAndSwap(0, int64(time.Since(up)))
						}
						return nil
					})
					b := membroker.New(membroker.Config{})
					dead := run(t, b, consumer.Config{Handler: h, Order: order, Timeout: 15 * time.Second, Pool: consumer.Pool{Min: 1, Max: 16},
						Retry: consumer.Retry{MaxAttempts: 5}}, 13*time.Minute, 100*time.Millisecond, 60)
					if n := time.Duration(first.Load()); dead > 0 || n == 0 || n > 30*time.Second || probes.Load() < 20 {
						t.Errorf("%d dead letters, the first success %v after it is up, %d probes failed", dead, n, probes.Load())
					}
				})
			})
		}
	}
}

// TestCircuitBreakerPoison: messages that fail by themselves open the breaker, and do not keep it open: others get to be the
// probe, and then these use up their attempts.
func TestCircuitBreakerPoison(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var handled, opened atomic.Int32
				br := breaker(t, middleware.BreakerConfig{MinCalls: 2, OnChange: func(s string) {
					if s == "open" {
						opened.Add(1)
					}
				}})
				h := br.Middleware(func(_ context.Context, m *consumer.Message) error {
					if n, _ := strconv.Atoi(string(m.Value)); n < 4 {
						return errDown
					}
					handled.Add(1)
					return nil
				})
				b := membroker.New(membroker.Config{})
				dead := run(t, b, consumer.Config{Handler: h, Order: order, Pool: consumer.Pool{Min: 1, Max: 2},
					Retry: consumer.Retry{MaxAttempts: 5}}, time.Hour, time.Second, 60)
				if dead != 4 || opened.Load() == 0 || handled.Load() < 3500 {
					t.Errorf("%d of 4 are dead letters, it opened %d times, %d others were handled", dead, opened.Load(), handled.Load())
				}
			})
		})
	}
}

// In a real consumer an outage of a minute uses up no attempts when calls wait; with RetryWhenOpen it does, after the breaker's
// time.
func TestCircuitBreakerInAConsumer(t *testing.T) {
	for _, retry := range []bool{false, true} {
		t.Run(fmt.Sprintf("RetryWhenOpen=%v", retry), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { outage(t, retry, consumer.Config{}) })
		})
	}
}

// TestCircuitBreakerWaitsLongerThanTheTimeout: a call that waits for the breaker when the consumer's timeout ends it was no
// attempt, and waits again; in batches, too.
func TestCircuitBreakerWaitsLongerThanTheTimeout(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%v", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := consumer.Config{Timeout: 4 * time.Second}
				if batch {
					cfg.Batch = &consumer.Batch{Size: 10}
				}
				outage(t, false, cfg)
			})
		})
	}
}

// TestCircuitBreakerOfFewMessages: an outage in which a message comes each minute dead-letters those that open the breaker, and
// no other, and none where MinCalls is below the attempts of one. It counted the failures of its window alone, never opened, and
// 24 of 25 messages were dead letters.
func TestCircuitBreakerOfFewMessages(t *testing.T) {
	for _, tt := range []struct{ minCalls, dead int }{{0, 2}, {4, 0}} {
		synctest.Test(t, func(t *testing.T) {
			down, up := time.Now().Add(5*time.Minute), time.Now().Add(30*time.Minute)
			var late atomic.Int32
			br := breaker(t, middleware.BreakerConfig{MinCalls: tt.minCalls})
			h := br.Middleware(func(context.Context, *consumer.Message) error {
				at := time.Now()
				if at.After(down) && at.Before(up) {
					return errDown
				}
				if !at.Before(up) {
					late.Add(1)
				}
				return nil
			})
			cfg := consumer.Config{Handler: h, Pool: consumer.Pool{Min: 1, Max: 4}}
			dead := run(t, membroker.New(membroker.Config{}), cfg, 40*time.Minute, time.Minute, 60)
			if dead != tt.dead || late.Load() != int32(34-dead) {
				t.Errorf("%d calls open it: %d dead letters, %d handled since it is up; want %d", tt.minCalls, dead, late.Load(), tt.dead)
			}
		})
	}
}

// TestCircuitBreakerProbeOfABatch: of a batch that was a probe, and of which some messages failed, only those are put off. What
// was done is acked, and what is given up is a dead letter, where all of it came again with each probe. And a batch in which one
// is given up, or skipped, is no success where the others fail.
func TestCircuitBreakerProbeOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(5 * time.Minute)
		var mu sync.Mutex
		calls := map[string]int{}
		var opened atomic.Int32
		br := breaker(t, middleware.BreakerConfig{MinCalls: 1, OnChange: func(s string) {
			if s == "open" {
				opened.Add(1)
			}
		}})
		h := func(_ context.Context, ms []*consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			each := &consumer.BatchError{Errs: make([]error, len(ms))}
			for i, m := range ms {
				calls[string(m.Value)]++
				switch v, _ := strconv.Atoi(string(m.Value)); {
				case v%4 == 1:
					each.Errs[i] = consumer.Permanent(errors.New("bad"))
				case v%4 == 2:
					each.Errs[i] = consumer.Skip("old")
				case v%4 == 3 && time.Now().Before(up):
					each.Errs[i] = errDown
				}
			}
			return each
		}
		cfg := consumer.Config{Pool: consumer.Pool{Min: 1, Max: 1}, Batch: &consumer.Batch{Size: 4, Linger: time.Minute,
			Handler: consumer.AroundBatch(br.Middleware)(h)}}
		dead := run(t, membroker.New(membroker.Config{}), cfg, 10*time.Minute, 10*time.Second, 60)
		if dead != 15 || opened.Load() < 2 {
			t.Errorf("%d dead letters, want those that are bad; it opened %d times", dead, opened.Load())
		}
		for v, n := range calls {
			if i, _ := strconv.Atoi(v); n > 1 && i%4 != 3 {
				t.Errorf("%s was handled %d times", v, n)
			}
		}
	})
}

// TestCircuitBreakerHoldsNoStop: calls that wait for the breaker have not begun: a stop gives their messages back at once. They
// held their workers, and with them the drain, for all of its time.
func TestCircuitBreakerHoldsNoStop(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%v", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stopWhileOpen(t, batch) })
		})
	}
}

func stopWhileOpen(t *testing.T, batch bool) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 4}})
	for range 40 {
		if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
			t.Fatal(err)
		}
	}
	var calls atomic.Int32
	br := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: time.Hour})
	h := br.Middleware(func(context.Context, *consumer.Message) error { calls.Add(1); return errDown })
	cfg := consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: h,
		Pool: consumer.Pool{Min: 4, Max: 4}, DrainTimeout: time.Minute}
	if batch {
		cfg.Handler, cfg.Batch = nil, &consumer.Batch{Size: 2, Handler: consumer.AroundBatch(br.Middleware)(
			func(context.Context, []*consumer.Message) error { calls.Add(1); return errDown })}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	time.Sleep(time.Minute) // all workers wait
	before := calls.Load()
	stop()
	begun := time.Now()
	if err := <-done; err != nil || time.Since(begun) > time.Second || calls.Load() != before {
		t.Errorf("stopped after %v with %d calls more: %v", time.Since(begun), calls.Load()-before, err)
	}
}

func outage(t *testing.T, retry bool, cfg consumer.Config) {
	const n = 200
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 4, "dead": 1}})
	for range n {
		if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
			t.Fatal(err)
		}
	}
	var d downstream
	d.down.Store(true)
	time.AfterFunc(time.Minute, func() { d.down.Store(false) })
	br := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: 5 * time.Second, RetryWhenOpen: retry})
	var mu sync.Mutex
	delays := map[time.Duration]int{}
	letters := b.Publisher()
	cfg.Source = b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	cfg.Handler, cfg.Pool, cfg.Retry = br.Middleware(d.handle), consumer.Pool{Max: 4}, consumer.Retry{MaxAttempts: 3}
	cfg.DeadLetter = &consumer.DeadLetter{Publisher: letters, Topic: "dead"}
	if cfg.Batch != nil {
		cfg.Handler = nil
		cfg.Batch.Handler = consumer.AroundBatch(br.Middleware)(func(ctx context.Context, ms []*consumer.Message) error {
			return d.handle(ctx, ms[0])
		})
	}
	cfg.Observers = []consumer.Observer{func(e consumer.Event) {
		if f, ok := e.(consumer.Failed); ok && errors.Is(f.Err, middleware.ErrOpen) {
			mu.Lock()
			delays[f.Delay.Round(5*time.Second)]++
			mu.Unlock()
		}
	}}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	time.Sleep(3 * time.Minute)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := letters.Close(t.Context()); err != nil {
		t.Error(err)
	}
	dead := len(b.Messages("dead"))
	t.Logf("%d of %d dead-lettered after %d calls; delays %v", dead, n, d.calls.Load(), delays)
	if b.Unsettled("group") != 0 {
		t.Errorf("%d unsettled", b.Unsettled("group"))
	}
	switch {
	case !retry && (dead > 0 || len(delays) != 0):
		t.Errorf("%d dead letters, delays %v; want none", dead, delays)
	case retry && (dead < n/2 || delays[5*time.Second] == 0):
		t.Errorf("%d dead letters, delays %v; want most, after 5s each", dead, delays)
	}
}
