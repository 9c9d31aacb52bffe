package consumer

import (
	"bytes"
	"iter"
	"maps"

	"github.com/longshoremq/longshore/broker"
)

// A group is what a claim's messages gather by. The zero value: all of them together.
type group struct {
	byKey bool
	lane  uint64 // with an order: the lane, whose messages come one after the other
	key   string // without
	null  bool   // they have no key
}

// groupOf is the group of a message that may start in its lane.
func (c *Consumer) groupOf(m *Message, lane []uint64) group {
	switch {
	case !c.cfg.Batch.ByKey:
		return group{}
	case len(lane) > 0 && lane[0] != 0:
		return group{byKey: true, lane: lane[0]}
	}
	return group{byKey: true, key: string(m.Key), null: m.Key == nil}
}

// gathering is the incomplete batch of a group; nil: there is none. It needs k.mu, as the other two.
func (k *claim) gathering(of group) *gathering {
	if !of.byKey {
		return k.plain
	}
	return k.byKey[of]
}

func (k *claim) setGathering(of group, g *gathering) {
	switch {
	case !of.byKey:
		k.plain = g
	case g == nil:
		delete(k.byKey, of)
	default:
		if k.byKey == nil {
			k.byKey = map[group]*gathering{}
		}
		k.byKey[of] = g
	}
}

func (k *claim) gatherings() iter.Seq[*gathering] {
	if k.plain == nil {
		return maps.Values(k.byKey)
	}
	return func(yield func(*gathering) bool) { yield(k.plain) }
}

// absorb takes what waits in the lane of g into it, and says whether g is complete by that. It needs the claim's lock: so g is
// what is at large of its lane, and nothing of the lane starts meanwhile.
func (c *Consumer) absorb(g *gathering, thawed *bool) (complete bool) {
	if g.k.lanes.pull(g, c.cfg.Batch, c.unfit) {
		*thawed = true
	}
	return g.complete(c.cfg.Batch)
}

// absorbAll is absorb for the lanes that got more messages.
func (c *Consumer) absorbAll(k *claim, numbers []uint64) {
	var full []*gathering
	thawed := false
	k.mu.Lock()
	for _, n := range numbers {
		of := group{byKey: true, lane: n}
		if g := k.byKey[of]; n != 0 && g != nil && c.absorb(g, &thawed) {
			full = append(full, g)
			delete(k.byKey, of)
		}
	}
	k.mu.Unlock()
	for _, g := range full {
		c.queueBatch(g)
	}
	if thawed {
		c.thaw(k)
	}
}

// pull moves what waits in a lane behind g into it: messages of the same key and claim, while there is room, up to one that comes
// alone. tooLarge ones do: no handler sees them. thawed: no lane is full any more.
func (t *lanes) pull(g *gathering, b *Batch, unfit func(*Message) error) (thawed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, s, key := t.full, t.find(g.of.lane), g.ms[0].Key
	for s.first != nil && !g.complete(b) {
		w := s.first
		if m := &w.m[0]; w.k != g.k || w.alone || unfit(m) != nil || !bytes.Equal(m.Key, key) || (m.Key == nil) != (key == nil) {
			break
		}
		t.pop(s)
		g.add(&w.m[0], []uint64{0}, 0, b) // the lane is the first one's to release
	}
	return was > 0 && t.full == 0
}

// putBack has messages wait at the front of their lane, in their order. Something of the lane is at large.
func (t *lanes) putBack(number uint64, ws []*waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.find(number)
	for i := len(ws) - 1; i >= 0; i-- {
		ws[i].next, s.first = s.first, ws[i]
		if s.last == nil {
			s.last = ws[i]
		}
		s.n++
		t.waiting++
	}
}

// failedLane decides about a batch that is consecutive messages of a lane: what comes before the first that failed is done, and
// what comes behind it waits in the lane again, for it must not be handled before that one is settled. It returns how many were
// acked.
func (c *Consumer) failedLane(r *work, errs []error, late bool) (acked int) {
	var tokens []uint64
	var skipped []int
	n := len(errs)
	for i, e := range errs {
		if e != nil && !IsSkip(e) {
			n = i
			break
		}
		if e != nil {
			skipped = append(skipped, i)
		} else {
			c.handled(r.ms[i : i+1])
		}
		tokens = append(tokens, r.ms[i].Token)
	}
	done := n == len(errs)
	if n > 0 {
		acked = n - len(skipped)
		c.count.skipped.Add(int64(len(skipped)))
		var lane []uint64
		if done {
			lane = r.lanes[:1]
		}
		c.ack(r.k, tokens, lane)
		for _, i := range skipped {
			c.tell(Skipped{Message: &r.ms[i], Reason: skipReason(errs[i])})
		}
	}
	if done {
		return acked
	}
	err := errs[n]
	c.pool.Expect(len(errs) - n - 1)
	r.k.lanes.putBack(r.lanes[0], behind(r.k, r.ms[n+1:], r.lanes[0], !IsDeferred(err)))
	if late {
		err = &lateError{err}
	}
	x := r.item(n)
	x.lane = r.lanes[:1] // the first one has it for all of them
	c.decideOn(x, err)
	return acked
}

// behind are messages of a batch that failed before them. alone: whose fault that was is not known, so each gets a call of its
// own; together, good ones would use up their attempts because of a bad one among them.
func behind(k *claim, ms []broker.Message, number uint64, alone bool) (ws []*waiting) {
	for i := range ms {
		ws = append(ws, &waiting{m: [1]broker.Message{ms[i]}, number: [1]uint64{number}, k: k, alone: alone})
	}
	return ws
}
