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
				return &lateError{cause, err}
			}
			return err
		}
	}
}

// lateError is what was returned after the time was over. It wraps that alone, for what a BatchError is joined with is said of
// all messages, of those too that were handled, if late.
type lateError struct{ cause, err error }

func (e *lateError) Error() string        { return e.cause.Error() + ": " + e.err.Error() }
func (e *lateError) Unwrap() error        { return e.err }
func (e *lateError) Is(target error) bool { return errors.Is(e.cause, target) }
