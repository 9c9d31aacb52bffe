package consumer

import (
	"context"
	"math"
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// prefetchTime is how much work of the present workers is held here. More only waits here instead of at the broker, where other
	// replicas could take it; less lets workers run dry while the next pull is under way.
	prefetchTime = 500 * time.Millisecond
	// prefetchEvery is how often that is looked at.
	prefetchEvery = 100 * time.Millisecond
)

// prefetch is how many messages to hold: two for each worker that there may be, so that the pool sees what it could grow for,
// what the present ones handle in prefetchTime, and those that wait for no worker (parked ones, dead letters). Handlers of 30 s
// thus do not hoard thousands, and those of 10 µs do not starve. Workers that take batches get two of these each. mean is a
// handler call's; 0: unknown.
func prefetch(limit, maxWorkers, live, waiting, batch int, mean time.Duration) int {
	n := float64(max(2*maxWorkers, 2*batch*(live+1)) + waiting)
	if mean > 0 {
		n += float64(live) * float64(prefetchTime) / float64(mean)
	}
	return int(math.Min(n, float64(limit)))
}

// openingBudget is the budget of a feed's source before anything is known.
func (c *Consumer) openingBudget(f *feed) broker.Budget {
	if f.retries {
		return c.cfg.retryBudget()
	}
	b := c.cfg.mainBudget()
	if _, ok := f.source.(broker.Rebudgeter); ok {
		b.Messages = prefetch(b.Messages, c.cfg.Pool.Max, 0, 0, c.cfg.batchSize(), 0)
	}
	return b
}

// keepBudgets keeps the budgets of the sources that can change theirs at prefetch, until ctx ends.
func (c *Consumer) keepBudgets(ctx context.Context) {
	tick := time.NewTicker(prefetchEvery)
	defer tick.Stop()
	now := c.openingBudget(c.feeds[0]).Messages
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.relieve()
		s := c.pool.Stats()
		waiting := max(0, int(c.held.Load())-s.Backlog-s.InHand)
		limit := c.cfg.mainBudget()
		want := prefetch(limit.Messages, s.Max, s.Live, waiting, c.cfg.batchSize(), c.pace.call())
		// Small changes are not worth a call. Small against what is not taken by those that wait, or many of them would stop the
		// intake.
		if d, slack := want-now, max(0, now-waiting)/8; d >= -slack && d <= slack {
			continue
		}
		now = want
		for _, f := range c.feeds {
			if r, ok := f.source.(broker.Rebudgeter); ok && !f.retries {
				r.SetBudget(broker.Budget{Messages: want, Bytes: limit.Bytes})
			}
		}
	}
}
