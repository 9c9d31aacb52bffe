package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// running are the calls that have a slot of a ConcurrencyLimit. It stands under the limit's lock.
type running struct {
	of    map[*call]struct{}
	looks time.Time // when lapse looks again
}

// A call has a slot until it returns, or lapses.
type call struct {
	ctx  context.Context
	over time.Time // since when its time is known to be over; zero: it is not
}

const (
	// lapsesAfter is how long after its Timeout a call that does not return keeps its slot: three times as long as the engine
	// waits for it, by default, before it gives its worker up.
	lapsesAfter = 3 * consumer.DefaultStuckAfter
	// looksEach is how often is looked for such calls at most.
	looksEach = time.Second
)

func (r *running) n() int { return len(r.of) }

func (r *running) enter(ctx context.Context) *call {
	c := &call{ctx: ctx}
	r.of[c] = struct{}{}
	return c
}

func (r *running) leave(c *call) { delete(r.of, c) }

// lapse takes the slots of calls that do not return. The sequence: a handler hangs, and ignores its context; the engine gives its
// worker up and goes on with another one; that takes the next slot, until all of them are lost, and everything waits for a slot
// without a worker, for ever. As it is, so many come to hang that the consumer says that only a restart helps
// (consumer.Config.MaxStuck).
func (r *running) lapse(now time.Time) {
	if now.Before(r.looks) {
		return
	}
	r.looks = now.Add(looksEach)
	for c := range r.of {
		switch {
		case !errors.Is(context.Cause(c.ctx), consumer.ErrTimeout): // one whose claim has ended keeps its worker, too
		case c.over.IsZero():
			c.over = now
		case now.Sub(c.over) >= lapsesAfter:
			r.leave(c)
		}
	}
}
