package kafkabroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// unservedLimit is after how long it is told that nobody serves a partition. Elections, and restarts of brokers, take less.
const unservedLimit = time.Minute

// errUnserved: a partition has no leader, or its leader cannot read it: all brokers with a replica are down, or their disks fail.
var errUnserved = errors.New("kafkabroker: no broker serves a partition, and nothing of it is read")

// errLeftOut: a broker has answered, and said nothing of a partition that it was asked for.
var errLeftOut = errors.New("its broker's answers leave it out")

// unservedGap is for how long nobody may hear that a partition is not served before it is taken for served: it is not asked for
// while it is paused, or its window is full.
const unservedGap = 15 * time.Second

// An absence is the time for which nobody serves a partition.
type absence struct {
	openEnded
	heard time.Time // of it, the last time
}

// pause is how long to wait before the partition is asked for again, and its leader looked for: an eighth of the time that this
// has taken, within bounds. An election is over in a moment; a disk that fails is not, and each look is a request of every
// process.
func (a absence) pause(now time.Time) time.Duration {
	return min(max(retryWait, now.Sub(a.since)/8), time.Second)
}

// unserved takes note that nobody serves a partition, and tells it where that takes too long. Brokers answer, and other
// partitions go on, so that nothing else tells; and no lag grows, for nobody knows the log's end.
func (x *shared) unserved(p *part, why error) {
	now := time.Now()
	if now.Sub(p.away.heard) > unservedGap {
		p.away = absence{openEnded: openEnded{limit: unservedLimit}}
	}
	p.away.heard = now
	if took, long := p.away.seen(now); long {
		x.events.Say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: unservedFor(p.partitionID, took, why)})
	}
}

// unservedFor says for how long nobody serves a partition, and why.
func unservedFor(p partitionID, took time.Duration, why error) error {
	return fmt.Errorf("%w: %s/%d, for %v: %w", errUnserved, p.topic, p.no, took, why)
}
