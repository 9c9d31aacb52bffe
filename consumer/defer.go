package consumer

import (
	"errors"
	"time"
)

// Defer says that the message cannot be handled now, for no fault of its own: a limit is reached. It waits, without a worker, for
// wait or until wake is called, and is then passed to the handler again: a wait of less than 1 ms is one of 1 ms where until is
// nil, or a handler that has nothing to wait for would be called without end. It is no attempt, and neither failure nor success.
// until, where it is not nil, is called once with wake, which may be called at any time, by any goroutine, any number of times;
// it does not block. It says whether the message was waiting still: false means that it is on its way already, or is not here any
// more, so that another one can have the place.
//
// In an order, what comes after the message waits, too.
func Defer(wait time.Duration, until func(wake func() bool)) error {
	least := time.Duration(0)
	if until == nil {
		least = time.Millisecond
	}
	return &deferError{max(least, wait), until}
}

type deferError struct {
	wait  time.Duration
	until func(wake func() bool)
}

func (e *deferError) Error() string { return "deferred" }

// IsDeferred says whether a handler's error is a Defer, for middleware that counts failures.
func IsDeferred(err error) bool {
	var d *deferError
	return errors.As(err, &d)
}
