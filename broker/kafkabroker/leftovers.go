package kafkabroker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker/kit"
)

// Leftovers are where transactions were aborted, and may be open still. Kafka 4.3 takes a partition without a leader for deleted:
// where a coordinator aborts a transaction while a partition of it has none, its records there stay open, and it says that all
// is over. The next transaction of that producer which is committed there commits them, too, and the outputs would be there
// twice. So it is aborted once more before the next one begins there, while each partition keeps its leader: sweep.
type leftovers struct {
	parts map[partitionID]bool
	group bool          // offsets, too
	last  []partitionID // of the last transaction
	// met are where we have written, under an id that a predecessor may have had, whose leftovers nobody knows; nil: nobody had it.
	// What is forgotten of it is aborted once more for nothing.
	met *kit.Recent[partitionID, bool]
}

// inherited are those of an id that is the same after a restart.
func inherited() leftovers {
	return leftovers{group: true, met: kit.NewRecent[partitionID, bool](mostLearned)}
}

// meet takes what is written for the first time for left over, if a predecessor may have written there.
func (l *leftovers) meet(rounds [][]*outBatch) {
	if l.met == nil {
		return
	}
	for _, b := range goesTo(rounds) {
		if _, met := l.met.Get(b.partitionID); !met {
			l.met.Put(b.partitionID, true)
			l.add(b.partitionID)
		}
	}
}

// goesTo has a batch for each partition that a transaction is about to write to: the first round has them all.
func goesTo(rounds [][]*outBatch) []*outBatch {
	if len(rounds) == 0 {
		return nil
	}
	return rounds[0]
}

func (l *leftovers) add(p partitionID) {
	if l.parts == nil {
		l.parts = make(map[partitionID]bool)
	}
	l.parts[p] = true
}

// begin adds what a transaction is about to write to.
func (l *leftovers) begin(rounds [][]*outBatch) {
	l.last, l.group = l.last[:0], true
	for _, b := range goesTo(rounds) {
		l.add(b.partitionID)
		l.last = append(l.last, b.partitionID)
	}
}

// committed says that the last transaction was not aborted.
func (l *leftovers) committed() {
	for _, p := range l.last {
		delete(l.parts, p)
	}
	l.last, l.group = l.last[:0], false
}

// evaded says that there is another producer: nothing that it commits has anything of the one before.
func (l *leftovers) evaded() { *l = leftovers{} }

// touch says whether something is left over where a transaction is about to write.
func (l *leftovers) touch(rounds [][]*outBatch) bool {
	return l.group || slices.ContainsFunc(goesTo(rounds), func(b *outBatch) bool { return l.parts[b.partitionID] })
}

// forget forgets topics that are gone, where there are so many that most may be: topics may come and go for ever.
func (l *leftovers) forget(isGone func(topic string) bool) {
	if len(l.parts) > mostLearned {
		maps.DeleteFunc(l.parts, func(p partitionID, _ bool) bool { return isGone(p.topic) })
	}
}

// A reign is who leads a partition, and since which epoch, as a broker tells it. Where it tells the same twice, there was a
// leader all the time between, as far as it knows: each other one, or none, is another epoch.
type reign struct{ leader, epoch, teller int32 }

// sweep aborts what is left over where a transaction is about to write, and all else that it can. Its partitions and the group
// are made part of a transaction without anything, which is aborted by InitProducerId. An *outputError says which topic waits.
func (x *transactor) sweep(ctx context.Context, rounds [][]*outBatch) error {
	if x.left.meet(rounds); !x.left.touch(rounds) {
		return nil
	}
	before, _, err := x.reigns(ctx)
	if err != nil {
		return err
	}
	led := x.sweepable(before, rounds)
	x.phase = x.phase.after(txnBegun)
	err = x.join(ctx, led)
	x.phase = x.phase.after(txnFailed)
	if err == nil {
		err = x.nameOrEvade(ctx)
	}
	if err != nil {
		return err
	}
	after, isGone, err := x.reigns(ctx)
	if err != nil {
		return err
	}
	if err := x.swept(led, before, after, rounds); err != nil {
		return err
	}
	x.left.forget(isGone)
	return nil
}

// sweepable are the partitions that have a leader. A topic that waits is left out where nothing goes there now: the coordinator
// may refuse it for good.
func (x *transactor) sweepable(at map[partitionID]reign, rounds [][]*outBatch) (ps []partitionID) {
	waits := x.dest.blocked()
	if waits == nil {
		waits = func(string) bool { return false }
	}
	needed := make(map[string]bool)
	for _, b := range goesTo(rounds) {
		needed[b.topic] = true
	}
	for p := range x.left.parts {
		if r, known := at[p]; known && r.leader >= 0 && (needed[p.topic] || !waits(p.topic)) {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, comparePartitions)
	return ps
}

// join makes partitions and the group part of a transaction, whatever its version: Produce and TxnOffsetCommit would do that,
// too, but write something.
func (x *transactor) join(ctx context.Context, ps []partitionID) error {
	if len(ps) > 0 {
		if err := x.addPartitions(ctx, ps); err != nil {
			return err
		}
	}
	return x.addGroup(ctx)
}

// swept forgets what is aborted for sure. Its error says what is not, and is in the way.
func (x *transactor) swept(led []partitionID, before, after map[partitionID]reign, rounds [][]*outBatch) error {
	for _, p := range led {
		if before[p] == after[p] {
			delete(x.left.parts, p)
		}
	}
	if g, known := x.groupsPartition(before); known && (before[g].leader < 0 || before[g] != after[g]) {
		return fmt.Errorf("aborting a transaction once more: %s/%d: %w", g.topic, g.no, kafka.GroupCoordinatorNotAvailable)
	}
	x.left.group = false
	for _, b := range goesTo(rounds) {
		if x.left.parts[b.partitionID] {
			return x.dest.block(b.topic, fmt.Errorf("aborting a transaction once more: %w", kafka.LeaderNotAvailable))
		}
	}
	return nil
}

// reigns are those of what is left over, and of the group's offsets where we may know, as the transaction's coordinator knows
// them, and which topics it does not know.
func (x *transactor) reigns(ctx context.Context) (of map[partitionID]reign, isGone func(topic string) bool, err error) {
	names := map[string]bool{groupsTopic: true}
	for p := range x.left.parts {
		names[p.topic] = true
	}
	node, err := x.to.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	topics, err := x.c.topicsBy(ctx, node, slices.Sorted(maps.Keys(names)))
	if err != nil {
		x.to.found = false
		return nil, nil, err
	}
	of = make(map[partitionID]reign)
	for name, t := range topics {
		for no, leader := range t.leaders {
			if t.err == nil {
				of[partitionID{name, int32(no)}] = reign{leader, t.epochs[no], node}
			}
		}
	}
	return of, func(topic string) bool { return codeOf(topics[topic].err) == kafka.UnknownTopicOrPartition }, nil
}

// groupsPartition is where the group's offsets are.
func (x *transactor) groupsPartition(of map[partitionID]reign) (p partitionID, known bool) {
	n := int32(0)
	for q := range of {
		if q.topic == groupsTopic {
			n++
		}
	}
	if n == 0 {
		return p, false
	}
	return partitionID{groupsTopic, javaHash(x.k.group) % n}, true
}

// javaHash is how brokers hash a group's name, which has no letters beyond the first plane.
func javaHash(s string) int32 {
	h := int32(0)
	for _, r := range s {
		h = 31*h + r
	}
	return max(h, -h, 0) // of the least number there is no other
}
