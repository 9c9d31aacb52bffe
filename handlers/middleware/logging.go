package middleware

import (
	"context"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// Logging writes one event for each call: event "handled" with topic, partition, offset, id, attempt, took_ms and outcome: ok,
// skip, permanent or error. level is that of the ok and skip ones; the others are warnings, with the error. Neither keys nor
// payloads are written. A hook of log gets the call's context (tracing.LogHook). The engine logs every failure as well, with
// what becomes of the message; this is for the calls of one handler, good ones included. A panic passes without an event unless
// Recover is inside.
func Logging(log zerolog.Logger, level zerolog.Level) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			start := time.Now()
			err := next(ctx, m)
			outcome, at := "ok", level
			switch {
			case consumer.IsDeferred(err):
				return err // it was not handled
			case consumer.IsSkip(err):
				outcome = "skip"
			case consumer.IsPermanent(err):
				outcome, at = "permanent", zerolog.WarnLevel
			case err != nil:
				outcome, at = "error", zerolog.WarnLevel
			}
			e := log.WithLevel(at)
			if !e.Enabled() {
				return err
			}
			e = e.Ctx(ctx).Str("event", "handled").Str("topic", m.Topic)
			if m.Partition >= 0 {
				e = e.Int32("partition", m.Partition)
			}
			if m.Offset >= 0 {
				e = e.Int64("offset", m.Offset)
			}
			if m.ID() != "" {
				e = e.Str("id", m.ID())
			}
			e.Int32("attempt", m.Attempt).Float64("took_ms", float64(time.Since(start))/1e6).Str("outcome", outcome).Err(err).Send()
			return err
		}
	}
}
