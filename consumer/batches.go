package consumer

import (
	"bytes"
	"context"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// batches gathers messages until a batch is complete or has lingered, and queues it then. It is nil where messages are handled
// one by one. With an order and ByKey a batch is consecutive messages of one lane: its first has come out of the lane, and the
// others are pulled out of it behind that one.
type batches struct {
	cfg     *Batch
	retry   Retry
	letters bool // there is a place for dead letters
	clock   clock
	guard   guard
	queue   *queue
	lingers *schedule[*gathering]
}

func newBatches(cfg *Config, q *queue, c clock) *batches {
	if cfg.Batch == nil {
		return nil
	}
	return &batches{cfg: cfg.Batch, retry: cfg.Retry, letters: cfg.DeadLetter != nil, clock: c, guard: newGuard(cfg),
		queue: q, lingers: newSchedule[*gathering]()}
}

// run calls do with each batch whose time is over, until ctx ends.
func (b *batches) run(ctx context.Context, do func(*gathering)) {
	if b != nil {
		b.lingers.run(ctx, do)
	}
}

// groupOf is the group of a message of a level that may start in its lane.
func (b *batches) groupOf(m *Message, lane []uint64, level int) group {
	switch {
	case !b.cfg.ByKey:
		return group{level: level}
	case len(lane) > 0 && lane[0] != 0:
		return group{byKey: true, lane: lane[0]}
	}
	return group{byKey: true, key: string(m.Key), null: m.Key == nil, level: level}
}

func (b *batches) newGathering(k *claim, of group) *gathering {
	g := &gathering{work: &work{k: k}, of: of}
	if !of.byKey { // else most are small; and so may be large ones, of each partition: it grows then
		g.ms = make([]broker.Message, 0, min(b.cfg.Size, defaultBatchSize))
	}
	return g
}

// lastRun says whether a message becomes a dead letter if it fails once more: then it is a batch of its own. Together with a bad
// one, whose handler panics or has one error for all, good ones would use up their attempts as that does, and become dead letters
// with it. Refusals do not count: a batch that is refused has no bad one in it, and would call what has enough to do once for
// each message then.
func (b *batches) lastRun(k *claim, m *Message, was past) bool {
	if m.Runs == 0 && m.Attempt <= 1 {
		return false
	}
	return lastRun(outcome{
		runs: m.Runs, attempt: m.Attempt, refused: was.refused, together: true, trust: k.feed.traits.Attempts, letters: b.letters,
		maxDeliv: k.feed.maxDeliveries(), failing: b.clock.lasted(was.first),
	}, b.retry)
}

// keeps says whether a message that was refused, with now so many failed runs, waits here for the next, where there is room: a
// broker would not keep how many of them were refused, and when it came again it would be a batch of its own.
func (b *batches) keeps(x item, runs int32) bool {
	if b == nil {
		return false
	}
	next := Message{Runs: runs, Attempt: x.m.Attempt + 1}
	return b.lastRun(x.k, &next, past{})
}

// add takes messages of k into batches, and queues those that are complete. alone: each that has a lane is a batch of its own. It
// never blocks, since the budget bounds what is here; it returns what must not start any more.
func (b *batches) add(k *claim, ms []broker.Message, lanes []uint64, was past, alone bool) (refused []*work) {
	levels := b.queue.levelsOf(ms)
	s := &k.shelf
	s.mu.Lock()
	if k.closed.Load() {
		s.mu.Unlock()
		w := new(work)
		w.init(k, ms, lanes)
		return []*work{w}
	}
	var full, begun []*gathering
	thawed, n := false, len(ms)
	for i := range ms {
		lane := lanePart(lanes, i, i+1)
		level := 0
		if levels != nil {
			level = levels[i]
		}
		of := b.groupOf(&ms[i], lane, level)
		last := b.lastRun(k, &ms[i], was)
		if last && of.lane == 0 {
			g := &gathering{work: &work{k: k}, of: of}
			g.add(&ms[i], lane, was)
			full = append(full, g)
			continue
		}
		g := s.get(of)
		if g == nil {
			g = b.newGathering(k, of)
			s.set(of, g)
			begun = append(begun, g)
		}
		g.add(&ms[i], lane, was)
		if g.complete(b.cfg) || of.lane != 0 && (alone || last || b.guard.check(&ms[i]) != nil || b.pull(g, &thawed)) {
			full = append(full, g)
			s.set(of, nil)
		}
	}
	for _, g := range begun {
		if s.get(g.of) == g {
			g.due = b.lingers.add(time.Now().Add(min(b.cfg.Linger, gathersShared)), g)
		}
	}
	s.mu.Unlock()
	b.queue.expect(n)
	return b.start(k, full, thawed)
}

// pull takes what waits in the lane of g into it: messages of the same key and claim, while there is room, up to one that
// comes alone, as one does that the guard keeps from the handler, or whose last run this would be. It says whether g is
// complete by that, and sets thawed where no lane is full any more. It is called under the shelf's lock: g holds its lane, and
// nothing of that starts meanwhile.
func (b *batches) pull(g *gathering, thawed *bool) (complete bool) {
	key := g.ms[0].Key
	if g.k.lanes.pull(g.of.lane, func(k *claim, m *Message, alone bool) bool {
		same := k == g.k && bytes.Equal(m.Key, key) && (m.Key == nil) == (key == nil)
		if !same || alone || g.complete(b.cfg) || b.guard.check(m) != nil || b.lastRun(k, m, past{}) {
			return false
		}
		g.add(m, []uint64{0}, past{}) // the lane is the first one's to free
		return true
	}) {
		*thawed = true
	}
	return g.complete(b.cfg)
}

// absorb is pull for the lanes that got more messages. It queues the batches that are complete by that, as add does.
func (b *batches) absorb(k *claim, numbers []uint64) (refused []*work) {
	var full []*gathering
	thawed := false
	k.shelf.mu.Lock()
	for _, n := range numbers {
		of := group{byKey: true, lane: n}
		if g := k.shelf.groups[of]; n != 0 && g != nil && b.pull(g, &thawed) {
			full = append(full, g)
			k.shelf.set(of, nil)
		}
	}
	k.shelf.mu.Unlock()
	return b.start(k, full, thawed)
}

// gathersShared is for how long what gathers may refer to what came together with it. To copy it at once would cost more than it
// saves, since most batches are complete before.
const gathersShared = defaultBatchLinger

// lingered queues a batch whose time is over, if it still gathers.
func (b *batches) lingered(g *gathering) (refused []*work) {
	if !b.takeLingered(g) {
		return nil
	}
	return b.start(g.k, []*gathering{g}, false)
}

// takeLingered takes a batch off the shelf whose time is over. It has a first time, after which it keeps nothing in memory but
// its own, and gathers on.
func (b *batches) takeLingered(g *gathering) bool {
	s := &g.k.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.get(g.of) != g {
		return false
	}
	if rest := b.cfg.Linger - gathersShared; rest > 0 && !g.own {
		g.keep()
		g.due = b.lingers.add(g.due.at.Add(rest), g)
		return false
	}
	s.set(g.of, nil)
	return true
}

// start queues batches of k that are on the shelf no more, and has the source go on where the lanes thawed.
func (b *batches) start(k *claim, full []*gathering, thawed bool) (refused []*work) {
	for _, g := range full {
		b.forget(g)
		g.initBatch(nil)
		refused = append(refused, b.queue.requeueExpected(g.work, false)...)
	}
	if thawed {
		k.thaw()
	}
	return refused
}

// forget has a batch that gathers no more wait for nothing: else it would stay in memory for as long as it may linger, though it
// was handled long ago.
func (b *batches) forget(g *gathering) {
	if g.due != nil {
		b.lingers.remove(g.due)
	}
}

// take takes all that gathers of a claim that is closed.
func (b *batches) take(k *claim) (ms []broker.Message, lanes []uint64) {
	if b == nil {
		return nil, nil
	}
	s := &k.shelf
	s.mu.Lock()
	for g := range s.all() {
		b.forget(g)
		ms, lanes = append(ms, g.ms...), append(lanes, g.lanes...)
	}
	s.plain, s.groups = nil, nil
	s.mu.Unlock()
	b.queue.expect(-len(ms))
	return ms, lanes
}
