package consumer

import (
	"github.com/longshoremq/longshore/broker"
)

// ackRange acks messages [a, b) of r with one call. l lends its buffer; nil for callers that are no workers.
func (c *Consumer) ackRange(l *local, r *run, a, b int) {
	if a >= b {
		return
	}
	if l == nil {
		l = &local{}
	}
	l.tokens = l.tokens[:0]
	for i := a; i < b; i++ {
		l.tokens = append(l.tokens, r.ms[i].Token)
	}
	c.count.handled.Add(int64(b - a))
	c.ack(r.c, l.tokens)
}

// ack settles messages of k as done.
func (c *Consumer) ack(k *claim, tokens []uint64) {
	c.settled(len(tokens), k.feed.source.Ack(k.Claim, tokens))
}

// nack gives messages of k back to the broker.
func (c *Consumer) nack(k *claim, back []broker.Back) {
	c.settled(len(back), k.feed.source.Nack(k.Claim, back))
}

// giveBack nacks what no handler finished, and says so.
func (c *Consumer) giveBack(k *claim, back []broker.Back, reason string) {
	if len(back) == 0 {
		return
	}
	c.count.givenBack.Add(int64(len(back)))
	c.nack(k, back)
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

// settled counts n messages out, and wakes the drain at the last one.
func (c *Consumer) settled(n int, err error) {
	if err != nil {
		c.count.lost.Add(int64(n))
		c.tell(Lost{N: n, Err: err})
	}
	if c.held.Add(int64(-n)) == 0 {
		select {
		case c.empty <- struct{}{}:
		default:
		}
	}
}
