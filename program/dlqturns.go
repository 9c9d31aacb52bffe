package program

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// turns are how letters are handled here.
type turns struct {
	run     context.Context // ends at a signal, or where a route asks for it: no further letter is handled
	over    context.Context // ends a drain_timeout after that, and with it the calls that did not return
	timeout time.Duration   // of a call; 0: none
	handler consumer.Handler
}

// newTurns are those of a member, until run ends.
func newTurns(run context.Context, m *member, timeout time.Duration) turns {
	over, end := context.WithCancelCause(context.Background())
	context.AfterFunc(run, func() { time.AfterFunc(m.drain, func() { end(consumer.ErrShutdown) }) })
	return turns{run, over, timeout, m.handler}
}

const (
	// turnPause is between two calls for a letter that waits for a limit.
	turnPause = 20 * time.Millisecond
	// putOffMost is for how long a letter is put off, all told, by what is no limit.
	putOffMost = time.Second
)

// handle calls the handler, again while a limit defers it: here nobody but the caller waits. A letter that waits is not being
// handled: its timeout begins with its call, and when run ends it stays as it was.
//
// A limit's turn comes. What else puts a letter off, as the circuit breaker whose probe it was or the handler itself, may do so
// for ever, before all letters behind it: beyond putOffMost it has failed.
func (t turns) handle(ctx context.Context, m *broker.Message) error {
	for left := putOffMost; t.run.Err() == nil; {
		err := t.call(ctx, m)
		if consumer.IsSkip(err) {
			return nil
		}
		if !consumer.IsDeferred(err) {
			return err
		}
		wait := consumer.DeferDelay(err)
		if left -= wait; left < 0 {
			return fmt.Errorf("put off for %v, and a replay does not wait so long: %w", wait, err)
		}
		select {
		case <-t.run.Done():
		case <-time.After(cmp.Or(wait, turnPause)):
		}
	}
	return context.Cause(t.run)
}

// call is one call. A handler that waits for the end of its context, as a route that stops the program, would wait for ever here
// without the end of over.
func (t turns) call(ctx context.Context, m *broker.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.over, func() { cancel(context.Cause(t.over)) })()
	if t.timeout > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, t.timeout, consumer.ErrTimeout)
		defer done()
	}
	return t.handler(ctx, m)
}
