package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

func TestTimeout(t *testing.T) {
	own := errors.New("own")
	wait := func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() }
	t.Run("too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			err := middleware.Timeout(time.Second)(wait)(t.Context(), message(1))
			if took := time.Since(start); took != time.Second {
				t.Errorf("ended after %v", took)
			}
			if !errors.Is(err, consumer.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			err := middleware.Timeout(time.Second)(func(context.Context,
				*consumer.Message) error {
				time.Sleep(time.Second - 1)
				return own
			})(t.Context(), message(1))
			if !errors.Is(err, own) || errors.Is(err, consumer.ErrTimeout) {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("late but well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			err := middleware.Timeout(time.Second)(func(context.Context,
				*consumer.Message) error {
				time.Sleep(time.Minute)
				return nil
			})(t.Context(), message(1))
			if err != nil {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("late, a batch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := consumer.AroundBatch(middleware.Timeout(time.Second))(func(context.Context, []*consumer.Message) error {
				time.Sleep(time.Minute)
				return &consumer.BatchError{Errs: []error{nil, own}}
			})
			err := h(t.Context(), []*consumer.Message{message(1), message(2)})
			if each := consumer.BatchErrors(err, 2); each[0] != nil || !errors.Is(each[1], own) || !errors.Is(err, consumer.ErrTimeout) {
				t.Errorf("error %v: %v", err, each)
			}
		})
	})
	t.Run("ended from outside", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { cancel(consumer.ErrShutdown) })
			err := middleware.Timeout(time.Second)(func(ctx context.Context,
				_ *consumer.Message) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})(ctx, message(1))
			if !errors.Is(err, consumer.ErrShutdown) || errors.Is(err, consumer.ErrTimeout) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func ExampleTimeout() {
	h := middleware.Timeout(time.Millisecond)(func(ctx context.Context, _ *consumer.Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
	err := h(context.Background(), &consumer.Message{})
	fmt.Println(errors.Is(err, consumer.ErrTimeout), err)
	// Output: true consumer: handler timed out after 1ms: context deadline exceeded
}
