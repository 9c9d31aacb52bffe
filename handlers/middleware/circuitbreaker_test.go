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

// TestCircuitBreakerCounts: calls of the window, by when they ended, and by their share.
func TestCircuitBreakerCounts(t *testing.T) {
	for name, c := range map[string]struct {
		calls string // good, bad, or s: a second's pause
		want  string
	}{
		"too few":              {"bbb", "closed"},
		"enough":               {"bbbb", "open"},
		"half of them":         {"ggbgbb", "open"},
		"less than half":       {"gggbbgbg", "closed"},
		"in a row":             {"gggggggggbbbb", "open"},
		"nearly in a row":      {"gggggggggbbbgb", "closed"},
		"in a row, far apart":  {"bsssbsssbssssssssssssb", "open"},
		"not in a row, so far": {"bsssbsssbssssssssssssgb", "closed"},
		"in the window":        {"bsssbsssbsssb", "open"},
		"the good are gone":    {"gggggggggssssssssssssbb" + "gbb", "open"},
		"the bad are gone":     {"bbbssssssssssssgbg", "closed"},
		"what opened it, once": {"bbbbssssssssssssg" + "bbb", "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := stateAfter(t, c.calls, 0); got != c.want {
					t.Errorf("after %s it is %s, want %s", c.calls, got, c.want)
				}
			})
		})
	}
}

// stateAfter is a breaker's state after calls: g is a good one, b a bad one, r one that is refused and asks to wait for after.
// s is a second without any.
func stateAfter(t *testing.T, calls string, after time.Duration) string {
	t.Helper()
	b := breaker(t, middleware.BreakerConfig{MinCalls: 4, RetryWhenOpen: true})
	for _, x := range calls {
		if x == 's' {
			time.Sleep(time.Second)
			continue
		}
		_ = b.Middleware(func(context.Context, *consumer.Message) error {
			switch x {
			case 'r':
				return consumer.Overloaded(errDown, after)
			case 'b':
				return errDown
			}
			return nil
		})(t.Context(), message(1))
	}
	return b.State()
}

// TestCircuitBreakerOverloaded: what refuses some calls because it has enough to do works, and does not open it; what refuses all
// of them, for a second and for as long as it asks to wait, does.
func TestCircuitBreakerOverloaded(t *testing.T) {
	many := strings.Repeat("r", 40)
	for name, c := range map[string]struct {
		calls string // good, refused, bad, or s: a second's pause
		after time.Duration
		want  string
	}{
		"all":                         {"rrrsr", 0, "open"},
		"all, for a moment":           {many, 0, "closed"},
		"all, now":                    {"ggggggggggrrrsr", 0, "open"},
		"as long as it asks":          {"gggrrrssr", 2 * time.Second, "open"},
		"shorter than it asks":        {"gggrrrsr", 2 * time.Second, "closed"},
		"longer than the window":      {"gggrrrssssssssssr", time.Hour, "open"},
		"too few":                     {"gggrrsr", 0, "closed"},
		"few, far apart":              {"ggg" + strings.Repeat("ssssssssssssr", 4), 0, "open"},
		"refused and failed":          {"gggrbrsb", 0, "open"},
		"one in ten gets through":     {"g" + many[:9] + "sg" + many[:9] + "sg" + many[:9] + "sg" + many[:9] + "sr", 0, "closed"},
		"one in ten got through":      {"gg" + many[:8] + "gg" + many[:8] + "s" + many, 0, "open"},
		"a burst, the good come last": {strings.Repeat("s", 20) + many[:30] + "gg" + many[:30], 0, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := stateAfter(t, c.calls, c.after); got != c.want {
					t.Errorf("after %s it is %s, want %s", c.calls, got, c.want)
				}
			})
		})
	}
}

// TestCircuitBreakerProbes: so many at once and no more; all have to succeed, and each that fails is no attempt.
func TestCircuitBreakerProbes(t *testing.T) {
	for _, bad := range []int32{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker(t, middleware.BreakerConfig{MinCalls: 1, Probes: 3})
			_ = b.Middleware(func(context.Context, *consumer.Message) error { return errDown })(t.Context(), message(1))
			time.Sleep(11 * time.Second)
			var calls, put atomic.Int32
			h := b.Middleware(func(context.Context, *consumer.Message) error {
				n := calls.Add(1)
				time.Sleep(time.Second)
				if n <= bad {
					return errDown
				}
				return nil
			})
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if err := h(t.Context(), message(1)); consumer.IsDeferred(err) {
						put.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			if n := calls.Load(); n != 3 {
				t.Errorf("%d probes at once, want 3", n)
			}
			time.Sleep(time.Second)
			want := "closed"
			if bad > 0 {
				want = "open"
			}
			if got := b.State(); got != want || put.Load() != bad {
				t.Errorf("%d of 3 fail: %s, %d were put off; want %s", bad, got, put.Load(), want)
			}
			wg.Wait()
			if got := b.State(); got != "closed" || calls.Load() != 10 {
				t.Errorf("in the end %s, %d calls", got, calls.Load())
			}
		})
	}
}

