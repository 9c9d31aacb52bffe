package kafkabroker

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	kafka "github.com/segmentio/kafka-go"
)

// A start is a partition on its way from its assignment to its claim.
type start struct {
	partitionID
	unwanted atomic.Bool // it shall not begin any more
	// reset says why what is committed is of no use, when that is known.
	reset error
	// before is the reset of an earlier one of the partition that did not come to its end here.
	before error
	away   openEnded // for how long nobody serves it
	room   int       // how long the metadata of its first commit may be; 0: the broker takes none

	// What came of it.
	place
	waits    bool // for the group to assign the topic that was there at our last look
	dispute  dispute
	at       position // what is committed
	lapsed   bool     // it is not any more: the group has forgotten it
	epoch    int32    // with it; -1: none
	progress progress
	book     *book // what the progress was taken from, where it was none that is committed
	gap      error // why messages may be missing before position
	warning  error
}

func newStart(id partitionID, reset error) *start {
	return &start{partitionID: id, reset: reset, epoch: -1, room: metadataLimit}
}

// read reads what is committed.
func (b *start) read(pos position) {
	b.epoch, pos.after = pos.after-1, 0
	b.at, b.book = pos, nil
	b.progress = progress{base: pos.offset, log: b.id.log()}
	if pos.offset >= 0 {
		b.progress, b.warning = decodeMetadata(pos.offset, pos.metadata)
	}
	if b.progress.log == 0 || b.warning != nil { // not ours: others hand on an epoch that their offset is not of
		b.epoch = -1
	}
	if pos.offset < 0 && b.reset == nil { // and nobody else has begun it since
		b.reset = b.remembered()
	}
}

// remembered says why what the group has nothing of any more is to begin anew; nil: it is new to us, too.
func (b *start) remembered() error {
	if b.before == nil && b.again {
		return errRecreated
	}
	return b.before
}

// otherLog says whether what is committed is of another topic than the one that was there at our last look.
func (b *start) otherLog() bool {
	was, is := b.progress.log, b.id.log()
	return b.reset == nil && b.at.offset >= 0 && was != 0 && is != 0 && was != is
}

// undecided says whether the coordinator keeps it from its beginning, for it has another topic than our last look.
func (b *start) undecided() bool { return b.waits || b.otherLog() }

// A dispute is that what is committed is of another topic than the one of our last look. Which of the two is the old one is not
// known before a look that begins later: a member that has not looked since the topic was made anew reads here what others have
// done of the new one already, and would do all of it again.
type dispute struct {
	log  uint64 // of what is committed
	look int    // the last that had begun when that was read first
}

// disputed says whether to look again before what is committed is taken for that of an old topic. looks have begun.
func (b *start) disputed(looks int) bool {
	if !b.otherLog() {
		return false
	}
	if b.dispute.log != b.progress.log {
		b.dispute = dispute{b.progress.log, looks}
	}
	return b.look <= b.dispute.look
}

// known says whether what is committed, which is not disputed, is where to begin.
func (b *start) known() bool {
	if b.otherLog() {
		b.reset = errRecreated
	}
	if b.reset != nil || b.at.offset < 0 {
		return false
	}
	b.progress.log, b.progress.first = b.id.log(), cmp.Or(b.progress.first, b.first)
	return true
}

// added says whether it was not there when the group began with its topic.
func (b *start) added() bool { return b.first > 0 && int(b.no) >= b.first-1 }

// await lets it begin by what is committed when the group assigns it: meanwhile another member may have had it.
func (b *start) await() {
	if b.reset != nil {
		b.before, b.reset = b.reset, nil
	}
}

var errRecreated = errors.New("the topic was deleted and made again")

// unled is why it cannot begin whose place has no leader.
func (b *start) unled() error {
	if b.count == 0 { // the last look did not find it
		return fmt.Errorf("%s/%d: %w", b.topic, b.no, kafka.LeaderNotAvailable)
	}
	return fmt.Errorf("%s/%d: %w: %w", b.topic, b.no, errNoLeader, kafka.LeaderNotAvailable)
}

// metadata is that of its first commit.
func (b *start) metadata() string {
	if b.room == 0 {
		return ""
	}
	return b.progress.encode(b.room)
}

// shorten makes it shorter, for the broker takes none as long as that. The claim's commits find out how much it does take.
func (b *start) shorten() {
	if b.room > leastMetadata {
		b.room = leastMetadata
	} else {
		b.room = 0
	}
}

// stillWanted are those that shall still begin.
func stillWanted(bs []*start) (still []*start) {
	for _, b := range bs {
		if !b.unwanted.Load() {
			still = append(still, b)
		}
	}
	return still
}

// partitionsOf are the partitions of starts.
func partitionsOf(bs []*start) []partitionID {
	ps := make([]partitionID, len(bs))
	for i, b := range bs {
		ps[i] = b.partitionID
	}
	return ps
}
