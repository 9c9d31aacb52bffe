package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// laneOf names what is handled one after the other with m, which came when its topic was made anew epoch times; "": nothing.
func (r *run) laneOf(m *consumer.Message, epoch int) string {
	switch {
	case r.schedule.Settings.Order == consumer.OrderPartition:
		return fmt.Sprintf("%s/%d#%d", m.Topic, m.Partition, epoch)
	case r.schedule.Settings.Order == consumer.OrderKey && m.Key != nil:
		return fmt.Sprintf("%s/%d#%d %s", m.Topic, m.Partition, epoch, m.Key)
	}
	return ""
}

// judgeOverlap: of a lane one run is under way at a time. In another process a run may still go on that was told to end, or
// that a frozen process is at, also after its thaw, until it has heard what it has lost. It needs book.mu.
func (r *run) judgeOverlap(e, other *entry) {
	switch {
	case other.process == e.process && other.batch != e.batch:
	case other.process == e.process:
		return
	case !r.ordered || other.zombie || other.process.isDead() || other.process.isBehind() || over(other.claim) || r.stolen():
		return
	}
	r.book.findHere("%s begins m%d while %s is at m%d, of the same lane %s", e.process.name, e.message,
		other.process.name, other.message, e.lane)
}

// stolen says whether a partition was stolen so shortly that its owner may not know it yet.
func (r *run) stolen() bool {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	return r.stolenNow()
}

// stolenNow needs r.ownersMu.
func (r *run) stolenNow() bool {
	return time.Since(r.stolenAt) < time.Duration(r.schedule.Settings.Lease)
}

// steals writes down that a partition is about to be stolen.
func (r *run) steals() {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	r.stolenAt = time.Now()
}

// renews notes that a topic is made anew.
func (r *run) renews() {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	r.renewedAt = time.Now()
}

// robbed says whether m is of a partition that was stolen from this process and that somebody else has.
func (p *process) robbed(m *consumer.Message) bool {
	p.run.ownersMu.Lock()
	defer p.run.ownersMu.Unlock()
	owner := p.run.owners[fmt.Sprintf("%s/%d", m.Topic, m.Partition)]
	return owner != nil && owner != p && p.run.stolenNow()
}

// judgeOrder checks the begins of the runs against each other, where the order holds over all processes. What a process did
// while it was frozen, or with a context that was over, counts as done and not as begun.
func (r *run) judgeOrder() {
	b := r.book
	if r.schedule.Settings.Order == consumer.OrderNone || !r.ordered && !r.kind.Pins {
		return
	}
	var runs []ledger.Run
	lanes := map[int64]int64{}
	letters := slices.Clone(b.stamps)
	for _, e := range b.entries {
		if e.lane == "" {
			continue
		}
		seq := r.placeOf(e)
		if gone := b.stored[e.message].gone; gone > 0 { // nothing waits for it any more, nor when it fails later
			letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: gone})
			letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: max(gone, e.end)})
		}
		if e.outcome == ledger.Failed && b.ackedLate(e) {
			letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: e.end})
		}
		if e.zombie || e.batch != nil && e.outcome == ledger.Running {
			if e.outcome == ledger.Done {
				letters = append(letters, ledger.Letter{Seq: seq, Pid: e.process.no, At: e.end})
			}
			continue
		}
		lanes[int64(e.message)] = hash(e.lane)
		runs = append(runs, ledger.Run{
			ID: int64(e.message), Seq: seq, Pid: e.process.no, Begin: e.begin, End: e.end, Outcome: e.outcome,
		})
	}
	slices.SortFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Begin, y.Begin) })
	o := ledger.Inspect(runs, letters, func(id int64) int64 { return lanes[id] })
	for _, what := range o.Found {
		b.find("order: %s", what)
	}
}

// ackedLate says whether a failed run may have been of a message that was settled by then: another process had lost it, done, and
// its ack came to the broker while this one was at it. So nothing comes to be tried again once the claim has ended, or the
// message was given back, as one is whose lease ran out while it waited for its retry. Otherwise that holds up what follows all
// the same. It needs b.mu.
func (b *book) ackedLate(e *entry) (done bool) {
	for _, x := range b.entries {
		switch {
		case x.process == e.process && x.claim == e.claim && x.lane == e.lane && x.begin > e.end && !b.wasBack(e, x.began):
			return false
		case x.process != e.process && x.message == e.message && x.outcome == ledger.Done && x.end < e.begin:
			done = true
		}
	}
	return done
}

// wasBack says whether the message of a run was given back under its claim behind it, and before a time. It needs b.mu.
func (b *book) wasBack(e *entry, before time.Time) bool {
	return slices.ContainsFunc(b.backs[back{e.message, e.claim}], func(at time.Time) bool {
		return !at.Before(e.ended) && !at.After(before)
	})
}

// placeOf is where a message stands among all: by topic, partition, how often the topic was made anew, and offset. It needs
// book.mu.
func (r *run) placeOf(e *entry) int64 {
	s := &r.book.stored[e.message]
	return e.seq + int64(slices.Index(r.schedule.Inputs(), s.topic))<<50 + int64(s.epoch)<<32
}

func hash(s string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return int64(h.Sum64() >> 1)
}
