package consumer

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/chance"
)

// parked is a message that waits here for its next attempt, because the broker cannot keep the delay. It stays claimed and in the
// budget, copied, so that it pins no fetch buffer.
type parked struct {
	item
	failed Failed // why it waits; without a Message: it was deferred
	due    time.Time
}

// decideOn settles a message whose handler failed, or passes it on to who will.
func (c *Consumer) decideOn(x item, err error) {
	k, t, m := x.k, &x.k.feed.traits, x.m
	var later *deferError
	if errors.As(err, &later) && k.ctx.Err() == nil {
		c.putOff(x, later)
		return
	}
	d := decide(outcome{
		err: err, runs: m.Runs, attempt: m.Attempt, trust: t.Attempts, cancelled: k.ctx.Err() != nil,
		letters: c.cfg.DeadLetter != nil, maxDeliv: t.MaxDeliveries, random: chance.Float64(),
		failing: failingFor(x.first),
		crowded: c.cfg.Lane.Full == LaneDeadLetter && c.crowded(x),
	}, c.cfg.Retry)
	switch d.verdict {
	case VerdictAck:
		c.count.skipped.Add(1)
		c.ack(k, x.tokens(), x.lane)
		c.tell(Skipped{Message: m, Reason: skipReason(err)})
	case VerdictGiveBack:
		c.giveBack(k, x.back(d.runs), x.lane, "shutdown")
	default:
		now := time.Now()
		if x.first == 0 {
			x.first = now.UnixNano()
		}
		f := Failed{Message: m, Err: err, Class: d.class, Runs: d.runs, Verdict: d.verdict, Delay: d.delay, Exhausted: d.exhausted}
		c.count.failed.Add(1)
		c.tell(f)
		if d.verdict == VerdictDeadLetter {
			c.letters.add(letter{item: x, failed: f})
			return
		}
		c.count.retried.Add(1)
		// In an order it waits here: given back, it would let the next one pass. With an end in time, too: the broker would forget when
		// it began.
		if t.NativeDelay > 0 && d.delay <= t.NativeDelay && c.cfg.Retry.GiveUpAfter == 0 && !d.keep && x.lane == nil {
			raise(&c.delayedUntil, now.Add(d.delay).UnixNano())
			c.nack(k, []broker.Back{{Token: m.Token, Delay: d.delay, Runs: d.runs}}, nil)
			return
		}
		if !c.spill(x, f) {
			c.park(x, f)
		}
	}
}

// failingFor is how long ago first was, in Unix nanoseconds; 0: it is now.
func failingFor(first int64) time.Duration {
	if first == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, first)))
}

// raise makes a at least v.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); old < v && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// park holds a copy of a message that failed until its delay has passed, unless nothing of its claim may start any more.
func (c *Consumer) park(x item, f Failed) {
	k, p := x.k, parked{item: x.keep(), failed: f, due: time.Now().Add(f.Delay)}
	p.failed.Message = p.m
	p.m.Runs = f.Runs
	p.m.Attempt++
	k.mu.Lock()
	over := k.over != ""
	if !over {
		c.parked.add(p.due, p) // under k's lock, so that clear finds it or it sees clear's mark
	}
	k.mu.Unlock()
	if !over && c.cfg.Lane.Full == LaneDeadLetter && c.crowded(x) { // it became so when nothing was parked yet
		c.clearHeads(k)
	}
	if over {
		c.nack(k, []broker.Back{p.rest(time.Now())}, x.lane)
	}
}

// rest gives it back with the rest of its delay; in an order with none, or those behind it would come first.
func (p *parked) rest(now time.Time) broker.Back {
	b := broker.Back{Token: p.m.Token, Runs: p.m.Runs}
	if p.lane == nil {
		b.Delay = max(0, p.due.Sub(now))
	}
	return b
}

// unpark queues a message whose delay has passed.
func (c *Consumer) unpark(p parked) { c.again(p.k, []broker.Message{*p.m}, p.lane, p.first) }

// again queues messages that were let in before; it never blocks.
func (c *Consumer) again(k *claim, ms []broker.Message, lanes []uint64, first int64) {
	if c.cfg.Batch != nil {
		c.gather(k, ms, lanes, first, first != 0)
		return
	}
	r := new(work)
	r.init(k, ms, lanes)
	r.first, r.each = first, true
	if k.enter(r) {
		c.pool.Requeue(c.classOf(k, &ms[0]), r)
		return
	}
	c.giveBack(k, backs(ms), lanes, k.why())
}
