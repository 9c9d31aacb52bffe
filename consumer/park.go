package consumer

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// parked is a message that waits here for its next attempt, because the broker cannot keep the delay. It stays claimed and in the budget,
// copied, so that it pins no fetch buffer.
type parked struct {
	k      *claim
	m      *Message
	failed Failed // why it waits
	due    time.Time
	first  int64
}

// decideOn settles a message whose handler failed, or passes it on to who will. first is when it failed first, in Unix nanoseconds; 0: now.
func (c *Consumer) decideOn(k *claim, m *Message, first int64, err error) {
	t := &k.feed.traits
	d := decide(outcome{
		err: err, runs: m.Runs, attempt: m.Attempt, trust: t.Attempts, cancelled: k.ctx.Err() != nil,
		letters: c.cfg.DeadLetter != nil, maxDeliv: t.MaxDeliveries, random: rand.Float64(),
	}, c.cfg.Retry)
	switch d.verdict {
	case VerdictAck:
		c.count.skipped.Add(1)
		c.ack(k, []uint64{m.Token})
		c.tell(Skipped{Message: m, Reason: skipReason(err)})
	case VerdictGiveBack:
		c.giveBack(k, []broker.Back{{Token: m.Token, Runs: d.runs}}, "shutdown")
	default:
		now := time.Now()
		if first == 0 {
			first = now.UnixNano()
		}
		f := Failed{Message: m, Err: err, Class: d.class, Runs: d.runs, Verdict: d.verdict, Delay: d.delay, Exhausted: d.exhausted}
		c.count.failed.Add(1)
		c.tell(f)
		if d.verdict == VerdictDeadLetter {
			c.letters.add(letter{k: k, failed: f, first: first})
			return
		}
		c.count.retried.Add(1)
		if t.NativeDelay > 0 && d.delay <= t.NativeDelay && !d.keep {
			raise(&c.delayedUntil, now.Add(d.delay).UnixNano())
			c.nack(k, []broker.Back{{Token: m.Token, Delay: d.delay, Runs: d.runs}})
			return
		}
		if !c.spill(k, f, first) {
			c.park(k, f, first)
		}
	}
}

// raise makes a at least v.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); old < v && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// park holds a copy of f's message until its delay has passed, unless nothing of its claim may start any more.
func (c *Consumer) park(k *claim, f Failed, first int64) {
	m := f.Message
	p := parked{k: k, m: m.Clone(), failed: f, due: time.Now().Add(f.Delay), first: first}
	p.failed.Message = p.m
	p.m.Runs = f.Runs
	p.m.Attempt++
	k.mu.Lock()
	over := k.over != ""
	if !over {
		c.parked.add(p.due, p) // under k's lock, so that clear finds it or it sees clear's mark
	}
	k.mu.Unlock()
	if over {
		c.nack(k, []broker.Back{{Token: m.Token, Delay: f.Delay, Runs: f.Runs}})
	}
}

// unpark queues a message whose delay has passed.
func (c *Consumer) unpark(p parked) { c.again(p.k, []broker.Message{*p.m}, p.first) }

// again queues messages that were let in before; it never blocks.
func (c *Consumer) again(k *claim, ms []broker.Message, first int64) {
	r := new(run)
	r.init(k, ms)
	r.first = first
	if k.enter(r) {
		c.pool.Requeue(k.feed.class, r)
		return
	}
	c.giveBack(k, backs(ms), k.why())
}
