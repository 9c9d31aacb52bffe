package kafkabroker

import (
	"errors"
	"strings"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestChoice: which protocol is chosen by what is known, and what is said of it.
func TestChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		f        groupFacts
		consumer bool
		says     string
	}{
		"a new group": {groupFacts{speaks: true, epochs: true, state: "Dead"}, true,
			"protocol consumer: the broker assigns"},
		"an old broker":     {groupFacts{}, false, "protocol classic: the broker does not know"},
		"one epoch for all": {groupFacts{speaks: true}, false, "epochs of partitions"},
		"settings that are secret": {groupFacts{speaks: true, unreadable: kafka.GroupAuthorizationFailed}, false,
			"allow DescribeConfigs"},
		"members of the old protocol": {groupFacts{speaks: true, epochs: true, members: 2, state: "Stable"}, false,
			"with 2 members (Stable); to change it, set membership"},
		"round robin": {groupFacts{roundRobin: true, speaks: true, epochs: true}, false, "no assignor roundrobin"},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.f.choose()
			if line := c.line("workers"); c.consumer != tc.consumer || !strings.HasPrefix(line, "group workers: protocol ") ||
				!strings.Contains(line, tc.says) {
				t.Errorf("got %v, %q, want %v, and %q in it", c.consumer, line, tc.consumer, tc.says)
			}
		})
	}
}

// TestAuto: sources that choose their protocol by themselves, say which it is, and consume.
func TestAuto(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before func(t *testing.T, ts *testSystem, cfg *Config)
		says   string
	}{
		"a new group": {func(*testing.T, *testSystem, *Config) {}, "protocol consumer"},
		"a group that others are in": {func(t *testing.T, ts *testSystem, cfg *Config) {
			classic := *cfg
			classic.Membership = "classic"
			startRunner(t, classic)
			eventually(t, "the classic one is in the group", func() bool { return ts.cluster.GroupInfo(ts.group).State == "Stable" })
		}, "the group is a classic one with 1 members"},
		"a group that does not take it": {func(_ *testing.T, ts *testSystem, _ *Config) {
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.GroupIDNotFound, TopLevel: true,
				Count: -1})
		}, "the group does not take the consumer protocol: heartbeat: [69]"},
		"round robin": {func(_ *testing.T, _ *testSystem, cfg *Config) { cfg.Balancer = "roundrobin" }, "no assignor roundrobin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 2, 1)
			cfg := ts.config(ts.net.link())
			cfg.Membership = "auto"
			tc.before(t, ts, &cfg)
			r := startRunner(t, cfg)
			eventually(t, "it says what it chose", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, e := range r.events {
					if e.Kind == broker.Notice && strings.Contains(e.Err.Error(), tc.says) {
						return true
					}
				}
				return false
			})
			if name == "a group that others are in" {
				return // the two share the messages
			}
			want := ts.put(t, ts.topics[0], 0, 10)
			eventually(t, "all came", func() bool { return r.has(want) })
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}

// TestLongSession: who has a session that makes a crash costly is told so.
func TestLongSession(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, "consumer")
	cfg := ts.config(ts.net.link())
	ts.setSession(longSession)
	r := startRunner(t, cfg)
	r.close()
	if e, ok := r.event(broker.Warning, sessionSetting); ok {
		t.Errorf("at %v it says %v", longSession, e.Err)
	}
	ts.setSession(45 * longSession / 15)
	r = startRunner(t, cfg)
	eventually(t, "it is told", func() bool { _, ok := r.event(broker.Warning, "wait 45s for another one"); return ok })
}

// TestAwayAndBack: a partition goes away and comes back to the same member. A commit from before it went is refused, and one from
// now is taken; so is that of a partition that stayed, by the epoch at which it came.
func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	onConsumer(t, 2, func(t *testing.T, ts *testSystem) {
		ts.lease = patience
		want := ts.put(t, ts.topics[0], 0, 4)
		var first *Source
		join := func() *runner {
			p := ts.join(t)
			if first == nil {
				first = p.Source.(*Source)
			}
			return runSource(t, p.Source.(*Source))
		}
		a := join()
		eventually(t, "one has all", func() bool { return a.has(want) })
		at := func() (both [2]int32, n int) {
			who := first.m.committers()
			for no := range both {
				if me, ours := who(partitionID{ts.topics[0], int32(no)}); ours {
					both[no], n = me.generation, n+1
				}
			}
			return both, n
		}
		before, _ := at()
		old := first.m.committers()
		b := join()
		eventually(t, "they share", func() bool { _, n := at(); return n == 1 })
		shared, _ := at()
		moved := int32(0)
		if shared[0] != 0 {
			moved = 1
		}
		b.close()
		eventually(t, "it came back", func() bool { _, n := at(); return n == 2 })
		eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		now, _ := at()
		if now[moved] <= before[moved] || now[1-moved] != before[1-moved] {
			t.Errorf("partition %d went away and came back: the epochs were %v, and are %v", moved, before, now)
		}
		commit := func(who func(partitionID) (memberID, bool), no int32) error {
			me, _ := who(partitionID{ts.topics[0], no})
			c := &commitment{partitionID: partitionID{ts.topics[0], no}, offset: 2}
			return errors.Join(first.commit.k.commit(t.Context(), me, []*commitment{c}), c.err)
		}
		if err := commit(old, moved); codeOf(err) != staleMemberEpoch {
			t.Errorf("a commit from before it went away: %v, want STALE_MEMBER_EPOCH", err)
		}
		for no := range int32(2) {
			if err := commit(first.m.committers(), no); err != nil {
				t.Errorf("a commit of partition %d: %v", no, err)
			}
		}
		if err := commit(old, 1-moved); err != nil {
			t.Errorf("a commit of the partition that stayed: %v", err)
		}
	})
}

