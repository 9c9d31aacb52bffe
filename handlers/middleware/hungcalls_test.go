package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// Calls that ignore the end of their time, and never return, keep the slots of a limit only for so long. While they are
// within it, and for a little longer, nobody takes those.
func TestCallsThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, slots = 20, 2
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		write(t, b, "in", n, func(i int) []byte { return []byte{byte(i)} })
		limit, err := middleware.NewConcurrencyLimit(slots)
		if err != nil {
			t.Fatal(err)
		}
		var calls, handled, running atomic.Int64
		end := make(chan struct{})
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Timeout: 10 * time.Second, Pool: consumer.Pool{Max: 4},
			Handler: limit.Middleware(func(context.Context, *consumer.Message) error {
				if calls.Add(1) <= slots {
					<-end
					return nil
				}
				if most := running.Add(1); most > slots {
					t.Errorf("%d run at once", most)
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				handled.Add(1)
				return nil
			})})
		time.Sleep(30 * time.Second)
		if c := calls.Load(); c != slots {
			t.Errorf("%d calls while %d are in their slots", c, slots)
		}
		time.Sleep(5 * time.Minute)
		if got := handled.Load(); got != n {
			t.Errorf("%d of %d handled", got, n)
		}
		close(end)
		time.Sleep(time.Minute)
		write(t, b, "in", n, func(i int) []byte { return []byte{byte(i)} })
		time.Sleep(time.Minute)
		if got := handled.Load(); got != 2*n {
			t.Errorf("%d of %d handled when the calls have returned", got, 2*n)
		}
		stop()
	})
}

// A slot that is lost to a call that never returns makes room for another one only where that is within the limit, which may have
// been lowered meanwhile.
func TestCallThatNeverReturnsUnderALoweredLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := middleware.NewConcurrencyLimit(3)
		if err != nil {
			t.Fatal(err)
		}
		end := make(chan struct{})
		var calls atomic.Int64
		limited := limit.Middleware(func(context.Context, *consumer.Message) error {
			calls.Add(1)
			<-end
			return nil
		})
		hung, cancel := context.WithCancelCause(t.Context())
		cancel(consumer.ErrTimeout)
		for _, ctx := range []context.Context{hung, t.Context(), t.Context()} {
			go func() { _ = limited(ctx, &consumer.Message{}) }()
		}
		synctest.Wait()
		if err := limit.Set(1); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			if err := limited(t.Context(), &consumer.Message{}); err == nil {
				t.Error("it was let through")
			}
		}
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls, want the first 3", n)
		}
		close(end)
		synctest.Wait()
	})
}
