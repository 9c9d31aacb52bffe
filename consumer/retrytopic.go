package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

const (
	// spillAt is the share of window or budget in use from which a message that fails is sent to a retry topic, however short its
	// delay is.
	spillAt = 0.5
	// retryShare is the part of the budget that the source of the retry topics has: one in so many.
	retryShare = 8
	// laterBy and latest bound how much later than its time a message of a retry topic may come: a laterBy-th of the step's delay,
	// and latest. What is due within that time is taken together, with one fetch.
	laterBy = 20
	latest  = time.Second
)

// step is where a message goes that has to wait for delay, if anywhere: to the first topic whose messages wait at least as long.
// pressure is how much of the room here is in use, 0..1.
func (t *RetryTopics) step(delay time.Duration, pressure float64) (RetryStep, bool) {
	if t == nil || delay < t.Steps[0].Delay && pressure < spillAt {
		return RetryStep{}, false
	}
	for _, s := range t.Steps {
		if s.Delay >= delay {
			return s, true
		}
	}
	return RetryStep{}, false
}

// spill sends a message that failed to a retry topic, where that is its place. It says whether it did.
func (c *Consumer) spill(x item, f Failed) bool {
	if c.cfg.Retry.Topics == nil {
		return false
	}
	step, ok := c.cfg.Retry.Topics.step(f.Delay, c.pressure(x.k))
	if ok {
		c.letters.add(letter{item: x, failed: f, step: step, due: time.Now().Add(f.Delay)})
	}
	return ok
}

// pressure is how much of the room for messages that wait here is in use.
func (c *Consumer) pressure(k *claim) float64 {
	p := float64(c.parked.len()) / float64(c.cfg.Budget.Messages-c.cfg.retryBudget().Messages)
	if w, ok := k.feed.source.(broker.Windowed); ok {
		p = max(p, w.Window(k.Claim))
	}
	return p
}

// mainBudget is what each source has of the budget, but for that of the retry topics.
func (c Config) mainBudget() broker.Budget {
	b, r := c.Budget, c.retryBudget()
	n := len(c.inputs())
	return broker.Budget{Messages: (b.Messages - r.Messages) / n, Bytes: (b.Bytes - r.Bytes) / int64(n)}
}

func (c Config) retryBudget() broker.Budget {
	if c.Retry.Topics == nil {
		return broker.Budget{}
	}
	return broker.Budget{Messages: max(1, c.Budget.Messages/retryShare), Bytes: max(1, c.Budget.Bytes/retryShare)}
}

// spilled ends a letter to a retry topic: it is there, or it waits here after all.
func (d *letters) spilled(x letter, err error) {
	c, m := d.c, x.failed.Message
	d.done(x)
	if err == nil {
		c.count.spilled.Add(1)
		c.ack(x.k, x.tokens(), x.lane)
		c.tell(Spilled{Failed: x.failed, Topic: x.step.Topic})
		return
	}
	c.tell(SpillFailed{Message: m, Topic: x.step.Topic, Err: err})
	x.failed.Delay = max(0, time.Until(x.due))
	c.park(x.item, x.failed)
}

// relieve sends what waits here to the retry topics where it fills a window: what was handled above it counts there, so that one
// message which waits can stop its partition long after it has failed.
func (c *Consumer) relieve() {
	if c.cfg.Retry.Topics == nil || c.parked.len() == 0 {
		return
	}
	for _, k := range c.openClaims() {
		pressure := c.pressure(k)
		if pressure < spillAt {
			continue
		}
		now := time.Now()
		steps := map[*Message]RetryStep{}
		for _, p := range c.parked.take(func(p parked) bool {
			if p.k != k || p.failed.Message == nil {
				return false
			}
			step, ok := c.cfg.Retry.Topics.step(p.due.Sub(now), pressure)
			steps[p.m] = step
			return ok
		}) {
			c.letters.add(letter{item: p.item, failed: p.failed, step: steps[p.m], due: p.due})
		}
	}
}

// dispatchRetries is dispatch for the source of the retry topics: what is due is handled, what is not is given back and its claim
// held.
func (c *Consumer) dispatchRetries(submits context.Context, f *feed) error {
	for {
		c.gate.wait(submits)
		ms := make([]broker.Message, min(c.cfg.Chunk, c.cfg.retryBudget().Messages))
		n, err := f.source.Receive(ms)
		if errors.Is(err, broker.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiving from the retry topics: %w", err)
		}
		ms = ms[:n]
		c.held.Add(int64(n))
		k := c.claimOf(f, ms[0].Claim)
		now := time.Now()
		var runs []*work
		for i := range ms {
			o := readOrigin(&ms[i])
			due := c.dueOf(&ms[i], o)
			if due.After(now) {
				c.hold(k, ms[i:], due, now)
				break
			}
			o.restore(&ms[i])
			c.received.Add(1)
			if c.cfg.Batch != nil {
				c.gather(k, ms[i:i+1], nil, o.first, false)
				continue
			}
			r := new(work)
			r.init(k, ms[i:i+1:i+1], nil)
			r.first = o.first
			runs = append(runs, r)
		}
		if len(runs) > 0 {
			c.submit(submits, k, runs)
		}
	}
}

// dueOf is when a message of a retry topic may be handled. A time that no longshore wrote, further away than the longest step, is
// not believed.
func (c *Consumer) dueOf(m *Message, o origin) time.Time {
	steps := c.cfg.Retry.Topics.Steps
	if last := m.Time().Add(steps[len(steps)-1].Delay); o.due.After(last) {
		return last
	}
	return o.due
}

// hold gives back messages that are not due, and holds their claim until the first of them is, and those that come soon after it.
func (c *Consumer) hold(k *claim, ms []broker.Message, due, now time.Time) {
	until := due.Add(c.lateness(k.Topic))
	if h, ok := k.feed.source.(broker.Holder); ok {
		h.Hold(k.Claim, until) // first, or they would be fetched again at once
	}
	back := backs(ms)
	if k.feed.traits.NativeDelay > 0 {
		for i := range back {
			back[i].Delay = min(until.Sub(now), k.feed.traits.NativeDelay)
		}
	}
	c.nack(k, back, nil)
}

// lateness is how much later than its time a message of that topic may come.
func (c *Consumer) lateness(topic string) time.Duration {
	for _, s := range c.cfg.Retry.Topics.Steps {
		if s.Topic == topic {
			return min(s.Delay/laterBy, latest)
		}
	}
	return 0
}
