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

func (m *toldReleases) release(ps []partitionID) { m.released = append(m.released, ps...) }
func (m *toldReleases) lapsed(time.Time) bool    { return false }
func (m *toldReleases) self() (none memberID)    { return none }
func (m *toldReleases) committers() func(partitionID) (memberID, bool) {
	return func(partitionID) (none memberID, ours bool) { return none, true }
}
func (m *toldReleases) run(context.Context) error     { return nil }
func (m *toldReleases) leave(_ context.Context) error { return nil }

// bareSource is a source without goroutines and brokers, with one open part.
func bareSource(t *testing.T) (*Source, *toldReleases, *part) {
	t.Helper()
	s, err := NewSource(Config{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}, Group: testGroup,
		Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.life.End)
	m := &toldReleases{}
	s.m = m
	s.assemble(&coordinator{c: s.c, group: testGroup}, &books{})
	s.events.Observe(func(broker.Event) {})
	return s, m, s.h.place("orders", 0)
}

// place puts an open part into holdings.
func (h *holdings) place(topic string, no int32) *part {
	b := newStart(partitionID{topic, no}, nil)
	p := newPart(h, b, -1)
	h.roster.add(b, p)
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
				s.h.roster.drain(p, time.Time{})
				over := s.h.over(time.Now())
				if len(over) != 1 {
					t.Fatal("it is not over")
				}
				s.h.ended(over[0])
				ds := s.h.collect(false, nil)
				if len(ds) != 1 || !ds[0].last {
					t.Fatalf("to commit: %+v", ds)
				}
				if gone {
					s.h.changed(change{kind: lost, parts: []partitionID{p.partitionID}, err: broker.ErrLost})
				}
				ds[0].c.err = codeErr(answer)
				a := s.h.answered(ds, func(partitionID, topicID) bool { return true })
				if free := len(a.released) > 0; free == gone {
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
	s.h.roster.drain(p, time.Time{})
	over := s.h.over(time.Now())
	if len(over) != 1 {
		t.Fatalf("%d claims are over", len(over))
	}
	s.h.changed(change{kind: lost, parts: []partitionID{p.partitionID}, err: broker.ErrLost})
	s.h.ended(over[0])
	if ds := s.h.collect(false, nil); len(ds) > 0 {
		t.Errorf("to commit: offset %d", ds[0].c.offset)
	}
}

// TestEndsBeforeLastCommit: the last commit is put together when the claim has ended, and not before.
func TestEndsBeforeLastCommit(t *testing.T) {
	s, _, p := bareSource(t)
	s.h.roster.drain(p, time.Time{})
	over := s.h.over(time.Now())
	if ds := s.h.collect(false, nil); len(ds) > 0 {
		t.Errorf("to commit before the end: offset %d", ds[0].c.offset)
	}
	s.h.ended(over[0])
	if ds := s.h.collect(false, nil); len(ds) != 1 {
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
		s.h.changed(change{kind: assigned, parts: slices.Clone(ids)})
		stepped := make(chan struct{})
		go func() { defer close(stepped); s.loop.step(time.Now()) }()
		runtime.Gosched()
		s.h.changed(change{kind: lost, parts: ids, err: broker.ErrLost})
		<-stepped
		s.h.mu.Lock()
		n := len(s.h.roster.beginning)
		s.h.mu.Unlock()
		if n > 0 {
			t.Fatalf("%d claims begin that are not ours", n)
		}
	}
	_ = s.life.Close(nil, func() {})
}

// TestBoundBehindBlocked: a transaction was late, so that the next ones have less, and more than that waits for a topic that
// cannot be written. What goes to other topics does not wait for it.
func TestBoundBehindBlocked(t *testing.T) {
	s, _, p := bareSource(t)
	for o, to := range []string{"away", "away", "out"} {
		tok, _ := p.tr.offer(int64(o), 1)
		outs := []broker.Outgoing{{Topic: to, Value: make([]byte, outputsLeast)}}
		if err := s.h.ackEmitting(p, []broker.Emission{{Tokens: []uint64{tok}, Outs: outs}}); err != nil {
			t.Fatal(err)
		}
	}
	ds := s.h.collect(false, nil)
	s.h.late(ds)
	s.h.unsent(ds)
	ds = s.h.collect(false, func(topic string) bool { return topic == "away" })
	if len(ds) != 1 || len(ds[0].es) != 1 || ds[0].es[0].outs[0].Topic != "out" {
		t.Errorf("collected %+v, want what goes to the other topic", ds)
	}
}
