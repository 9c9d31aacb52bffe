package kafkabroker

import (
	"context"
	"fmt"
	"slices"
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

// sent notes a commit on its way.
func (p *part) sent(c position) {
	if i := len(p.known); i > 0 && p.known[i-1] == c {
		return
	}
	if len(p.known) == mostKnown {
		p.known = slices.Delete(p.known, 1, 2) // not the first: it was answered
	}
	p.known = append(p.known, c)
}

// taken notes that it was answered.
func (p *part) taken(c position) { p.known = append(p.known[:0], c) }

// keepBook remembers a part that is fenced; it needs s.mu.
func (s *Source) keepBook(p *part) {
	if p.epoch < 0 || len(p.known) == 0 || p.bare {
		return
	}
	snap := p.tr.snapshot(true) // it is no crash
	s.books[logKey{p.partitionID, p.id.log()}] = &book{progress: snap.progress, known: slices.Clone(p.known), epoch: p.epoch}
}

// bookOf is the book of a partition that begins, where what is committed is as we left it.
func (s *Source) bookOf(b *start, at position) *book {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.books[logKey{b.partitionID, b.id.log()}]
	if k == nil || b.reset != nil || at.metadata == "" || !slices.Contains(k.known, at) {
		return nil
	}
	return k
}

// goOn continues a book where the log still has what was looked through. An error is worth another try.
func (s *Source) goOn(b *start, k *book, leader int32) error {
	epoch, end, err := s.c.epochEnd(b.ctx, leader, b.partitionID, k.epoch)
	switch {
	case err != nil && refused(err): // then as after a restart
		return nil
	case err != nil:
		return err
	case epoch == k.epoch && end >= k.top():
		b.progress, b.book = k.progress, k
	}
	return nil
}

const keyOffsetForLeaderEpoch = 23

// epochEnd asks the leader where the log of an epoch ends, and of which epoch that is: an earlier one where the log has nothing
// of that epoch.
func (c *cluster) epochEnd(ctx context.Context, leader int32, p partitionID, epoch int32) (of int32, end int64, err error) {
	w := writer{}
	w.i32(-1) // replica
	w.array(1)
	w.str(p.topic)
	w.array(1)
	w.i32(p.no)
	w.i32(-1) // the leader's own epoch
	w.i32(epoch)
	if _, err := c.pick(ctx, leader, keyOffsetForLeaderEpoch, 3); err != nil {
		return 0, 0, err
	}
	r, err := c.do(ctx, leader, keyOffsetForLeaderEpoch, 3, w.b)
	if err != nil {
		return 0, 0, err
	}
	return readEpochEnd(r, p)
}

func readEpochEnd(r *reader, p partitionID) (of int32, end int64, err error) {
	r.i32()
	if r.array() != 1 || r.str() != p.topic || r.array() != 1 {
		return 0, 0, errShort
	}
	if err := codeErr(r.i16()); err != nil {
		return 0, 0, fmt.Errorf("looking up a leader epoch: %w", err)
	}
	if r.i32() != p.no {
		return 0, 0, errShort
	}
	of, end = r.i32(), r.i64()
	return of, end, r.err()
}

// takeUp notes what a claim begins with.
func (p *part) takeUp(b *start) {
	p.known, p.epoch = []position{b.at}, -1
	if b.book != nil {
		p.known, p.epoch = b.book.known, b.book.epoch
	}
	delete(p.s.books, logKey{p.partitionID, p.id.log()})
}
