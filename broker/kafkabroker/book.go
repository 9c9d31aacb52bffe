package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/longshoremq/longshore/broker/kit"
)

// A book is what a source remembers of a partition that was lost to it, because nobody answered for a session or the group did
// not know it any more: what is finished there by acks that said nil, committed or not. Where the partition comes back and nobody
// has committed since, it goes on from there.
//
// That nothing is lost by it takes two things. The offsets must name the same messages: the log is the same topic's, and it was
// not cut off below what is finished (OffsetForLeaderEpoch, KIP-320). And nobody may want them again: what is committed is,
// letter by letter, a commit of ours. Another member writes down that it has begun, and an administrator's commit has no
// metadata, so each of them ends the book. What was out when the partition was lost is not finished, whatever its handler did
// later.
type book struct {
	progress
	known []position // what may be committed, if nobody else has committed
	epoch int32      // of the leader that wrote the last batch that was looked at
}

// top is the offset below which the log must be the same.
func (k *book) top() int64 {
	if n := len(k.done); n > 0 {
		return k.done[n-1].to
	}
	return k.base
}

// mostKnown is how many commits are remembered that may be the last one: those that got no answer, and the last one that did.
const mostKnown = 8

// A commitMemory is what a claim knows of its commits, and of the log that it looked through.
type commitMemory struct {
	known []position // see book
	epoch int32      // of the leader that wrote the last batch below top; -1: not known
	top   int64      // what is known of the log is below it
	room  int        // how long the metadata of a commit may be; 0: the broker takes none
}

// memory is what a claim begins with.
func (b *start) memory() commitMemory {
	if b.book != nil {
		return commitMemory{known: b.book.known, epoch: b.book.epoch, room: metadataLimit}
	}
	return commitMemory{known: []position{b.at}, epoch: b.epoch, room: metadataLimit}
}

// sent notes a commit on its way.
func (m *commitMemory) sent(c position) {
	if i := len(m.known); i > 0 && m.known[i-1] == c {
		return
	}
	if len(m.known) == mostKnown {
		m.known = slices.Delete(m.known, 1, 2) // not the first: it was answered
	}
	m.known = append(m.known, c)
}

// taken notes that it was answered.
func (m *commitMemory) taken(c position) { m.known = append(m.known[:0], c) }

// Books are those of a source. Safe for concurrent use.
type books struct {
	mu   sync.Mutex
	logs map[logID]*book
	left map[logID]position // the last of our commits that was answered, of what was lost to us
	// voids are topics of which the group has forgotten what was committed
	voids *kit.Recent[topicID, bool]
}

// keep remembers a part that is fenced.
func (x *books) keep(p *part) {
	if len(p.known) == 0 || p.known[0].offset < 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.logs == nil {
		x.logs, x.left, x.voids = make(map[logID]*book), make(map[logID]position), kit.NewRecent[topicID, bool](mostLearned)
	}
	was := p.known[0]
	was.after = p.epoch + 1
	x.left[p.logID()] = was
	// exact: a transaction may be under way, and nobody knows what becomes of it
	if p.epoch < 0 || p.room == 0 || p.tr.exact {
		return
	}
	snap := p.tr.snapshot(true) // it is no crash
	x.logs[p.logID()] = &book{progress: snap.progress, known: slices.Clone(p.known), epoch: p.epoch}
}

// errForgotten is why a partition that another member had begins anew.
var errForgotten = errors.New("the group has no committed offset any more: its brokers lost it, or somebody deleted the group")

// forgotten says whether the group has forgotten what was committed of a partition that begins, and where we left that: its
// brokers lost it, or somebody deleted the group while it did not hear us. Had anybody gone on with the partition since,
// something would be committed. That of another member's is known to that one alone. A topic without an id may be another one of
// that name.
func (x *books) forgotten(b *start, at position) (was position, ours, is bool) {
	if at.offset >= 0 || b.reset != nil || b.remembered() != nil || b.id.log() == 0 {
		return at, false, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left == nil { // nothing was ever lost to us
		return at, false, false
	}
	if was, ours = x.left[logID{b.partitionID, b.id}]; ours {
		x.voids.Put(b.id, true)
		return was, true, true
	}
	_, is = x.voids.Get(b.id)
	for log := range x.left {
		is = is || log.topic == b.topic && log.topicID == b.id
	}
	return at, false, is && !b.added()
}

// of is the book of a partition that begins, where what is committed is as we left it.
func (x *books) of(b *start, at position) *book {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.logs[logID{b.partitionID, b.id}]
	if k == nil || b.reset != nil || at.metadata == "" || !slices.Contains(k.known, at) {
		return nil
	}
	return k
}

// end forgets the partition's: a claim has begun. What it had when its topic was another one is of no use any more either.
func (x *books) end(p partitionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.logs, func(log logID, _ *book) bool { return log.partitionID == p })
	maps.DeleteFunc(x.left, func(log logID, _ position) bool { return log.partitionID == p })
}

// forget forgets those of logs that are gone: no claim of theirs ever begins here, and topics may come and go for ever.
func (x *books) forget(isGone func(partitionID, topicID) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.logs, func(log logID, _ *book) bool { return isGone(log.partitionID, log.topicID) })
	maps.DeleteFunc(x.left, func(log logID, _ position) bool { return isGone(log.partitionID, log.topicID) })
}

const keyOffsetForLeaderEpoch = 23

// An epochEnd is where the log of a leader's epoch ends, and of which epoch that is: an earlier one where the log has nothing of
// the one that was asked for.
type epochEnd struct {
	epoch  int32
	offset int64
	err    error
}

// epochEnds asks the leader of partitions where the logs of epochs end.
func (c *cluster) epochEnds(ctx context.Context, leader int32, epochs map[partitionID]int32) (map[partitionID]epochEnd, error) {
	if _, err := c.pick(ctx, leader, keyOffsetForLeaderEpoch, 3); err != nil {
		return nil, err
	}
	w := writer{}
	w.i32(-1) // replica
	w.partitions(slices.Collect(maps.Keys(epochs)), func(p partitionID) {
		w.i32(p.no)
		w.i32(-1) // the leader's own epoch
		w.i32(epochs[p])
	})
	r, err := c.do(ctx, leader, keyOffsetForLeaderEpoch, 3, w.b)
	if err != nil {
		return nil, err
	}
	return readEpochEnds(r)
}

func readEpochEnds(r *reader) (map[partitionID]epochEnd, error) {
	r.i32()
	ends := make(map[partitionID]epochEnd)
	r.each(func() {
		name := r.str()
		r.each(func() {
			code := r.i16()
			p := partitionID{name, r.i32()}
			e := epochEnd{epoch: r.i32(), offset: r.i64()}
			if err := codeErr(code); err != nil {
				e.err = fmt.Errorf("looking up a leader epoch: %w", err)
			}
			ends[p] = e
		})
	})
	return ends, r.err()
}
