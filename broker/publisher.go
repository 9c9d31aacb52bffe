package broker

import (
	"context"
	"errors"
)

// A Publisher writes messages and waits until the broker has confirmed them. It serves the dead letters, the retry topics and the
// publish handler.
type Publisher interface {
	// Publish connects when it is first used. While the broker is away it waits, at most until ctx ends, so give ctx a deadline; an
	// adapter may give up sooner by a timeout of its own, never with ErrRefused. The caller tries again, which may store a message
	// twice (see Outgoing.ID). nil: all are confirmed. Otherwise a *PublishError, or ctx's error (then each message is perhaps
	// stored). What would be refused each time, such as a message without a topic, is ErrRefused. ErrClosed after Close. Safe for
	// concurrent use. ms is not kept.
	Publish(ctx context.Context, ms []Outgoing) error
	// Close waits for publishes under way until ctx ends. Any number of times.
	Close(ctx context.Context) error
}

// A Wrapper is a Publisher around another one. It forwards what that one can (Destinations): a struct that embeds only the
// Publisher has lost that, and without Unwrap and Prepare nobody knows to which cluster it goes.
type Wrapper interface {
	Publisher
	// Unwrap returns the one inside.
	Unwrap() Publisher
	// Prepare returns ms as Publish hands them to the one inside, for whoever sends them in another way, as with an ack. It does not
	// write to ms.
	Prepare(ctx context.Context, ms []Outgoing) []Outgoing
}

// Prepared is ms as p, where that is a Wrapper, would hand them to the Innermost; else ms.
func Prepared(ctx context.Context, p Publisher, ms []Outgoing) []Outgoing {
	for {
		w, ok := p.(Wrapper)
		if !ok {
			return ms
		}
		ms, p = w.Prepare(ctx, ms), w.Unwrap()
	}
}

// Innermost returns what is inside of p where that is a Wrapper, all the way down; else p.
func Innermost(p Publisher) Publisher {
	for {
		w, ok := p.(Wrapper)
		if !ok {
			return p
		}
		p = w.Unwrap()
	}
}

// Outgoing is a message to publish.
type Outgoing struct {
	Topic   string
	Key     []byte
	Value   []byte
	Headers []Header
	// ID lets the broker, or a reader, drop a repeated publish: Nats-Msg-Id on JetStream, HeaderID on brokers that have no place of
	// their own for it. Empty: none.
	ID string
	// Partition is the partition of Topic that it goes to, where the broker has some: a replay sends a message back to where it was.
	// nil, and one that the topic does not have: the publisher chooses, by the key.
	Partition *int32
}

// A PublishError has one error per message, by index. nil: confirmed. ErrRefused: never stored. Any other: perhaps stored.
type PublishError struct{ Errs []error }

// Error joins the messages' errors.
func (e *PublishError) Error() string {
	if err := errors.Join(e.Errs...); err != nil {
		return "publishing: " + err.Error()
	}
	return "publishing: no message failed"
}

// Unwrap returns the messages' errors, for errors.Is and errors.As.
func (e *PublishError) Unwrap() []error { return e.Errs }
