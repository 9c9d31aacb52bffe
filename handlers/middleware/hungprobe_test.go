package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// A probe whose handler ignores the end of its context, and never returns, keeps its place only for so long: the next ones are
// let through, and close the breaker.
func TestProbeThatNeverReturns(t *testing.T) {
	for name, order := range map[string]consumer.Order{"no order": consumer.OrderNone, "by key": consumer.OrderKey} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				write(t, b, "in", n, func(i int) []byte { return []byte{byte(i)} })
				breaker, err := middleware.NewCircuitBreaker(middleware.BreakerConfig{MinCalls: 3})
				if err != nil {
					t.Fatal(err)
				}
				var calls, handled atomic.Int64
				end := make(chan struct{})
				_, stop := consume(t, b, []string{"in"}, consumer.Config{Order: order, Timeout: time.Second, Pool: consumer.Pool{Max: 4},
					Handler: breaker.Middleware(func(context.Context, *consumer.Message) error {
						switch c := calls.Add(1); {
						case breaker.State() == "half-open" && handled.Load() == 0 && c < 1000:
							calls.Store(1000) // the only one that hangs
							<-end
							return nil
						case c < 1000:
							return errors.New("down")
						}
						handled.Add(1)
						return nil
					})})
				time.Sleep(10 * time.Minute)
				if got := handled.Load(); got < n-1 || breaker.State() != "closed" {
					t.Errorf("%d of %d handled, the breaker is %s, want closed", got, n, breaker.State())
				}
				close(end)
				time.Sleep(time.Minute)
				if state := breaker.State(); state != "closed" {
					t.Errorf("the breaker is %s when the probe has returned, want closed", state)
				}
				stop()
			})
		})
	}
}
