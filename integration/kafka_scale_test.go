//go:build unix

package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/ledger"
)

// A scaleRow is what a change of the number of members did: how long partitions stood still that moved, and how long those that
// stayed.
type scaleRow struct {
	Row     string  `json:"row"`
	Broker  string  `json:"broker"`
	Members string  `json:"members"`
	Moved   []int32 `json:"moved"`
	// The longest time between two messages of a partition, for the worst one; handlers take a second, and each partition gets two
	// messages a second.
	MovedPause  float64 `json:"moved_pause_seconds"`
	StayedPause float64 `json:"stayed_pause_seconds"`
}

// TestScaleMembers: two members, three, and two again, with handlers of a second. Only partitions that move stop.
func TestScaleMembers(t *testing.T) {
	f := newField(t, startKafka(t), longshoreConsumer)
	f.calm(t)
	f.config.Busy, f.config.SlowOneIn = time.Second, 0
	f.startConsumers(t, 2)
	f.balanced(t)
	f.load = f.startLoad(t, 2*loadPartitions, 0)
	f.moves(t, 5*loadPartitions)

	before, from := f.allHeld(), time.Now()
	f.consumers = append(f.consumers, f.start(t))
	f.balanced(t)
	f.moves(t, 5*loadPartitions)
	grown := f.allHeld()
	f.scaled(t, "2 to 3", before, grown, from)

	from = time.Now()
	if code, _ := f.consumers[2].terminate(t); code != 0 {
		t.Errorf("the third member exits with %d", code)
	}
	f.consumers = f.consumers[:2]
	f.balanced(t)
	f.moves(t, 5*loadPartitions)
	f.scaled(t, "3 to 2", grown, f.allHeld(), from)
	a := f.finish(t)
	a.noDuplicates(t)
	f.on.toolAgrees(t)
}

// allHeld is who has which partition: by partition, the pid.
func (f *field) allHeld() map[int32]int {
	all := map[int32]int{}
	for _, p := range f.consumers {
		for _, partition := range p.held() {
			all[partition] = p.cmd.Process.Pid
		}
	}
	return all
}

// scaled checks and prints what happened from a moment until now.
func (f *field) scaled(t *testing.T, members string, before, after map[int32]int, from time.Time) {
	t.Helper()
	row := scaleRow{Row: "scale", Broker: f.on.broker(), Members: members}
	stood := standstills(f.entries(t), from.UnixMilli(), time.Now().UnixMilli())
	for p := range int32(loadPartitions) {
		seconds := float64(stood[p]) / 1000
		if before[p] == after[p] {
			row.StayedPause = max(row.StayedPause, seconds)
		} else {
			row.Moved, row.MovedPause = append(row.Moved, p), max(row.MovedPause, seconds)
		}
	}
	// Three members have two or three partitions each, so a third need not get more than three, and its leaving moves no others.
	if len(row.Moved) > (loadPartitions+2)/3 {
		t.Errorf("%s members: partitions %v moved, more than the third member has", members, row.Moved)
	}
	for _, p := range f.consumers {
		for _, c := range p.claims() {
			if c.at >= from.UnixMilli() && !slices.Contains(row.Moved, c.partition) {
				t.Errorf("%s members: partition %d was taken from its member or given to it, and stayed: %v", members, c.partition,
					p.claims())
			}
		}
	}
	report(row)
}

// standstills is the longest time in milliseconds, between two moments, in which nothing of a partition was handled.
func standstills(entries []ledger.Entry, from, until int64) map[int32]int64 {
	last, longest := map[int32]int64{}, map[int32]int64{}
	for p := range int32(loadPartitions) {
		last[p] = from
	}
	for _, e := range entries {
		p, _ := ledger.Position(e.Seq)
		if e.At > from {
			longest[p] = max(longest[p], e.At-last[p])
			last[p] = max(last[p], e.At)
		}
	}
	for p := range last {
		longest[p] = max(longest[p], until-last[p])
	}
	return longest
}
