package membroker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// figures are what was learned of the lag. Safe for concurrent use; its lock is taken inside all others.
type figures struct {
	mu   sync.Mutex
	lag  broker.Lag
	lags []broker.PartitionLag
	// floors are those of each log that the source had.
	floors map[string]int64
	share  broker.Share
}

func newFigures() *figures { return &figures{lag: broker.UnknownLag()} }

func (f *figures) get() broker.Lag {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lag
}

func (f *figures) byPartition() []broker.PartitionLag {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lags)
}

func (f *figures) set(lag broker.Lag, lags []broker.PartitionLag) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag, f.lags = lag, lags
}

// learn takes the figures of an exchange. It runs at the broker.
func (f *figures) learn(p *place, list holdingList, now time.Time) {
	if told := p.b.faults.lag; told != nil {
		f.set(*told, nil)
		return
	}
	lag := p.m.lag(now)
	var lags []broker.PartitionLag
	if p.b.stream == nil {
		waiting := list.waiting()
		for _, n := range waiting {
			lag.Waiting += n
		}
		for _, c := range p.m.owned() {
			_, unsettled := c.behind(nil)
			of := broker.Lag{Waiting: waiting[c], Unsettled: unsettled, At: now}
			lags = append(lags, broker.PartitionLag{Topic: c.log.topic, Partition: c.log.partition, Lag: of})
		}
	}
	f.set(lag, lags)
	f.learnFloors(p.m)
}

// learnShare takes which part of the partitions is the member's. Only the loop calls it, which knows whether we are a member. It
// runs at the broker, also in the request that gives a partition back: learned later, it would be ours and the next one's.
func (f *figures) learnShare(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share = broker.Share{Held: len(m.owned()), All: len(m.g.cursors)}
}

// loseShare takes that the broker does not know us any more, or soon does not: others have all of it.
func (f *figures) loseShare() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share.Held = 0
}

// shareNow is the part that was ours when the broker was last heard.
func (f *figures) shareNow() broker.Share {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.share
}

// learnFloors takes what the group has finished of the logs that are the member's. It runs at the broker.
func (f *figures) learnFloors(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.floors == nil {
		f.floors = make(map[string]int64)
	}
	if m.g.b.stream != nil {
		c := m.g.cursors[0]
		f.floors[c.log.name(c.epoch)] = c.leases.floor
		return
	}
	for _, c := range m.owned() {
		f.floors[c.log.name(c.epoch)] = c.progress().committed
	}
}

func (f *figures) floorsNow() []broker.Floor {
	f.mu.Lock()
	defer f.mu.Unlock()
	fs := make([]broker.Floor, 0, len(f.floors))
	for log, offset := range f.floors {
		fs = append(fs, broker.Floor{Log: log, Offset: offset})
	}
	slices.SortFunc(fs, func(a, b broker.Floor) int { return cmp.Compare(a.Log, b.Log) })
	return fs
}

// waiting counts by partition what was never handed out here. It runs at the broker.
func (l holdingList) waiting() map[*cursor]int64 {
	waiting := make(map[*cursor]int64)
	for _, h := range l {
		waiting[h.cur] = max(0, h.cur.log.end-max(h.high, h.cur.log.first))
	}
	return waiting
}
