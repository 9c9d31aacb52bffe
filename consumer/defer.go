package consumer

import "time"

// Defer says that the message cannot be handled now, for no fault of its own: a limit is reached. It waits, without a worker, for
// wait or until wake is called, and is then passed to the handler again: a wait of less than 1 ms is one of 1 ms where until is
// nil, or a handler that has nothing to wait for would be called without end. It is no attempt, and neither failure nor success.
// until, where it is not nil, is called once with wake, and of a batch once for each message that is put off, each with a wake of
// its own. wake may be called at any time, by any goroutine, any number of times; it does not block. It says whether the message
// was waiting still: false means that it is on its way already, or is not here any more, so that another one can have the place.
//
// In an order, what comes after the message waits, too. Joined with another error it puts nothing off: that one counts.
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

// IsDeferred says whether a handler's error is a Defer, for middleware that counts failures. Of errors that are joined, all have
// to be a Defer or a Skip.
func IsDeferred(err error) bool { return deferOf(err) != nil }

// DeferDelay is for how long a handler's error puts its message off, for who calls handlers without a consumer. 0: it is no
// Defer, or one that has something to wake the message, as that of a limit.
func DeferDelay(err error) time.Duration {
	if e := deferOf(err); e != nil && e.until == nil {
		return e.wait
	}
	return 0
}

// deferOf is the Defer that err is, the first of several; nil: it is none. Put off for the sake of one part, a message of which
// another part failed would come again and again, with no attempt and nothing told.
func deferOf(err error) *deferError { return wholly[*deferError](err, IsSkip) }