// TestCircuitBreakerDeferredProbe: a probe that something inside of the breaker puts off tells nothing.
func TestCircuitBreakerDeferredProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1})
		_ = b.Middleware(func(context.Context, *consumer.Message) error { return errDown })(t.Context(), message(1))
		time.Sleep(11 * time.Second)
		err := b.Middleware(func(context.Context, *consumer.Message) error { return consumer.Defer(0, nil) })(t.Context(), message(1))
		if got := b.State(); got != "half-open" || !consumer.IsDeferred(err) {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// TestCircuitBreakerTellsInTurn: OnChange may ask the breaker.
func TestCircuitBreakerTellsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *middleware.CircuitBreaker
		var states []string
		b = breaker(t, middleware.BreakerConfig{MinCalls: 1, OnChange: func(s string) { states = append(states, s+" "+b.State()) }})
		_ = b.Middleware(func(context.Context, *consumer.Message) error { return errDown })(t.Context(), message(1))
		time.Sleep(11 * time.Second)
		_ = b.Middleware(ok)(t.Context(), message(1))
		if got := strings.Join(states, ", "); got != "open open, half-open half-open, closed closed" {
			t.Error(got)
		}
	})
}

// TestCircuitBreakerToldBadly: an OnChange that panics fails no call, and keeps the breaker's leave from nobody: it closes again.
func TestCircuitBreakerToldBadly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OnChange: func(string) { panic("no pager") }})
		call := func(h consumer.Handler) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = fmt.Errorf("panic: %v", v)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return b.Middleware(h)(ctx, message(1))
		}
		if err := call(func(context.Context, *consumer.Message) error { return errDown }); !errors.Is(err, errDown) {
			t.Error(err)
		}
		time.Sleep(11 * time.Second)
		for range 2 {
			if err := call(ok); err != nil {
				t.Error(err)
			}
		}
		if got := b.State(); got != "closed" {
			t.Error(got)
		}
	})
}

// TestCircuitBreakerToldByGoexit: an OnChange that ends the goroutine of the call which has just got leave for a probe does not
// keep that leave: else all calls wait for it for ever.
func TestCircuitBreakerToldByGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OnChange: func(s string) {
			if s == "half-open" {
				runtime.Goexit()
			}
		}})
		call := func(h consumer.Handler) (err error) {
			err = consumer.ErrGoexit
			var wg sync.WaitGroup
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = b.Middleware(h)(ctx, message(1))
			})
			wg.Wait()
			return err
		}
		if err := call(func(context.Context, *consumer.Message) error { return errDown }); !errors.Is(err, errDown) {
			t.Error(err)
		}
		time.Sleep(11 * time.Second)
		if err := call(ok); !errors.Is(err, consumer.ErrGoexit) {
			t.Error(err)
		}
		if err := call(ok); err != nil {
			t.Error(err)
		}
		if got := b.State(); got != "closed" {
			t.Error(got)
		}
	})
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

// A probe of a batch that failed as a whole is put off as a whole: what its handler was content with, too.
func TestCircuitBreakerPutsOffWhatFailedBesideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OpenFor: time.Second})
		h := consumer.AroundBatch(b.Middleware)(func(context.Context, []*consumer.Message) error {
			return errors.Join(&consumer.BatchError{Errs: []error{errDown, nil}}, errors.New("the file is not closed"))
		})
		ms := []*consumer.Message{message(1), message(2)}
		for range 2 {
			if err := h(t.Context(), ms); b.State() != "open" || err == nil {
				t.Fatalf("%s after %v", b.State(), err)
			} else if each := consumer.BatchErrors(err, 2); each[0] == nil || each[1] == nil {
				t.Errorf("acked: %v", each)
			}
		}
	})
}

// TestCircuitBreakerAroundPanicWithBatchError: a batch handler that panics with the error that it met has failed, as with any
// other value, also where a Recover within makes an error of that.
func TestCircuitBreakerAroundPanicWithBatchError(t *testing.T) {
	for name, value := range map[string]error{
		"alone":         &consumer.BatchError{Errs: []error{errDown}},
		"all are done":  &consumer.BatchError{Errs: make([]error, 1)},
		"a nil pointer": (*consumer.BatchError)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := breaker(t, middleware.BreakerConfig{MinCalls: 1})
				h := consumer.AroundBatch(consumer.Chain(b.Middleware, middleware.Recover()))(
					func(context.Context, []*consumer.Message) error { panic(value) })
				ms := []*consumer.Message{message(1)}
				if err := h(t.Context(), ms); err == nil {
					t.Error("the call has not failed")
				}
				if b.State() != "open" {
					t.Errorf("it is %s", b.State())
				}
				time.Sleep(time.Minute)
				if err := h(t.Context(), ms); !consumer.IsDeferred(consumer.BatchErrors(err, 1)[0]) {
					t.Errorf("the probe that failed is not put off: %v", err)
				}
			})
		})
	}
}

// A probe that failed is no attempt, though OnProbe panics when it is told of it.
func TestCircuitBreakerOnProbeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker(t, middleware.BreakerConfig{MinCalls: 1, OnProbe: func(*consumer.Message, error) { panic("no such counter") }})
		h := consumer.Chain(middleware.Recover(), b.Middleware)(func(context.Context, *consumer.Message) error { return errDown })
		if err := h(t.Context(), message(1)); err == nil || b.State() != "open" {
			t.Fatalf("%s after %v", b.State(), err)
		}
		time.Sleep(time.Minute)
		if err := h(t.Context(), message(1)); !consumer.IsDeferred(err) || b.State() != "open" {
			t.Errorf("%s after %v, want the probe put off", b.State(), err)
		}
	})
}
