package middleware

import (
	"context"
	"runtime/debug"

	"github.com/longshoremq/longshore/consumer"
)

// Recover turns a panic of what it wraps into the *consumer.PanicError that the engine would make of it. The engine survives
// panics without it; it is for the middleware outside of it, which sees an error instead of being unwound: Logging logs it, for
// example. runtime.Goexit cannot be stopped by anything and reaches the engine.
func Recover() consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = &consumer.PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			return next(ctx, m)
		}
	}
}
