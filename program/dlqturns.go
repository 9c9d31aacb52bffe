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
	putOff  time.Duration    // the most that a letter is put off, all told, by what is no limit
	outputs broker.Publisher // of what is emitted; nil: nothing can be
	origin  string           // names that, before the letter's place
}

// newTurns are those of a member, until run ends. What is emitted in one of another again is something else.
func newTurns(run context.Context, m *member, timeout, putOff time.Duration, again string) turns {
	over, end := context.WithCancelCause(context.Background())
	context.AfterFunc(run, func() { time.AfterFunc(m.drain, func() { end(consumer.ErrShutdown) }) })
	origin := "emit-replay/" + m.name + "/" + m.setup.Group + "/" + again
	return turns{run, over, timeout, m.handler, putOff, m.publisher, origin}
}

const (
	// turnPause is between two calls for a letter that waits for a limit.
	turnPause = 20 * time.Millisecond
	// putOffMost is turns.putOff where no flag says otherwise: enough for a handler that waits for a lock, and little for each of a
	// thousand letters that are put off for ever.
	putOffMost = 10 * time.Second
	// emitTimeout is for how long what a call emitted is published.
	emitTimeout = 30 * time.Second
)

// handle calls the handler, again while a limit defers it: here nobody but the caller waits. A letter that waits is not being
// handled: its timeout begins with its call, and when run ends it stays as it was.
//
// A limit's turn comes. What else puts a letter off, as the circuit breaker whose probe it was or the handler itself, may do so
// for ever, before all letters behind it: beyond putOff it has failed.
func (t turns) handle(ctx context.Context, m *broker.Message) error {
	for left := t.putOff; t.run.Err() == nil; {
		err := t.call(ctx, m)
		if consumer.IsSkip(err) {
			return nil
		}
		if !consumer.IsDeferred(err) {
			return err
		}
		wait := consumer.DeferDelay(err)
		if left -= wait; left < 0 {
			return fmt.Errorf("put off for %v, and for %v before that: more than --put-off, %v: %w", wait, t.putOff-left-wait, t.putOff,
				err)
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
	if t.outputs == nil {
		return t.handler(ctx, m)
	}
	inside, emitted := consumer.RecordEmits(ctx)
	if err := t.handler(inside, m); err != nil {
		return err
	}
	return t.publish(ctx, m, emitted.Outs())
}

// publish publishes what a call emitted that returned nil. A letter that is handled once more, as the process died before that
// was written down, names its outputs as before.
func (t turns) publish(ctx context.Context, m *broker.Message, outs []broker.Outgoing) error {
	if len(outs) == 0 {
		return nil
	}
	for i := range outs {
		if outs[i].ID == "" {
			outs[i].ID = fmt.Sprintf("%s/%s/%d/%d/%s/%d/%d", t.origin, m.Topic, m.Partition, m.Offset, m.ID(), m.Nanos, i)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, emitTimeout)
	defer cancel()
	if err := t.outputs.Publish(ctx, outs); err != nil {
		return fmt.Errorf("publishing what was emitted: %w", err)
	}
	return nil
}
