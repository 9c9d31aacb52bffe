package kafkabroker

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// toldReleases is a membership that notes what is released.
type toldReleases struct {
	membership
	released []partitionID
}

func (m *toldReleases) release(ps []partitionID)      { m.released = append(m.released, ps...) }
func (m *toldReleases) contact() time.Time            { return time.Now() }
func (m *toldReleases) seat(partitionID) (none seat)  { return none }
func (m *toldReleases) run(context.Context) error     { return nil }
func (m *toldReleases) leave(_ context.Context) error { return nil }

// bareSource is a source without goroutines and brokers, with one open part.
func bareSource(t *testing.T) (*Source, *toldReleases, *part) {
	t.Helper()
	s, err := NewSource(Config{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}, Group: testGroup, Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	m := &toldReleases{}
	s.m, s.phase = m, opened
	s.o = broker.Options{Observe: func(broker.Event) {}}
	return s, m, s.place("orders", 0)
}

// place puts an open part into a source.
func (s *Source) place(topic string, no int32) *part {
	id := partitionID{topic, no}
	p := &part{s: s, partitionID: id, replica: -1, end: -1, leader: -1}
	p.claim, p.keeper = broker.NewClaim(topic, no, p)
	p.tr = newTracker(progress{}, s.stale.Of(p.logKey()), 100)
	s.parts[id] = p
	s.turns = append(s.turns, p)
	return p
}

// TestLateLastCommit: a partition is lost while its last commit is under way, and assigned again. The answer to that commit
// releases nothing: the membership would take it for the claim that has begun since, and the partition would go to another member
// under that one's handlers.
func TestLateLastCommit(t *testing.T) {
	for name, answer := range map[string]int16{"taken": 0, "topic gone": 3} {
		t.Run(name, func(t *testing.T) {
			for _, gone := range []bool{false, true} {
				s, _, p := bareSource(t)
				s.missing["orders"] = 100 // looks in a row that did not find it
				p.shut = true
				if next := s.finishRevoked(time.Now()); !next.IsZero() {
					t.Fatal("it is not over")
				}
				ds := s.collect()
				if len(ds) != 1 || !ds[0].last {
					t.Fatalf("to commit: %+v", ds)
				}
				if gone {
					s.changed(change{kind: lost, parts: []partitionID{p.partitionID}, err: broker.ErrLost})
				}
				ds[0].c.err = codeErr(answer)
				s.mu.Lock()
				_, free := s.answered(ds[0])
				s.mu.Unlock()
				if free == gone {
					t.Errorf("lost meanwhile: %v; to be released: %v", gone, free)
				}
			}
		})
	}
}

// TestLostWhileEnding: a partition is lost when its claim was fenced and has not ended yet. Nothing of it is committed any more:
// that would be under the name which the member has by then.
func TestLostWhileEnding(t *testing.T) {
	s, _, p := bareSource(t)
	p.shut = true
	over, _ := s.fenceRevoked(time.Now())
	if len(over) != 1 {
		t.Fatalf("%d claims are over", len(over))
	}
	s.changed(change{kind: lost, parts: []partitionID{p.partitionID}, err: broker.ErrLost})
	s.conclude(p, broker.ErrLost)
	if ds := s.collect(); len(ds) > 0 {
		t.Errorf("to commit: offset %d", ds[0].c.offset)
	}
}

// TestEndsBeforeLastCommit: the last commit is put together when the claim has ended, and not before.
func TestEndsBeforeLastCommit(t *testing.T) {
	s, _, p := bareSource(t)
	p.shut = true
	s.fenceRevoked(time.Now())
	if ds := s.collect(); len(ds) > 0 {
		t.Errorf("to commit before the end: offset %d", ds[0].c.offset)
	}
	s.conclude(p, broker.ErrLost)
	if ds := s.collect(); len(ds) != 1 {
		t.Errorf("%d to commit after it", len(ds))
	}
}

// TestLostBesideAssigned: partitions are assigned, and lost while the loop looks at that. No claim begins: it would not be ours,
// and would never end.
func TestLostBesideAssigned(t *testing.T) {
	s, _, _ := bareSource(t)
	var ids []partitionID
	for no := range int32(200) {
		ids = append(ids, partitionID{"orders", 1 + no})
	}
	for range 50 {
		s.changed(change{kind: assigned, parts: slices.Clone(ids)})
		stepped := make(chan struct{})
		go func() { defer close(stepped); s.step(time.Now()) }()
		runtime.Gosched()
		s.changed(change{kind: lost, parts: ids, err: broker.ErrLost})
		<-stepped
		s.mu.Lock()
		n := len(s.beginning)
		s.mu.Unlock()
		if n > 0 {
			t.Fatalf("%d claims begin that are not ours", n)
		}
	}
	s.end()
	s.work.Wait()
}
