package consumer

import (
	"context"

	"github.com/longshoremq/longshore/broker"
)

// Message is what a handler gets. See broker.Message.
type Message = broker.Message

// A Handler handles one message. What it returns decides what becomes of the message: nil acks it; Permanent(err) dead-letters it
// at once; RetryAfter(err, d) retries it not before d; Overloaded(err, d) does, too, for longer than MaxAttempts, and where many
// say so the pool makes do with fewer workers for a while; Skip(reason) acks and counts it as skipped; Defer puts it off without
// an attempt; any other error retries it with backoff until MaxAttempts, then dead-letters it. A panic, whatever its value, and
// runtime.Goexit are such errors, too.
//
// ctx ends when the message's claim ends, when DrainTimeout has passed, or when the handler's own Timeout has; context.Cause says
// which (ErrShutdown, ErrTimeout, or an error that wraps broker.ErrLost). It is shared by the messages that one worker handles in
// a row, so it does not end when the handler returns: whatever the handler starts, it stops itself. An error returned because the
// claim was lost or the process stops is not counted as an attempt.
//
// Handlers run concurrently, each call in one goroutine. m and its bytes may be kept after the return, and must not be changed,
// neither m's fields nor the bytes: the next attempt, or the dead letter, has what the handler left in them (see broker.Message).
type Handler func(ctx context.Context, m *Message) error

// A Middleware wraps a Handler. It sees the call only: what becomes of the message is decided by the engine afterwards. One that
// hands on another payload or key hands on a copy:
//
//	plain := *m
//	plain.Value = unpacked
//	return next(ctx, &plain)
type Middleware func(Handler) Handler

// Chain makes one Middleware of several; the first is the outermost: Chain(a, b)(h) is a(b(h)). Around no Handler it makes none,
// which New finds.
func Chain(ms ...Middleware) Middleware {
	return func(h Handler) Handler {
		if h == nil {
			return nil
		}
		for i := len(ms) - 1; i >= 0; i-- {
			h = ms[i](h)
		}
		return h
	}
}
