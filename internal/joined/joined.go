// Package joined takes errors to pieces that errors.Join and its like have put together.
package joined

import "errors"

// Apart takes err to pieces: the errors of type E in it, and what is joined with them. What is only wrapped around one says no
// more than that one does. whole says of which errors nothing inside counts; nil: of none.
func Apart[E error](err error, whole func(error) bool) (told []E, beside []error) {
	if err == nil {
		return nil, nil
	}
	if one, is := err.(E); is { //nolint:errorlint // it goes through what is wrapped itself
		return []E{one}, nil
	}
	if whole != nil && whole(err) {
		return nil, []error{err}
	}
	switch x := err.(type) { //nolint:errorlint // the same
	case interface{ Unwrap() []error }:
		for _, part := range x.Unwrap() {
			each, others := Apart[E](part, whole)
			told, beside = append(told, each...), append(beside, others...)
		}
	case interface{ Unwrap() error }:
		told, beside = Apart[E](x.Unwrap(), whole)
	}
	if len(told) == 0 {
		return nil, []error{err}
	}
	return told, beside
}

// Both is a joined with b, where there are both.
func Both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
