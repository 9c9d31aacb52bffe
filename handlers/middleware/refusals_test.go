package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

var errRefused = errors.New("status 429")

// TestCircuitBreakerOutageThatRefuses: four minutes in which all is answered with a 429, or a 503 with Retry-After, dead-letter
// nothing. The good calls from before had held the breaker closed for as long as its window had one, in which messages used up
// their attempts.
func TestCircuitBreakerOutageThatRefuses(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second} {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
			t.Run(fmt.Sprint(after, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down, up := time.Now().Add(time.Minute), time.Now().Add(5*time.Minute)
					var first atomic.Int64
					br := breaker(t, middleware.BreakerConfig{})
					h := br.Middleware(func(context.Context, *consumer.Message) error {
						at := time.Now()
						if at.After(down) && at.Before(up) {
							return consumer.Overloaded(errRefused, after)
						}
						time.Sleep(50 * time.Millisecond)
						if at.After(up) {
							first.CompareAndSwap(0, int64(time.Since(up)))
						}
						return nil
					})
					dead := run(t, membroker.New(membroker.Config{}), consumer.Config{Handler: h, Order: order, Timeout: 15 * time.Second,
						Pool: consumer.Pool{Min: 1, Max: 16}, Retry: consumer.Retry{MaxAttempts: 2}}, 6*time.Minute, 100*time.Millisecond, 60)
					if n := time.Duration(first.Load()); dead > 0 || n == 0 || n > 30*time.Second {
						t.Errorf("%d dead letters, the first success %v after it is up", dead, n)
					}
				})
			})
		}
	}
}

// A limiter lets so many calls a window through, and refuses the others at once.
type limiter struct {
	mu     sync.Mutex
	window time.Duration
	calls  int
	after  time.Duration // what it says in Retry-After; below 0: when the next window begins
	begin  time.Time
	had    int
	good   int
}

func (l *limiter) handle(context.Context, *consumer.Message) error {
	err := l.refuses(time.Now())
	if err == nil {
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func (l *limiter) refuses(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := now.Truncate(l.window); !b.Equal(l.begin) {
		l.begin, l.had = b, 0
	}
	if l.had >= l.calls {
		after := l.after
		if after < 0 {
			after = (l.begin.Add(l.window).Sub(now) + time.Second).Truncate(time.Second)
		}
		return consumer.Overloaded(errRefused, after)
	}
	l.had++
	l.good++
	return nil
}

// TestCircuitBreakerAroundALimiter: what lets some calls through and refuses the others does not open it, however few they are.
func TestCircuitBreakerAroundALimiter(t *testing.T) {
	const ms = time.Millisecond
	for _, l := range []struct {
		window time.Duration
		calls  int
		after  time.Duration
		each   time.Duration // between two messages
	}{
		{200 * ms, 1, 0, 100 * ms},
		{200 * ms, 1, time.Second, 25 * ms},
		{time.Second, 5, 0, 25 * ms},
		{time.Second, 5, time.Second, 25 * ms},
		{time.Second, 5, 2 * time.Second, 180 * ms},
		{20 * ms, 1, time.Second, 10 * ms},
		{time.Second, 50, time.Second, 10 * ms},
		{5 * time.Second, 25, -1, 100 * ms},
	} {
		t.Run(fmt.Sprintf("%d in %v, Retry-After %v, one each %v", l.calls, l.window, l.after, l.each), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened atomic.Int32
				limit := limiter{window: l.window, calls: l.calls, after: l.after}
				br := breaker(t, middleware.BreakerConfig{OnChange: func(s string) {
					if s == "open" {
						opened.Add(1)
					}
				}})
				dead := run(t, membroker.New(membroker.Config{}), consumer.Config{Handler: br.Middleware(limit.handle),
					Pool: consumer.Pool{Min: 1, Max: 64}, Retry: consumer.Retry{MaxAttempts: 4}}, limiterFor, l.each, 60)
				if n := opened.Load(); n > 0 || limit.good == 0 {
					t.Errorf("it opened %d times; %d handled, %d dead letters", n, limit.good, dead)
				}
			})
		})
	}
}

const limiterFor = time.Minute
