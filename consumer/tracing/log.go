package tracing

import (
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
)

// LogHook is a zerolog.HookFunc: it writes trace_id and span_id into events that were given a context with a span (Event.Ctx),
// as the engine's of failures, dead letters, retries and stuck handlers are, and those of the middleware logging.
//
//	consumer.Config{Logger: log.Hook(zerolog.HookFunc(tracing.LogHook)), …}
func LogHook(e *zerolog.Event, _ zerolog.Level, _ string) {
	if sc := trace.SpanContextFromContext(e.GetCtx()); sc.IsValid() {
		e.Stringer("trace_id", sc.TraceID()).Stringer("span_id", sc.SpanID())
	}
}
