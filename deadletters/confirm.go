package deadletters

import (
	"context"
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/published"
)

// A sending is what became of a publish.
type sending struct {
	err error // nil: confirmed; broker.ErrRefused: not stored; any other: perhaps
	// twice: it was perhaps stored, and published again.
	twice bool
}

// confirmPause is between two tries to have messages confirmed.
const confirmPause = 200 * time.Millisecond

// confirm publishes messages, and again those that were perhaps not stored, until all are confirmed or refused, or ctx ends.
func confirm(ctx context.Context, p broker.Publisher, ms []broker.Outgoing) []sending {
	all := make([]sending, len(ms))
	left := make([]int, len(ms))
	for i := range left {
		left[i] = i
	}
	for {
		again := make([]broker.Outgoing, len(left))
		for i, j := range left {
			again[i] = ms[j]
			all[j].twice = all[j].err != nil
		}
		err := p.Publish(ctx, again)
		each, _ := published.Each(err, len(left))
		var rest []int
		for i, j := range left {
			all[j].err = each[i]
			if all[j].err != nil && !errors.Is(all[j].err, broker.ErrRefused) {
				rest = append(rest, j)
			}
		}
		if left = rest; len(left) == 0 || ctx.Err() != nil || errors.Is(err, broker.ErrClosed) {
			return all
		}
		select {
		case <-ctx.Done():
			return all
		case <-time.After(confirmPause):
		}
	}
}
