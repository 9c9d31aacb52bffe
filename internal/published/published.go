// Package published reads what a broker.Publisher returned. One of somebody's own that publishes to two places joins what both
// say, and a message that one of them has not taken is not there.
package published

import (
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

var errNil = errors.New("the publisher returned a nil *PublishError for its error: where nothing has failed, return nil")

// Each is what err, of a Publish of n messages, says of each of them; nil: it is confirmed. told: there is a PublishError in err,
// and else its word is for all alike.
func Each(err error, n int) (errs []error, told bool) {
	each, beside := apart(err)
	errs = make([]error, n)
	for _, one := range each {
		if one == nil {
			beside = append(beside, errNil)
			continue
		}
		if len(one.Errs) != n { // of which message each of these is, nobody knows
			beside = append(beside, fmt.Errorf("the publisher told of %d messages, of %d: %w", len(one.Errs), n, one))
			continue
		}
		for i, err := range one.Errs {
			errs[i] = both(errs[i], err)
		}
	}
	for _, all := range beside {
		for i := range errs {
			errs[i] = both(errs[i], all)
		}
	}
	return errs, len(each) > 0
}

// apart takes err to pieces: the PublishErrors in it, and what is joined with them. What is only wrapped around one says no more
// than that one does.
func apart(err error) (each []*broker.PublishError, beside []error) {
	switch x := err.(type) { //nolint:errorlint // it goes through what is wrapped itself
	case nil:
		return nil, nil
	case *broker.PublishError:
		return []*broker.PublishError{x}, nil
	case interface{ Unwrap() []error }:
		for _, part := range x.Unwrap() {
			told, others := apart(part)
			each, beside = append(each, told...), append(beside, others...)
		}
	case interface{ Unwrap() error }:
		each, beside = apart(x.Unwrap())
	}
	if len(each) == 0 {
		return nil, []error{err}
	}
	return each, beside
}

// both is a joined with b, where there are both.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
