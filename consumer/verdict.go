package consumer

import (
	"cmp"
	"errors"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// Why a handler's context ended, by context.Cause, and what ends a run that did not return.
var (
	// ErrShutdown: DrainTimeout has passed.
	ErrShutdown = errors.New("consumer: shutting down")
	// ErrTimeout: the handler ran longer than Config.Timeout.
	ErrTimeout = errors.New("consumer: handler timed out")
	// ErrGoexit: the handler called runtime.Goexit.
	ErrGoexit = errors.New("consumer: handler called runtime.Goexit")
	// ErrTooLarge: the message is larger than Config.MaxMessageBytes, or its headers than MaxHeaderBytes; no handler saw it.
	ErrTooLarge = errors.New("consumer: message too large")
	// ErrCrashes: the message ended processes, as far as can be told from outside (broker.Message.Crashes); no handler saw it this
	// time.
	ErrCrashes = errors.New("consumer: message ends its process")
)

// Permanent marks err as one that no retry will cure: the message is dead-lettered at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent says whether a handler's error is Permanent, for middleware that treats a message's own fault apart from others.
func IsPermanent(err error) bool { return said[*permanentError](err) != nil }

// Undecodable is Permanent for a message whose content cannot be read; the class of its failure is decode. Undecodable(nil) is
// nil. Its text goes to logs and into the dead letter, so it should not quote the content.
func Undecodable(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{&undecodableError{err}}
}

type undecodableError struct{ err error }

func (e *undecodableError) Error() string { return e.err.Error() }
func (e *undecodableError) Unwrap() error { return e.err }

// RetryAfter asks for the next attempt not before d, instead of the backoff. d <= 0 means at once. It still counts as an attempt:
// when these are used up the message is given up all the same, and where there are no dead letters it comes again after d. A
// handler with a backoff of its own makes d of Message.Runs, the failed runs before this one. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(0, d)}
}

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// Overloaded says that what the handler calls has enough to do and refused: a 429, a full connection pool. The next attempt is
// not before after; after <= 0: when the backoff says. From after on the wait grows as the backoff does, to Backoff.Max or to
// after, whichever is longer, and those that are told the same are spread over a share of it (Backoff.Jitter). It counts as an
// attempt, and a message is not given up for it before there were a hundred, or GiveUpAfter has passed: that others are served
// first is no fault of its own. Beyond that it tells the pool: a refusal is quick, so without a word it looks like throughput.
// Where clearly more than one call in sixteen is refused, the pool makes do with fewer workers and tries more again after a
// while; not where fewer are refused as often, as by the limit of one customer. Overloaded(nil, after) is nil.
func Overloaded(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	if after > 0 {
		err = RetryAfter(err, after)
	}
	return &overloadedError{err}
}

type overloadedError struct{ err error }

func (e *overloadedError) Error() string { return e.err.Error() }
func (e *overloadedError) Unwrap() error { return e.err }

// RetryDelay is how long a handler's error asks to wait with the next attempt, by RetryAfter or Overloaded, for middleware. 0: it
// says nothing of it.
func RetryDelay(err error) time.Duration {
	if after := said[*retryAfterError](err); after != nil {
		return after.after
	}
	return 0
}

// IsOverloaded says whether a handler's error is Overloaded.
func IsOverloaded(err error) bool { return said[*overloadedError](err) != nil }

// Skip acks the message and counts it as skipped, with the reason. Joined with another error it does not: that one counts.
func Skip(reason string) error { return &skipError{reason} }

type skipError struct{ reason string }

// IsSkip says whether a handler's error is a Skip, which acks. Several that are joined are one where each of them is.
func IsSkip(err error) bool { return skipOf(err) != nil }

func (e *skipError) Error() string { return "skipped: " + e.reason }

// A PanicError is what a handler's panic becomes: that of a task in the pool.
type PanicError = pool.PanicError

// skipOf is the Skip that err is; nil: it is none. A handler that goes through parts and joins what they return has failed where
// one of them has: acked for the sake of another part, the message would be lost.
func skipOf(err error) *skipError { return wholly[*skipError](err, func(error) bool { return false }) }

// wholly is the E that err is, the first of several; nil: it is none. Of errors that are joined, each has to be one, or what may
// stand beside it.
func wholly[E interface {
	error
	comparable
}](err error, beside func(error) bool) (first E) {
	var none E
	switch x := err.(type) { //nolint:errorlint // it goes through what is wrapped itself
	case E:
		return x
	case *lateError:
		return wholly[E](x.err, beside)
	case *PanicError: // what a handler panics with is no decision of it
		return none
	case interface{ Unwrap() error }:
		return wholly[E](x.Unwrap(), beside)
	case interface{ Unwrap() []error }:
		for _, part := range x.Unwrap() {
			e := wholly[E](part, beside)
			if e == none && part != nil && !beside(part) {
				return none
			}
			first = cmp.Or(first, e)
		}
	}
	return first
}

// said is the first E that a handler has said with err, whatever stands beside it; nil: none.
func said[E interface {
	error
	comparable
}](err error) E {
	return wholly[E](err, func(error) bool { return true })
}

// skipReason is the reason of a Skip.
func skipReason(err error) string {
	if s := skipOf(err); s != nil {
		return s.reason
	}
	return ""
}

// panicOf is the panic in err, where there is one.
func panicOf(err error) (*PanicError, bool) {
	var p *PanicError
	return p, errors.As(err, &p)
}

// lateError is what a handler returned after its context was ended by its timeout.
type lateError struct{ err error }

func (e *lateError) Unwrap() []error { return []error{ErrTimeout, e.err} }
func (e *lateError) Error() string {
	if errors.Is(e.err, ErrTimeout) { // it is the cause that the context gave
		return e.err.Error()
	}
	return ErrTimeout.Error() + ": " + e.err.Error()
}

// lateErrors are errs, each of them late.
func lateErrors(errs []error) []error {
	late := make([]error, len(errs)) // not in place: errs may be the handler's own
	for i, e := range errs {
		if e != nil {
			late[i] = &lateError{e}
		}
	}
	return late
}
