package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// ErrCannotEmit says that nothing can be emitted: ctx is not that of a handler's call, or nobody would publish it, since the
// source is not atomic (broker.Traits.Atomic) and there is no Config.Output. The error says which.
var ErrCannotEmit = errors.New("consumer: nothing can be emitted here")

var (
	errNoCall = fmt.Errorf("%w: the context is not the one that a consumer gave its handler, nor made of it: hand that on "+
		"(in a test, that of RecordEmits)", ErrCannotEmit)
	errNoOutput = fmt.Errorf("%w: the source is not transactional, and nothing is set to publish outputs: set Config.Output",
		ErrCannotEmit)
)

// errOver says that the call is over that something was emitted in: its message is somebody else's to decide about.
var errOver = errors.New("consumer: emitting: the handler's call is over")

// Emit publishes messages that the handler made of the one that it handles, if it returns nil, and not otherwise: what a failed
// run emitted is dropped, and a retry emits anew. Skip drops it, too. In a BatchHandler it is made of all messages of the
// batch: where any of them fails it is dropped, and those that did not fail are handled again with no attempt counted; where some
// are skipped, it goes with the others. See EmitFor.
//
// Where the source is atomic (Kafka with transactions), outputs and ack are one: who reads only what is committed sees the
// outputs of each message once, whatever happens. Otherwise they are published by Config.Output and confirmed when the handler
// has returned nil, before the ack, and a crash between the two publishes them again, with the same Outgoing.ID where they have
// none of their own: made of the consumer's name and group, of where the message stands (topic, partition, offset, time) and of
// their number, so that JetStream drops it within its duplicate window, if the handler emits the same in the same order. That of
// a batch is made of all its messages: together with others they make another one.
//
// A handler that knows its message from an earlier run, by package inbox or a table of its own, emits again before it returns
// nil. That run's outputs may not be there: the database was committed, and then the publish failed, or the process died.
//
// ctx is the handler's, or made of it. An error means that nothing of this call was emitted: an output that the broker would
// never store (it wraps broker.ErrRefused, and is Permanent but in a batch), ErrCannotEmit, or a call that is over. Return it. A
// handler that returns nil all the same has dealt with it, by emitting something smaller for example: its message is acked, and
// what was not emitted is nowhere. What Config.Output cannot publish afterwards is a failure of the message by itself. Emit does
// not wait for the network. Emit may be called any number of times, by several goroutines, until the handler
// returns; the order of calls is that of the outputs. Their bytes are not copied, and must not be written to afterwards.
//
// A goroutine that outlives the handler must not emit. The context is that of the worker's next message by then, and what is
// emitted in it is taken for that one's. EmitFor names the message, and refuses then.
func Emit(ctx context.Context, outs ...broker.Outgoing) error { return emit(ctx, nil, nil, outs) }

// EmitFor is Emit in a BatchHandler, for outputs that were made of one message of the batch: they go with that one's ack,
// whatever becomes of the others. With Batch.ByKey and an order they are dropped where one before it failed, behind which it is
// handled again. One that Config.Output cannot publish is the failure of that message alone. m is the batch's own, or a Clone of
// it.
func EmitFor(ctx context.Context, m *Message, outs ...broker.Outgoing) error {
	return emit(ctx, m, nil, outs)
}

// EmitBy is Emit for a handler with a publisher of its own: where what p publishes goes to the cluster that an atomic source
// reads, it is emitted. Otherwise p publishes it at once, as ctx lets it, and confirmed; what a failed run has published stays
// then.
func EmitBy(ctx context.Context, p broker.Publisher, outs ...broker.Outgoing) error {
	return emit(ctx, nil, p, outs)
}

type emitKey struct{}

func emit(ctx context.Context, m *Message, by broker.Publisher, outs []broker.Outgoing) error {
	in := ctx.Value(emitKey{})
	if e, ok := in.(*Emitted); ok && by == nil {
		e.add(outs)
		return nil
	}
	s, _ := in.(*contextSlot)
	atomic := s != nil && s.feed.carries(by)
	switch {
	case by != nil && !atomic:
		return by.Publish(ctx, slices.Clone(outs)) // a copy, so that outs lies on the caller's stack where it is not published here
	case s == nil:
		return errNoCall
	case !atomic && s.feed.output == nil:
		return errNoOutput
	}
	w := s.at.Load()
	if w == nil {
		return errOver
	}
	i, err := w.emitting(m)
	if err != nil {
		return err
	}
	if !atomic {
		w.emissions().add(i, false, w.emissions().keep(outs))
		return nil
	}
	if by == nil {
		by = s.feed.output
	}
	if _, wraps := by.(broker.Wrapper); wraps {
		outs = broker.Prepared(ctx, by, slices.Clone(outs))
	}
	kept := w.emissions().keep(outs)
	for j := range kept {
		if err := s.feed.emitter.CheckEmit(&kept[j]); err != nil {
			err = fmt.Errorf("emitting to %s: %w", kept[j].Topic, err)
			if w.batch { // its handler may return it as the error of all, and the others must not be given up with this one
				return err
			}
			return forGood(err)
		}
	}
	w.emissions().add(i, true, kept)
	return nil
}

// HasEmitted is for middleware that remembers what was handled: it says whether the handler's call that ctx is of has emitted
// something so far for its message, which is not stored when the handler returns nil, and may never be. The message comes again
// then, and its handler has to emit again. withAck: it is stored together with the ack or not at all. Otherwise it is published
// before the ack, and where that fails, so has the message. In a BatchHandler it says so of what was emitted for the whole batch.
func HasEmitted(ctx context.Context) (some, withAck bool) {
	switch x := ctx.Value(emitKey{}).(type) {
	case *Emitted:
		return len(x.Outs()) > 0, false
	case *contextSlot:
		w := x.at.Load()
		if w == nil {
			return false, false
		}
		i := w.running()
		if w.batch {
			i = whole
		}
		with, before := w.emitted.Load().has(i)
		return with || before, with && !before
	}
	return false, false
}

// emitting is of which message the call that runs in w makes something; m names it in a batch.
func (w *work) emitting(m *Message) (i int, err error) {
	i = w.running()
	switch {
	case i < 0 || w.void():
		return 0, errOver
	case m == nil && w.batch:
		return whole, nil
	case m == nil:
		return i, nil
	}
	first, end := i, i+1
	if w.batch {
		first, end = 0, len(w.ms)
	}
	for j := first; j < end; j++ {
		if w.ms[j].Token == m.Token && w.ms[j].Claim == m.Claim {
			return j, nil
		}
	}
	return 0, fmt.Errorf("consumer: emitting for a message that this call does not handle: %s/%d at %d", m.Topic, m.Partition,
		m.Offset)
}

// whole stands for all messages of a batch.
const whole = -1
