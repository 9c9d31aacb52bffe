package kafkabroker

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// A Fetch asks for megabytes. Over a slow network they may take longer than a request may, and cut off they would be asked for
// again, and never come. So it may take for as long as something arrives.
const (
	arrivalPart = 64 << 10 // what has to arrive within the time of a request
	arrivalMost = 60       // times of a request that an answer takes at most
)

// withArrivals is a context that ends when arrived was not called for so long: first before the first call, then next. It counts
// as a deadline: see wasLate. arrived may be called at any time, also after the end.
func withArrivals(of context.Context, first, next time.Duration) (ctx context.Context, arrived, stop func()) {
	of, free := context.WithTimeout(of, max(first, arrivalMost*next))
	ctx, end := context.WithCancelCause(of)
	late := time.AfterFunc(first, func() { end(context.DeadlineExceeded) })
	return ctx, func() { late.Reset(next) }, func() { late.Stop(); end(nil); free() }
}

// wasLate is an error of an exchange, where what ended it was that nothing arrived for too long.
func wasLate(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// isLate says whether an exchange had no time left.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// An arrival is an answer that is read, and tells of each part of it.
type arrival struct {
	io.Reader
	n       int
	arrived func()
}

func (a *arrival) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	for a.n += n; a.n >= arrivalPart; a.n -= arrivalPart {
		a.arrived()
	}
	return n, err
}