// TestBeatFaults: whatever heartbeats and the consumer protocol's other requests are answered, all messages come, and all is
// committed (f23, f25).
func TestBeatFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		key  kmsg.Key
		errs []*kerr.Error
	}{
		{kmsg.ConsumerGroupHeartbeat, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
			kerr.UnknownMemberID,
			kerr.FencedMemberEpoch, kerr.UnreleasedInstanceID, kerr.GroupMaxSizeReached, kerr.GroupIDNotFound, kerr.UnknownServerError,
			kerr.RequestTimedOut}},
		{kmsg.OffsetCommit, []*kerr.Error{kerr.StaleMemberEpoch, kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.RequestTimedOut,
			kerr.NotCoordinator}},
		{kmsg.OffsetFetch, []*kerr.Error{kerr.StaleMemberEpoch, kerr.UnknownMemberID, kerr.CoordinatorLoadInProgress,
			kerr.UnstableOffsetCommit}},
		{kmsg.DescribeConfigs, []*kerr.Error{kerr.GroupAuthorizationFailed, kerr.InvalidRequest}},
	} {
		for _, e := range f.errs {
			t.Run(f.key.Name()+"/"+e.Message, func(t *testing.T) {
				t.Parallel()
				ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, "consumer")
				ts.lease = patience
				if e == kerr.UnknownMemberID { // the fake knows it still, and gives its partitions away when the session is over
					ts.lease = patience / 5
				}
				want := ts.put(t, ts.topics[0], 0, 40)
				fault := kfake.Fault{Keys: []kmsg.Key{f.key}, Err: e, Count: 3, TopLevel: f.key == kmsg.ConsumerGroupHeartbeat}
				var h *kfake.FaultHandle
				if f.key == kmsg.OffsetFetch || f.key == kmsg.DescribeConfigs {
					h = ts.cluster.Fault(fault)
				}
				r := startRunner(t, ts.config(ts.net.link()))
				if h == nil {
					eventually(t, "some messages came", func() bool { return len(r.seen()) > 0 })
					h = ts.cluster.Fault(fault)
				}
				want = append(want, ts.put(t, ts.topics[0], 40, 40)...)
				if f.key != kmsg.DescribeConfigs { // the tests answer those themselves
					eventually(t, "the fault was met", func() bool { return h.Hits() >= 1 })
				}
				want = append(want, ts.put(t, ts.topics[0], 80, 40)...)
				eventually(t, "all messages came", func() bool { return r.has(want) })
				eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
			})
		}
	}
}

// TestRefusedForGood: what no other heartbeat would change ends the source, with what the broker says.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.UnsupportedAssignor, kerr.UnsupportedVersion, kerr.FencedInstanceID,
		kerr.InvalidRegularExpression} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, "consumer")
			ts.lease = patience
			r := startRunner(t, ts.config(ts.net.link()))
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: e, Count: 1, TopLevel: true})
			<-r.end
			if codeOf(r.err) != kafka.Error(e.Code) || !strings.Contains(r.err.Error(), ts.group) {
				t.Errorf("Receive says %v, want %v, and the group", r.err, e)
			}
		})
	}
}

// TestLostBeat: the answer to a heartbeat that assigned something is lost. What was assigned begins all the same, and nothing is
// fenced.
func TestLostBeat(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 4}, "consumer")
	ts.lease = patience
	want := ts.put(t, ts.topics[0], 0, 40)
	a := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all messages came", func() bool { return a.has(want) })
	for range 4 {
		l := ts.net.link()
		b := startRunner(t, ts.config(l))
		for range 8 {
			ts.net.breakAnswers(keyConsumerGroupHeartbeat, 1)
			sent := ts.net.sent(keyConsumerGroupHeartbeat)
			// two lost in a row may be fenced
			eventually(t, "both were heard since", func() bool { return ts.net.sent(keyConsumerGroupHeartbeat) > sent+8 })
			want = append(want, ts.put(t, ts.topics[0], len(want), 20)...)
			eventually(t, "all messages came", func() bool {
				for _, v := range want {
					if a.seen()[v]+b.seen()[v] == 0 {
						return false
					}
				}
				return true
			})
		}
		b.close()
		for v, n := range b.seen() {
			a.mu.Lock()
			a.times[v] += n
			a.mu.Unlock()
		}
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if e, ok := a.event(broker.Ended, "FENCED"); ok {
		t.Errorf("it was fenced: %v", e.Err)
	}
}

// TestMemberID: a process that starts again by its name has its partitions at once, although the one before was killed.
func TestMemberID(t *testing.T) {
	t.Parallel()
	onConsumer(t, 2, func(t *testing.T, ts *testSystem) {
		ts.lease = 3 * patience // nobody waits for that
		want := ts.put(t, ts.topics[0], 0, 10)
		l := ts.net.link()
		cfg := ts.config(l)
		cfg.MemberID = newMemberID()
		r := startRunner(t, cfg)
		eventually(t, "all messages came", func() bool { return r.has(want) })
		r.kill(l)
		cfg.dial = ts.net.link().dial
		r = startRunner(t, cfg)
		want = ts.put(t, ts.topics[0], 10, 10)
		eventually(t, "it goes on", func() bool { return r.has(want) })
		eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	})
}
