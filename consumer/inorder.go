package consumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// laneKey names what has lanes of its own.
type laneKey struct {
	feed      *feed
	topic     string
	partition int32
}

// lanesOf finds or makes the lanes of a claim that begins. It needs c.mu.
func (c *Consumer) lanesOf(k *claim) *lanes {
	if !c.ordered() || k.feed.retries {
		return nil
	}
	for key, t := range c.lanes { // those of partitions that went elsewhere
		if n, _ := t.size(); n == 0 && t.users == 0 {
			delete(c.lanes, key)
		}
	}
	key := laneKey{k.feed, k.Topic, k.Partition}
	t := c.lanes[key]
	if t == nil {
		t = newLanes(c.cfg.Lane)
		c.lanes[key] = t
	}
	t.users++
	return t
}

func (c *Consumer) allLanes() []*lanes {
	if !c.ordered() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.lanes))
}

// dispatchInOrder is dispatch's end for a chunk in an order: what may start is queued, the rest waits in its lanes.
func (c *Consumer) dispatchInOrder(submits context.Context, k *claim, ms []broker.Message, cut *cutter) {
	if len(cut.numbers) < len(ms) {
		cut.numbers = make([]uint64, max(len(ms), c.cfg.Chunk))
	}
	numbers := cut.numbers[:len(ms):len(ms)]
	cut.numbers = cut.numbers[len(ms):]
	for i := range ms {
		numbers[i] = c.cfg.Order.laneOf(&ms[i])
		if numbers[i] == 0 && c.count.unordered.Add(1) == 1 {
			c.tell(Unordered{Message: ms[i].Clone()})
		}
	}
	var all []uint64
	if b := c.cfg.Batch; b != nil && b.ByKey {
		all = slices.Clone(numbers) // add moves them
	}
	n, crowded, full := k.lanes.add(k, ms, numbers, &cut.stash)
	if n < len(ms) {
		c.pool.Expect(len(ms) - n)
	}
	switch {
	case n == 0:
	case c.cfg.Batch != nil:
		c.gather(k, ms[:n], numbers[:n], 0, false)
	default:
		c.submit(submits, k, cut.cut(k, ms[:n], numbers[:n], c.pace.quantum(n), false))
	}
	if all != nil && n < len(ms) {
		c.absorbAll(k, all)
	}
	if crowded {
		c.laneCrowded(k)
	}
	if full {
		c.laneFull(submits, k)
	}
}

// release lets go of the lanes of messages that were settled: what waits in them follows. again: the messages come again, so what
// waits for them goes back, to come again after them.
func (c *Consumer) release(k *claim, numbers []uint64, again bool) {
	if k.lanes == nil || len(numbers) == 0 {
		return
	}
	for len(numbers) > 0 {
		var f followers
		if k.lanes.done(numbers, again, &f) {
			c.thaw(k)
		}
		c.giveBackWaiting(f.back)
		numbers, again = c.follow(f.next), true
	}
}

// follow queues messages whose turn it is. It returns the lanes of those that must not start any more; they are given back.
func (c *Consumer) follow(next []*waiting) (over []uint64) {
	if c.cfg.Batch != nil {
		for _, w := range next {
			c.pool.Expect(-1)
			c.gather(w.k, w.m[:], w.number[:], 0, w.alone)
		}
		return nil
	}
	q := c.pace.quantum(len(next))
	for len(next) > 0 {
		n := 1
		k, r := next[0].k, new(work)
		class := c.classOf(k, &next[0].m[0])
		for n < min(q, len(next)) && next[n].k == k && c.classOf(k, &next[n].m[0]) == class {
			n++
		}
		if n == 1 {
			r.init(k, next[0].m[:], next[0].number[:])
		} else {
			ms, numbers := make([]broker.Message, n), make([]uint64, n)
			for i, w := range next[:n] {
				ms[i], numbers[i] = w.m[0], w.number[0]
			}
			r.init(k, ms, numbers)
		}
		next = next[n:]
		if k.enter(r) {
			c.pool.RequeueExpected(class, r)
			continue
		}
		c.pool.Expect(-len(r.ms))
		c.giveBack(k, backs(r.ms), nil, k.why())
		over = append(over, r.lanes...)
	}
	return over
}

// giveBackWaiting gives back messages that waited, one call for those in a row that are of one claim.
func (c *Consumer) giveBackWaiting(ws []*waiting) {
	for len(ws) > 0 {
		k, n := ws[0].k, 0
		var back []broker.Back
		for n < len(ws) && ws[n].k == k {
			m := &ws[n].m[0]
			back = append(back, broker.Back{Token: m.Token, Runs: m.Runs})
			n++
		}
		reason := k.why()
		if reason == "" {
			reason = "lost" // the one before it was
		}
		c.pool.Expect(-n)
		c.giveBack(k, back, nil, reason)
		ws = ws[n:]
	}
}

// dropWaiting gives back what waits under a claim that has ended.
func (c *Consumer) dropWaiting(k *claim) {
	if k.lanes == nil {
		return
	}
	var f followers
	k.lanes.drop(k, &f)
	c.giveBackWaiting(f.back)
}

// crowded says whether the lane of a message is.
func (c *Consumer) crowded(x item) bool {
	return len(x.lane) > 0 && x.k.lanes.crowded(x.lane[0])
}

const (
	// holdFull is how long a claim with a full lane is held at once.
	holdFull = time.Minute
	// lookFull is how often a dispatcher looks whether its source's lanes are full still.
	lookFull = 10 * time.Millisecond
)

// laneCrowded says that a lane has reached its limit, and makes room where the policy says so.
func (c *Consumer) laneCrowded(k *claim) {
	_, waiting := k.lanes.size()
	c.tell(LaneFull{Topic: k.Topic, Partition: k.Partition, Waiting: waiting})
	if c.cfg.Lane.Full == LaneDeadLetter {
		c.clearHeads(k)
	}
}

// laneFull stops the intake of a claim that has a full lane: the claim alone where the source can hold it, else all.
func (c *Consumer) laneFull(submits context.Context, k *claim) {
	if h, ok := k.feed.source.(broker.Holder); ok {
		h.Hold(k.Claim, time.Now().Add(holdFull))
		if !k.lanes.stillFull() { // thawed before it was held
			h.Hold(k.Claim, time.Now())
		}
		return
	}
	tick := time.NewTicker(lookFull)
	defer tick.Stop()
	for k.lanes.stillFull() && !k.closed.Load() {
		select {
		case <-submits.Done():
			return
		case <-tick.C:
		}
	}
}

// thaw lets a claim go on whose lanes are not full any more.
func (c *Consumer) thaw(k *claim) {
	if h, ok := k.feed.source.(broker.Holder); ok {
		h.Hold(k.Claim, time.Now())
	}
}

// clearHeads dead-letters what waits for its next attempt at the head of a crowded lane.
func (c *Consumer) clearHeads(k *claim) {
	for _, p := range c.parked.take(func(p parked) bool { return p.failed.Message != nil && p.k.lanes == k.lanes && c.crowded(p.item) }) {
		p.failed.Verdict = VerdictDeadLetter
		c.letters.add(letter{item: p.item, failed: p.failed})
	}
}
