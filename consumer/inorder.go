package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// passInOrder is pass for a chunk in an order: what may start is queued, the rest waits in its lanes, which have copies.
func (in *intake) passInOrder(submits context.Context, k *claim, ms []broker.Message, cut *cutter, from *slab) {
	numbers := cut.lanesOf(len(ms), in.cfg.Chunk)
	for i := range ms {
		numbers[i] = in.cfg.Order.laneOf(&ms[i])
		if numbers[i] == 0 {
			in.unordered(&ms[i])
		}
	}
	var all []uint64
	if b := in.cfg.Batch; b != nil && b.ByKey {
		all = slices.Clone(numbers) // add moves them
	}
	n, crowded, full := k.lanes.add(k, ms, numbers, &cut.stash)
	from.keep(n)
	if n < len(ms) {
		in.queue.expect(len(ms) - n)
	}
	switch {
	case n == 0:
	case in.cfg.Batch != nil:
		in.till.gather(k, ms[:n], numbers[:n], 0, false)
	default:
		in.till.submit(submits, k, cut.cut(k, ms[:n], numbers[:n], in.queue.pace.quantum(n), false))
	}
	if all != nil && n < len(ms) {
		in.till.absorb(k, all)
	}
	if crowded != 0 {
		in.laneCrowded(k, crowded)
	}
	if full {
		in.laneFull(submits, k)
	}
}

// unordered counts a message without a key, and tells of the first.
func (in *intake) unordered(m *Message) {
	if in.tell.count.unordered.Add(1) == 1 {
		in.tell.tell(Unordered{Message: m.Clone()})
	}
}

const (
	// holdFull is how long a claim with a full lane is held at once.
	holdFull = time.Minute
	// lookFull is how often a dispatcher looks whether its source's lanes are full still.
	lookFull = 10 * time.Millisecond
)

// laneCrowded says that a lane has reached its limit, and makes room where the policy says so.
func (in *intake) laneCrowded(k *claim, number uint64) {
	_, waiting, _ := k.lanes.size()
	in.tell.tell(LaneFull{Topic: k.Topic, Partition: k.Partition, Waiting: waiting, First: k.lanes.first(number)})
	in.retries.makeRoom(k)
}

// laneFull stops the intake of a claim that has a full lane: the claim alone where the source can hold it, else all.
func (in *intake) laneFull(submits context.Context, k *claim) {
	if k.hold() {
		if !k.lanes.stillFull() { // thawed before it was held
			k.thaw()
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
