package consumer

import (
	"context"
	"math"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

const (
	// prefetchTime is how much work of the present workers is held here. More only waits here instead of at the broker, where other
	// replicas could take it; less lets workers run dry while the next pull is under way.
	prefetchTime = 500 * time.Millisecond
	// prefetchEvery is how often that is looked at; prefetchTime where nothing changes and few messages are handled between two
	// looks (less than fewDone, or a quarter of the budget); and prefetchRarely where nothing is here either.
	prefetchEvery  = 100 * time.Millisecond
	prefetchRarely = 10 * time.Second
	fewDone        = 16
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

// budgets keeps the budgets of the sources at prefetch.
type budgets struct {
	cfg     *Config
	feeds   feeds
	queue   *queue
	till    *till
	retries *retries
}

// opening is the budget of a feed's source before anything is known.
func (b *budgets) opening(f *feed) broker.Budget {
	if f.retries {
		return b.cfg.retryBudget()
	}
	all := b.cfg.mainBudget()
	if _, ok := f.source.(broker.Rebudgeter); ok {
		all.Messages = b.atFirst()
	}
	return all
}

// atFirst is how many messages a source holds whose budget can change, as long as nothing is known.
func (b *budgets) atFirst() int {
	return prefetch(b.cfg.mainBudget().Messages, b.cfg.Pool.Max, 0, 0, b.cfg.batchSize(), 0)
}

// run looks after the budgets of the sources that can change theirs, until ctx ends.
func (b *budgets) run(ctx context.Context) {
	wait := prefetchEvery
	timer := time.NewTimer(wait)
	defer timer.Stop()
	now, done := b.atFirst(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.till.begun:
			wait = prefetchEvery / 2
		}
		b.retries.relieve()
		s := b.queue.stats()
		want, waiting := b.want(&s)
		// Small changes are not worth a call. Small against what is not taken by those that wait, or many of them would stop the
		// intake.
		d, slack := want-now, max(0, now-waiting)/8
		same := -slack <= d && d <= slack
		if !same {
			now = want
			b.set(want)
		}
		wait = nextLook(wait, same, s.Done-done < int64(max(fewDone, now/4)), s.Done == done && b.till.held.Load() == 0)
		done = s.Done
		if !b.till.rest(wait > prefetchTime) {
			wait = min(wait, prefetchTime)
		}
		timer.Reset(wait)
	}
}

// nextLook is how long until the next look after one. same: the budget was left as it is; few: little of it was handled in
// between; nothing: none, and nothing is here. Each look would else wake a processor that has nothing to do, for each consumer,
// ten times a second.
func nextLook(after time.Duration, same, few, nothing bool) time.Duration {
	switch {
	case !same || !few:
		return prefetchEvery
	case nothing:
		return min(2*after, prefetchRarely)
	}
	return min(2*after, prefetchTime)
}

// want is how many messages each source should hold, and how many wait for no worker.
func (b *budgets) want(s *pool.Stats) (n, waiting int) {
	waiting = max(0, int(b.till.held.Load())-s.Backlog-s.InHand)
	return prefetch(b.cfg.mainBudget().Messages, s.Max, s.Live, waiting, b.cfg.batchSize(), b.queue.pace.call()), waiting
}

func (b *budgets) set(messages int) {
	for _, f := range b.feeds {
		if r, ok := f.source.(broker.Rebudgeter); ok && !f.retries {
			r.SetBudget(broker.Budget{Messages: messages, Bytes: b.cfg.mainBudget().Bytes})
		}
	}
}
