package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/kit"
)

// begun opens a source on topic t, of so many partitions, and returns what it said of where it begins, when it has them all and
// has handed out a message, or has failed.
func begun(t *testing.T, c *kfake.Cluster, parts int32, group string, start Start) (notices []string, err error) {
	t.Helper()
	said := make(chan string, 1000)
	var assigned atomic.Int32
	s, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: group, Topics: []string{"t"}, Start: start})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(e broker.Event) {
		switch e.Kind {
		case broker.Notice:
			said <- e.Err.Error()
		case broker.Assigned:
			assigned.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ms := make([]broker.Message, 1)
	done := make(chan error, 1)
	go func() { _, err := s.Receive(ms); done <- err }()
	select {
	case err = <-done:
	case <-ctx.Done():
		t.Fatal("nothing comes, and no error")
	}
	if err == nil {
		eventually(t, "all partitions begin", func() bool { return assigned.Load() == parts })
		if err := s.Ack(ms[0].Claim, []uint64{ms[0].Token}); err != nil {
			t.Error(err)
		}
	}
	s.Stop()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	close(said)
	for line := range said {
		notices = append(notices, line)
	}
	return notices, err
}

// TestBeginsWithoutOffset: a group that has nothing committed of a topic, as one with a slip in its name, says where it begins,
// in one line for all partitions; one that goes on where it was says nothing.
func TestBeginsWithoutOffset(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(20, "t"), kfake.NumBrokers(3))
	for range 3 {
		seed(t, c)
	}
	const line = `group "typo" has no committed offset in topic t (20 of its partitions): begins at the earliest`
	for i, want := range []string{line, ""} {
		notices, err := begun(t, c, 20, "typo", Start{})
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && len(notices) > 0 || want != "" && (len(notices) != 1 || !strings.Contains(notices[0], want)) {
			t.Errorf("start %d said %q, want %q", i, notices, want)
		}
	}
}

// TestStartNone: a group that has nothing committed is refused.
func TestStartNone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(4, "t"))
	for range 3 {
		seed(t, c)
	}
	none := Start{At: "none"}
	_, err := begun(t, c, 4, "g", none)
	if err == nil || !strings.Contains(err.Error(), `group "g" has no committed offset in topic t`) {
		t.Errorf("it ended with %v", err)
	}
	if _, err := begun(t, c, 4, "g", Start{At: "time", Time: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if notices, err := begun(t, c, 4, "g", none); err != nil || len(notices) > 0 {
		t.Errorf("it ended with %v, and said %q", err, notices)
	}
}

// TestBeginsInARebalance: the group is on its way to its next generation when a partition's beginning is committed, and refuses
// that. It is made again under the next one: contact with the broker is not lost.
func TestBeginsInARebalance(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.IllegalGeneration, kerr.RebalanceInProgress} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			fault := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: refusal, Count: 2})
			r := startRunner(t, ts.config(ts.net.link()))
			want := ts.put(t, ts.topics[0], 0, 3)
			eventually(t, "the messages came", func() bool { return r.has(want) })
			if fault.Hits() == 0 {
				t.Error("no commit was refused")
			}
			if e, said := r.event(broker.Down, ""); said {
				t.Errorf("it was told: %v", e.Err)
			}
			r.close()
		})
	}
}

// TestStartAtTimeWhileWritten: the group begins at a time since which nothing was written, and messages come while it finds out
// where that is. They are of that time, and it begins with the first of them.
func TestStartAtTimeWhileWritten(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	var want []string
	write := func(frame []byte) []byte { // when the answer is on its way
		want = append(want, ts.put(t, ts.topics[0], len(want), 1)...)
		return frame
	}
	s := &spoiler{key: keyListOffsets, ways: []func([]byte) []byte{write, write}}
	ts.dials = s.over
	cfg := ts.config(ts.net.link())
	cfg.Start = Start{At: "time", Time: time.Now().Add(-time.Hour)}
	r := startRunner(t, cfg)
	eventually(t, "two messages were written meanwhile", func() bool { return s.met() == 2 })
	s.mu.Lock()
	all := slices.Clone(want)
	s.mu.Unlock()
	all = append(all, ts.put(t, ts.topics[0], len(all), 1)...)
	eventually(t, "the last message came", func() bool { return r.has(all[2:]) })
	if !r.has(all) {
		t.Errorf("of %q only %v came", all, r.seen())
	}
}

// TestLeaderlessBeginsInTime: while a partition that is to begin has no leader, topics are looked at as often as for one that has
// begun: the poller does so by itself. One that nobody has heard of yet is looked for at once.
func TestLeaderlessBeginsInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		no   int32
		asks bool
	}{
		"it has no leader": {no: 0},
		"it is not known":  {no: 7, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Topics: []string{"orders"}}.withDefaults()
				at := newAtlas(&cfg)
				orders := topic{name: "orders", id: topicID{1}, leaders: []int32{-1, 1}}
				at.learn(at.begin(), map[string]topic{"orders": orders}, true)
				life := kit.NewLife("kafkabroker")
				x := starter{cfg: &cfg, atlas: at, life: life, bells: newBells(),
					note: contact{life.Context(), kit.NewEventQueue(), &kit.Operations{}, &broken{lines: make(map[line]bool)}}}
				x.begin([]*start{newStart(partitionID{"orders", tc.no}, nil)})
				rung := 0
				for range 100 {
					time.Sleep(retryWait)
					synctest.Wait()
					if heard(x.bells.find) {
						rung++
					}
				}
				life.End()
				if rung > 0 != tc.asks {
					t.Errorf("a look was asked for %d times", rung)
				}
			})
		})
	}
}

// A movingOn is a membership that goes on to another generation when it is asked who we are.
type movingOn struct {
	*toldReleases
	move func()
}

func (m *movingOn) committers() func(partitionID) (memberID, bool) {
	m.move()
	return m.toldReleases.committers()
}

// TestFirstCommitOfReleased: a partition that was to begin is revoked and released, and a new generation has been joined when its
// first commit is made. It is not sent: the group takes any commit of that generation, and it would be over what the new owner
// has committed.
func TestFirstCommitOfReleased(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		t.Run(fmt.Sprint(revoked), func(t *testing.T) {
			s, told, _ := bareSource(t)
			defer s.c.transport.CloseIdleConnections()
			b := newStart(partitionID{"orders", 1}, &cutOff{error: errCutOff})
			s.h.roster.beginning[b.partitionID] = b
			s.start.m = &movingOn{told, func() {
				if revoked {
					s.h.roster.cancel(b.partitionID)
				}
			}}
			left, err := s.start.resetAll(1, []*start{b})
			if sent := len(left) > 0; sent == revoked { // nobody answers there
				t.Errorf("a commit was sent: %v (%v)", sent, err)
			}
		})
	}
}
