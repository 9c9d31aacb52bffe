package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// readable is err, or where one of its methods panics, what that makes of it. It takes no more than a nil pointer of a type of
// their own that is returned as an error. Whoever is told of it reads it, and so do we, at places where a panic ends the process,
// or leaves a message with nobody.
func readable(err error) (as error) {
	defer func() {
		if v := recover(); v != nil {
			as = fmt.Errorf("an error, a %T, cannot be read: %w", err,
				&PanicError{Value: fmt.Sprint(v), Stack: debug.Stack()})
		}
	}()
	var nobody *nobodyError
	_, _, _ = err.Error(), errors.Is(err, &nobodyError{}), errors.As(err, &nobody)
	return err
}

// nobodyError is what no error is, so that all that is wrapped in one is asked.
type nobodyError struct{}

func (*nobodyError) Error() string { return "" }

// readableEach are errs, each of them readable.
func readableEach(errs []error) []error {
	all := make([]error, len(errs)) // not in place: errs may be the handler's own
	for i, e := range errs {
		if e != nil {
			all[i] = readable(e)
		}
	}
	return all
}
