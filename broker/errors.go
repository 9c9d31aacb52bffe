package broker

import (
	"errors"
	"fmt"
)

var (
	// ErrLost says that a settle came too late: as far as the adapter knows, another process has the message or will have it.
	// It is expected (a rebalance, an expired lease), is counted, and frees the budget like any settle.
	ErrLost = errors.New("broker: claim lost")

	// ErrSettled says that at least one message was settled before. The call changed nothing for that message.
	ErrSettled = errors.New("broker: already settled")

	// ErrForeign says that a claim is not of the source that was asked to settle: a mistake of the caller. Nothing was settled, and
	// no budget freed.
	ErrForeign = errors.New("broker: the claim is of another source")

	// ErrClosed is returned by Receive after Stop, and by Open and Publish after Close.
	ErrClosed = errors.New("broker: closed")

	// ErrRefused is wrapped by a Publish error when the broker will never store the message as it is: too large, not
	// authorized. Do not repeat it unchanged. It is wrapped together with ErrNoTopic where there is no such topic or stream: that
	// is cured by whoever makes it, and not by another try at once.
	ErrRefused = errors.New("broker: refused for good")
)

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
