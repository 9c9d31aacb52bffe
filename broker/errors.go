package broker

import (
	"errors"
	"fmt"
)

var (
	// ErrLost says that a settle came too late: as far as the adapter knows, another process has the message or will have it.
	// It is expected (a rebalance, an expired lease), is counted, and frees the budget like any settle.
	ErrLost = errors.New("broker: claim lost")

	// ErrRevoked is the ErrLost of a claim that was given up in order, in a rebalance: it was announced, its handlers had time,
	// and what was settled within it holds. It is the cause of the claim's end, and no fault.
	ErrRevoked error = revokedError{}

	// ErrSettled says that at least one message was settled before. The call changed nothing for that message.
	ErrSettled = errors.New("broker: already settled")

	// ErrForeign says that a claim is not of the source that was asked to settle: a mistake of the caller. Nothing was settled, and
	// no budget freed.
	ErrForeign = errors.New("broker: the claim is of another source")

	// ErrClosed is returned by Receive after Stop, and by Open and Publish after Close.
	ErrClosed = errors.New("broker: closed")

	// ErrOpened is returned by an Open that is not the first. It changed nothing: the source is that of whoever opened it.
	ErrOpened = errors.New("broker: opened before")

	// ErrRefused is wrapped by a Publish error when the broker will never store the message as it is: too large, not
	// authorized. Do not repeat it unchanged. It is wrapped together with ErrNoTopic where there is no such topic or stream: that
	// is cured by whoever makes it, and not by another try at once.
	ErrRefused = errors.New("broker: refused for good")
)

type revokedError struct{}

func (revokedError) Error() string        { return "broker: claim revoked" }
func (revokedError) Is(target error) bool { return target == ErrLost }

// NoTopic makes of err what Publish says where there is no such topic: ErrNoTopic and ErrRefused. Its text has the former alone:
// whoever makes the topic cures it, so a handler's run that met it is retried, and "refused for good" beside that misleads.
func NoTopic(err error) error { return &noTopicError{err} }

type noTopicError struct{ err error }

func (e *noTopicError) Error() string {
	if errors.Is(e.err, ErrNoTopic) {
		return e.err.Error()
	}
	return e.err.Error() + ": " + ErrNoTopic.Error()
}

func (e *noTopicError) Is(target error) bool { return target == ErrNoTopic || target == ErrRefused }

func (e *noTopicError) Unwrap() error { return e.err }

// A LostError is an [ErrLost] that says of how many messages of the settle it is true: a lease ends alone, not with those of its
// neighbours. The engine takes a plain ErrLost for all of them.
type LostError struct {
	// N is how many came too late, at least 1.
	N int
	// Why, where the adapter knows; nil otherwise.
	Why error
}

// Error says how many, and why.
func (e *LostError) Error() string {
	if e.Why == nil {
		return fmt.Sprintf("%v: %d messages", ErrLost, e.N)
	}
	return fmt.Sprintf("%v: %d messages: %v", ErrLost, e.N, e.Why)
}

// Is says that it is an ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Why.
func (e *LostError) Unwrap() error { return e.Why }
