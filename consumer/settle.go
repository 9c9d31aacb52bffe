package consumer

import (
	"errors"

	"github.com/longshoremq/longshore/broker"
)

// ackRange acks messages [a, b) of r with one call. l lends its buffer; nil for callers that are no workers.
func (c *Consumer) ackRange(l *local, r *work, a, b int) {
	if a >= b {
		return
	}
	tokens := r.tokens
	if tokens != nil {
		tokens = tokens[a:b]
	} else {
		if l == nil {
			l = &local{}
		}
		l.tokens = l.tokens[:0]
		for _, m := range r.part(a, b) {
			l.tokens = append(l.tokens, m.Token)
		}
		tokens = l.tokens
	}
	c.handled(r.part(a, b))
	c.ack(r.k, tokens, r.lanesOf(a, b))
}

// ack settles messages of k as done; what waits for them in their lanes follows.
func (c *Consumer) ack(k *claim, tokens []uint64, lanes []uint64) {
	err := k.feed.source.Ack(k.Claim, tokens)
	c.settled(len(tokens), err)
	c.release(k, lanes, errors.Is(err, broker.ErrLost))
}

// nack gives messages of k back to the broker; what waits for them in their lanes goes back, too.
func (c *Consumer) nack(k *claim, back []broker.Back, lanes []uint64) {
	err := k.feed.source.Nack(k.Claim, back)
	c.settled(len(back), err)
	c.release(k, lanes, true)
}

// giveBack nacks what no handler finished, and says so.
func (c *Consumer) giveBack(k *claim, back []broker.Back, lanes []uint64, reason string) {
	if len(back) == 0 {
		return
	}
	c.count.givenBack.Add(int64(len(back)))
	c.nack(k, back, lanes)
	c.tell(GivenBack{N: len(back), Reason: reason})
}

// backs gives ms back at once, with the runs they have had.
func backs(ms []broker.Message) []broker.Back {
	back := make([]broker.Back, len(ms))
	for i := range ms {
		back[i] = broker.Back{Token: ms[i].Token, Runs: ms[i].Runs}
	}
	return back
}

// lateOf is how many of n settles that ended with err came too late.
func lateOf(n int, err error) int {
	var lost *broker.LostError
	switch {
	case errors.As(err, &lost):
		return min(max(1, lost.N), n)
	case errors.Is(err, broker.ErrSettled): // they were settled before, and do not come again
		return 0
	}
	return n
}

// settled counts n messages out, and wakes the drain at the last one.
func (c *Consumer) settled(n int, err error) {
	if err != nil {
		late := lateOf(n, err)
		c.count.lost.Add(int64(late))
		c.tell(Lost{N: late, Err: err})
	}
	if c.held.Add(int64(-n)) == 0 {
		select {
		case c.empty <- struct{}{}:
		default:
		}
	}
}
