package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// Timeout ends the context of what it wraps after d, with consumer.ErrTimeout as its cause. An error that is returned after that
// wraps ErrTimeout too; a nil stays nil. A handler that ignores its context is not stopped: consumer.Config has Timeout and
// StuckAfter for that, at a lower cost; this one is for a limit of one handler or one step among several. It panics when d is not
// more than 0.
func Timeout(d time.Duration) consumer.Middleware {
	if d <= 0 {
		panic(fmt.Sprintf("middleware: Timeout is %v, want more than 0", d))
	}
	cause := fmt.Errorf("%w after %v", consumer.ErrTimeout, d)
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			ctx, cancel := context.WithTimeoutCause(ctx, d, cause)
			defer cancel()
			err := next(ctx, m)
			if err != nil && context.Cause(ctx) == cause && !errors.Is(err, consumer.ErrTimeout) {
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
	}
}
