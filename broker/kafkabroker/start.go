package kafkabroker

import (
	"context"
	"errors"
	"fmt"

	kafka "github.com/segmentio/kafka-go"
)

// A start is a partition on its way from its assignment to its claim.
type start struct {
	partitionID
	ctx    context.Context
	cancel context.CancelFunc // it is not wanted any more
	// reset says why what is committed is of no use, when that is known.
	reset error

	// What came of it.
	id       topicID
	at       position // what is committed
	progress progress
	book     *book // what the progress was taken from, where it was none that is committed
	gap      error // why messages may be missing before position
	warning  error
}

func newStart(id partitionID, reset error) *start {
	b := &start{partitionID: id, reset: reset}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// A starter finds out where partitions begin.
type starter struct {
	cfg   *Config
	c     *cluster
	k     *coordinator
	m     membership
	atlas *atlas
	books *books
	note  contact
	bells *bells
}

// run tries until it is known, and says whether it is; not where it is not wanted any more, or life has ended.
func (x *starter) run(life context.Context, b *start) bool {
	defer b.cancel()
	defer context.AfterFunc(life, b.cancel)()
	for {
		err := x.lookUp(b)
		if b.ctx.Err() != nil || err == nil {
			return b.ctx.Err() == nil
		}
		x.note.failed(err)
		signal(x.bells.find)
		pause(b.ctx, retryWait)
	}
}

// lookUp reads what is committed, and finds out where to begin where that is of no use. A position that was found so is committed
// at once: else what comes before the first commit would be skipped after a crash (start latest).
func (x *starter) lookUp(b *start) error {
	leader, id := x.atlas.of(b.partitionID)
	if leader < 0 {
		return fmt.Errorf("%s/%d: %w", b.topic, b.no, kafka.LeaderNotAvailable)
	}
	b.id = id
	at, err := x.k.positions(b.ctx, []partitionID{b.partitionID})
	if err == nil {
		err = at[b.partitionID].err
	}
	if err != nil {
		return err
	}
	pos := at[b.partitionID]
	b.at, b.book = pos, nil
	b.progress = progress{base: pos.offset, log: b.id.log()}
	if pos.offset >= 0 {
		b.progress, b.warning = decodeMetadata(pos.offset, pos.metadata)
	}
	switch was := b.progress.log; {
	case b.reset == nil && pos.offset >= 0 && was != 0 && b.id.log() != 0 && was != b.id.log():
		b.reset = errRecreated
	case b.reset == nil && pos.offset >= 0:
		b.progress.log = b.id.log()
		if k := x.books.of(b, pos); k != nil {
			return x.goOn(b, k, leader)
		}
		return nil
	}
	return x.reset(b, leader)
}

var errRecreated = errors.New("the topic was deleted and made again")

// goOn continues a book where the log still has what was looked through. An error is worth another try.
func (x *starter) goOn(b *start, k *book, leader int32) error {
	epoch, end, err := x.c.epochEnd(b.ctx, leader, b.partitionID, k.epoch)
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

// reset finds the first offset by policy, and commits it.
func (x *starter) reset(b *start, leader int32) error {
	offset, err := x.c.listOffset(b.ctx, leader, b.partitionID, x.cfg.resetTime(b.reset), x.cfg.isolation())
	if err == nil && offset < 0 { // nothing is as late as that
		offset, err = x.c.listOffset(b.ctx, leader, b.partitionID, timeEnd, x.cfg.isolation())
	}
	if err != nil {
		return err
	}
	b.progress = progress{base: offset, log: b.id.log()}
	b.gap = b.reset
	c := &commitment{partitionID: b.partitionID, offset: offset, metadata: b.progress.encode(metadataLimit)}
	if err := x.k.commit(b.ctx, x.m.id(b.partitionID), []*commitment{c}); err != nil {
		return err
	}
	b.at = position{offset: c.offset, metadata: c.metadata}
	return c.err
}
