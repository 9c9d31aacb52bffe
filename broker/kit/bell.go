package kit

import (
	"context"
	"time"
)

// A Bell wakes one goroutine, which then looks at everything: it receives from it. Rings before it looks are one. Make it with
// NewBell.
type Bell chan struct{}

// NewBell makes one that has not rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring wakes who waits, or who comes to wait next. It does not block, and may be called with locks held.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Serve calls work when it has rung, and again after each pause while work returns an error, until ctx ends. It blocks: it is
// what a goroutine of an adapter does that sends what others have queued.
func (b Bell) Serve(ctx context.Context, pause time.Duration, work func(ctx context.Context) error) {
	for {
		select {
		case <-b:
		case <-ctx.Done():
			return
		}
		_ = Retry(ctx, pause, work, func(error) bool { return false }) // ctx has ended, or all is done
	}
}
