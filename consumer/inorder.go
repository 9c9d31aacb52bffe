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
	took := k.lanes.add(k, cut.call, ms, numbers, &cut.stash)
	n := took.start
	from.keep(n)
	if took.wait > 0 {
		in.queue.expect(took.wait)
	}
	in.till.returned(k, took.behind, "lost")
	switch {
	case n == 0:
	case in.cfg.Batch != nil:
		in.till.gather(k, ms[:n], numbers[:n], past{}, false)
	default:
		in.till.submit(submits, k, cut.cut(k, ms[:n], numbers[:n], in.queue.pace.quantum(n), false))
	}
	if all != nil && took.wait > 0 {
		in.till.absorb(k, all)
	}
	if took.crowded != 0 {
		in.tell.laneFull(k, took.crowded)
		in.retries.makeRoom(k)
	}
	if took.full {
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
	// holdFull is how long a claim with a full lane is held at once, and holdEvery how often that is begun anew.
	holdFull  = time.Minute
	holdEvery = holdFull / 2
	// lookFull is how often a dispatcher looks whether its source's lanes are full still.
	lookFull = 10 * time.Millisecond
)

// laneFull stops the intake of a claim that has a full lane: the claim alone where the source can hold it, else all.
func (in *intake) laneFull(submits context.Context, k *claim) {
	if k.hold() {
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

// holdOn has claims held until none of their lanes is full, or ctx ends. When the time of a hold is over another chunk comes: a
// key that fails for hours would have one more each minute, until it has the whole budget and no other partition is received.
func (in *intake) holdOn(ctx context.Context) {
	if !in.cfg.ordered() {
		return
	}
	tick := time.NewTicker(holdEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, t := range in.claims.lanes.all() {
			if k := t.held.Load(); k != nil && t.stillFull() {
				k.holdOn()
			}
		}
	}
}
