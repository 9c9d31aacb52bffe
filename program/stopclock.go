package program

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/program/internal/config"
)

// A stopClock says what is left of the time that the supervisor grants, from when the stop began.
type stopClock struct {
	grace time.Duration
	began atomic.Pointer[time.Time] // nil: it has not
}

// newStopClock begins to run when ctx ends. What is sent to a collector at the very end has its time beside this.
func newStopClock(ctx context.Context, doc *config.Document) *stopClock {
	s := &stopClock{grace: cmp.Or(doc.File.KillGrace, config.DefaultKillGrace)}
	if doc.Exports {
		s.grace -= config.FlushTimeout
	}
	context.AfterFunc(ctx, func() {
		now := time.Now()
		s.began.Store(&now)
	})
	return s
}

// wait returns what ended brings, or nil when the time is over: the process ends, and what it waited for with it. Before a stop
// has begun nobody kills, and it waits for as long as it takes.
func (s *stopClock) wait(ended <-chan error) error {
	began := s.began.Load()
	if began == nil {
		return <-ended
	}
	over := time.NewTimer(time.Until(began.Add(s.grace)))
	defer over.Stop()
	select {
	case err := <-ended:
		return err
	case <-over.C:
		return nil
	}
}
