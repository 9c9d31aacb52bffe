package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

func breaker(t *testing.T, c middleware.BreakerConfig) *middleware.CircuitBreaker {
	t.Helper()
	b, err := middleware.NewCircuitBreaker(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// downstream fails while down is set, and counts calls.
type downstream struct {
	down  atomic.Bool
	calls atomic.Int64
}

var errDown = errors.New("down")

func (d *downstream) handle(context.Context, *consumer.Message) error {
	d.calls.Add(1)
	if d.down.Load() {
		return errDown
	}
	return nil
}

// It opens on failures, tries again after OpenFor with one probe, and those that waited go on when the probe was good.
func TestCircuitBreakerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []string
		b := breaker(t, middleware.BreakerConfig{MinCalls: 4, OpenFor: 10 * time.Second,
			OnChange: func(s string) { states = append(states, s) }})
		var d downstream
		h := b.Middleware(d.handle)
		d.down.Store(true)
		for range 4 {
			if err := h(t.Context(), message(1)); !errors.Is(err, errDown) {
				t.Fatal(err)
			}
		}
		start := time.Now()
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 50 {
			wg.Go(func() {
				if h(t.Context(), message(1)) != nil {
					failed.Add(1)
				}
			})
		}
		time.Sleep(15 * time.Second) // one probe has failed by now
		if got := b.OpenSince(); !got.Equal(start) {
			t.Errorf("open since %v, want %v, when it first opened", got, start)
		}
		if n := d.calls.Load(); n != 5 {
			t.Errorf("%d calls came through, want 4 and a probe", n)
		}
		d.down.Store(false)
		wg.Wait()
		if took := time.Since(start).Round(time.Millisecond); took != 20*time.Second {
			t.Errorf("the others went on after %v, want 20s", took)
		}
		if f, n := failed.Load(), d.calls.Load(); f != 1 || n != 4+1+49 {
			t.Errorf("%d failed, %d calls; want 1 and 54", f, n)
		}
		if got := b.OpenSince(); !got.IsZero() {
			t.Errorf("closed, and open since %v", got)
		}
		if got := strings.Join(states, " "); got != "open half-open open half-open closed" || b.State() != "closed" {
			t.Errorf("states %s, now %s", got, b.State())
		}
	})
}

// What says that the other side works, or nothing about it, does not open it.
func TestCircuitBreakerStaysClosed(t *testing.T) {
	for name, err := range map[string]error{"permanent": consumer.Permanent(errDown), "skip": consumer.Skip("x")} {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1})
		h := b.Middleware(func(context.Context, *consumer.Message) error { return err })
		for range 10 {
			if got := h(t.Context(), message(1)); !errors.Is(got, err) {
				t.Errorf("%s: error %v", name, got)
			}
		}
		if b.State() != "closed" {
			t.Errorf("%s: %s", name, b.State())
		}
	}
	b := breaker(t, middleware.BreakerConfig{MinCalls: 1})
	for _, cause := range []error{consumer.ErrShutdown, fmt.Errorf("rebalance: %w", broker.ErrLost)} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		_ = b.Middleware(func(ctx context.Context, _ *consumer.Message) error { return ctx.Err() })(ctx, message(1))
		if b.State() != "closed" {
			t.Errorf("a call cut short by %v opened it", cause)
		}
	}
}

// Which errors count is for who makes it to say: here those of a call that was wrong do not, and permanent ones do.
func TestCircuitBreakerCountsWhatItIsTold(t *testing.T) {
	wrong := errors.New("a wrong call")
	for _, c := range []struct {
		err  error
		want string
	}{
		{wrong, "closed"},
		{consumer.Permanent(errDown), "open"},
	} {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 2, RetryWhenOpen: true,
			IsFailure: func(err error) bool { return err != nil && !errors.Is(err, wrong) }})
		h := b.Middleware(func(context.Context, *consumer.Message) error { return c.err })
		for range 3 {
			_ = h(t.Context(), message(1))
		}
		if got := b.State(); got != c.want {
			t.Errorf("after %q it is %s, want %s", c.err, got, c.want)
		}
	}
}

