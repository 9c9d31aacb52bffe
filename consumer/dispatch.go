package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

// A feed is one source and what its dispatcher needs.
type feed struct {
	source broker.Source
	class  int // its class in the pool's queue
	traits broker.Traits
}

// dispatch receives from a feed until its source is stopped or fails. submits ends when the consumer stops: what the full queue has not taken
// by then goes back.
func (c *Consumer) dispatch(submits context.Context, f *feed) error {
	var (
		slab  []broker.Message // fresh ones: a handler may keep *Message
		batch []*run
		last  *claim
	)
	for {
		c.gate.wait(submits)
		if len(slab) < max(1, c.cfg.Chunk/4) {
			slab = make([]broker.Message, c.cfg.Chunk)
		}
		n, err := f.source.Receive(slab)
		if errors.Is(err, broker.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		ms := slab[:n:n]
		slab = slab[n:]
		c.held.Add(int64(n))
		c.count.received.Add(int64(n))
		if last == nil || last.Claim != ms[0].Claim {
			last = c.claimOf(f, ms[0].Claim)
		}
		batch = c.submit(submits, last, ms, batch[:0])
	}
}

// submit cuts a chunk into runs and queues them: one allocation and one lock for all that fits. It returns its buffer.
func (c *Consumer) submit(ctx context.Context, k *claim, ms []broker.Message, batch []*run) []*run {
	q := c.pace.quantum(len(ms))
	runs := make([]run, (len(ms)+q-1)/q)
	for i := range runs {
		n := min(q, len(ms))
		runs[i].init(k, ms[:n:n])
		ms = ms[n:]
		batch = append(batch, &runs[i])
	}
	if !k.enter(batch...) {
		c.takeBack(k, batch)
	} else if taken, err := c.pool.SubmitAll(ctx, k.feed.class, batch); err != nil {
		c.takeBack(k, batch[taken:])
	}
	clear(batch)
	return batch
}

// takeBack gives back what is unstarted of runs that are in no queue.
func (c *Consumer) takeBack(k *claim, runs []*run) {
	var back []broker.Back
	for _, r := range runs {
		_, _, u0, u1 := r.steal()
		k.leave(r)
		back = append(back, backs(r.ms[u0:u1])...)
	}
	reason := k.why()
	if reason == "" {
		reason = "drain"
	}
	c.giveBack(k, back, reason)
}
