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

// TestCircuitBreakerOutageThatRefuses: ten minutes in which all is answered with a 429, or a 503 with Retry-After, dead-letter
// nothing. The good calls from before had held the breaker closed for as long as its window had one, in which messages used up
// their attempts.
func TestCircuitBreakerOutageThatRefuses(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second} {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
			t.Run(fmt.Sprint(after, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down, up := time.Now().Add(time.Minute), time.Now().Add(11*time.Minute)
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
						Pool: consumer.Pool{Min: 1, Max: 16}, Retry: consumer.Retry{MaxAttempts: 2}}, 13*time.Minute, 100*time.Millisecond, 60)
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

// TestCircuitBreakerAroundALimiter: what lets some calls through and refuses the others does not open it, however few they are:
// so that calls are as many as without a breaker, but for what the pool makes of it.
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
			play := func(with bool) (good, dead int, opened int32) {
				synctest.Test(t, func(t *testing.T) {
					var n atomic.Int32
					limit := limiter{window: l.window, calls: l.calls, after: l.after}
					h := consumer.Handler(limit.handle)
					if with {
						h = breaker(t, middleware.BreakerConfig{OnChange: func(s string) {
							if s == "open" {
								n.Add(1)
							}
						}}).Middleware(h)
					}
					dead = run(t, membroker.New(membroker.Config{}), consumer.Config{Handler: h, Pool: consumer.Pool{Min: 1, Max: 64},
						Retry: consumer.Retry{MaxAttempts: 4}}, limiterFor, l.each, 60)
					good, opened = limit.good, n.Load()
				})
				return good, dead, opened
			}
			good, dead, _ := play(false)
			withGood, withDead, opened := play(true)
			t.Logf("%d handled, %d dead letters; without a breaker %d, %d", withGood, withDead, good, dead)
			if opened > 0 {
				t.Errorf("it opened %d times", opened)
			}
		})
	}
}

const limiterFor = time.Minute