// A timeout, a panic and a Goexit are failures, and leave the breaker in order.
func TestCircuitBreakerFailures(t *testing.T) {
	for name, h := range map[string]consumer.Handler{
		"panic":  func(context.Context, *consumer.Message) error { panic("boom") },
		"goexit": func(context.Context, *consumer.Message) error { runtime.Goexit(); return nil },
		"timeout": middleware.Timeout(time.Millisecond)(func(ctx context.Context, _ *consumer.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}),
	} {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1})
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = b.Middleware(h)(t.Context(), message(1))
		}()
		<-done
		if b.State() != "open" {
			t.Errorf("%s: %s", name, b.State())
		}
	}
}

// A probe that is cut short gives its place to another call.
func TestCircuitBreakerProbeCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: time.Second})
		_ = b.Middleware(func(context.Context, *consumer.Message) error { return errDown })(t.Context(), message(1))
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = b.Middleware(func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() })(ctx, message(1))
		})
		synctest.Wait() // the probe is under way
		wg.Go(func() {
			if err := b.Middleware(ok)(t.Context(), message(2)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel(consumer.ErrShutdown)
		wg.Wait() // or the bubble is deadlocked
		if b.State() != "closed" {
			t.Errorf("state %s", b.State())
		}
	})
}

// The context's end ends the wait, with its cause.
func TestCircuitBreakerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: time.Hour})
		h := b.Middleware(func(context.Context, *consumer.Message) error { return errDown })
		_ = h(t.Context(), message(1))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(consumer.ErrShutdown) })
		if err := h(ctx, message(1)); !errors.Is(err, consumer.ErrShutdown) || !errors.Is(err, middleware.ErrOpen) {
			t.Errorf("error %v", err)
		}
	})
}

// A call that has waited is not made with what is left of its time: it is put off, leaves its place to another, and has all of
// its time when it comes again.
func TestCircuitBreakerCallsAnewAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: 8 * time.Second})
		down, left := true, time.Duration(0)
		h := b.Middleware(func(ctx context.Context, _ *consumer.Message) error {
			if down {
				return errDown
			}
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return nil
		})
		call := func() error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, consumer.ErrTimeout)
			defer cancel()
			return h(ctx, message(1))
		}
		_ = call()
		down = false
		if err := call(); !consumer.IsDeferred(err) || left != 0 {
			t.Errorf("after a wait: %v, called with %v left", err, left)
		}
		if err := call(); err != nil || left != 10*time.Second || b.State() != "closed" {
			t.Errorf("when it comes again: %v, called with %v left, %s", err, left, b.State())
		}
	})
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
	case !retry && (dead > 10 || len(delays) != 0): // probes that failed count: 12 in a minute, over some messages
		t.Errorf("%d dead letters, delays %v; want few, and none", dead, delays)
	case retry && (dead < n/2 || delays[5*time.Second] == 0):
		t.Errorf("%d dead letters, delays %v; want most, after 5s each", dead, delays)
	}
}

func TestCircuitBreakerRefuses(t *testing.T) {
	_, err := middleware.NewCircuitBreaker(middleware.BreakerConfig{FailureRate: 1.5, MinCalls: -1, Window: 1, OpenFor: -1,
		Probes: -1})
	for _, field := range []string{"FailureRate", "MinCalls", "Window", "OpenFor", "Probes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not told: %v", field, err)
		}
	}
}

func ExampleCircuitBreaker() {
	b, err := middleware.NewCircuitBreaker(middleware.BreakerConfig{MinCalls: 2, RetryWhenOpen: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := b.Middleware(func(context.Context, *consumer.Message) error { return errors.New("connection refused") })
	for range 3 {
		fmt.Println(h(context.Background(), &consumer.Message{}))
	}
	fmt.Println(b.State())
	// Output:
	// connection refused
	// connection refused
	// middleware: circuit breaker is open
	// open
}
