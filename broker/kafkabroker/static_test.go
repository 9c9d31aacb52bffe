package kafkabroker

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStaticInterrupted: a static member ends, well or killed, while it drains what a second member is to have, and comes back
// within its session. The group has its place and gives it the rest of its partitions without a new generation; what it was to
// give up must be somebody's all the same.
func TestStaticInterrupted(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		for how, end := range map[string]func(*testing.T, *testSystem, *runner, *link){
			"closed": func(t *testing.T, ts *testSystem, r *runner, _ *link) {
				r.close()
				if r.s.m.(*classic).owes() { // else it has released and joined again before it closed
					left(t, ts, 1)
				}
			},
			"killed": func(t *testing.T, ts *testSystem, r *runner, l *link) { r.kill(l); left(t, ts, 0) },
		} {
			t.Run(balancer+"/"+how, func(t *testing.T) {
				t.Parallel()
				onEach(t, 4, func(t *testing.T, ts *testSystem) {
					ts.balancer = balancer
					testStaticInterrupted(t, ts, end)
				})
			})
		}
	}
}

// left says whether a goodbye was said in place of a member: who closes says it, and nobody has to wait.
func left(t *testing.T, ts *testSystem, want int64) {
	t.Helper()
	if n := ts.net.sent(keyLeaveGroup); n != want {
		t.Errorf("the group was left %d times, want %d", n, want)
	}
}

func testStaticInterrupted(t *testing.T, ts *testSystem, end func(*testing.T, *testSystem, *runner, *link)) {
	static := func(l *link) Config {
		cfg := ts.config(l)
		cfg.InstanceID, cfg.SessionTimeout, cfg.RevokeWait, cfg.RebalanceTimeout = "one", 3*patience, 3*patience, 4*patience
		return cfg
	}
	want := ts.put(t, ts.topics[0], 0, 8)
	l := ts.net.link()
	s, err := NewSource(static(l))
	if err != nil {
		t.Fatal(err)
	}
	first := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true}
	first.open(t)
	eventually(t, "all are in its handlers", func() bool { return first.has(want) })
	cfg := ts.config(ts.net.link())
	cfg.SessionTimeout, cfg.RebalanceTimeout = patience, 4*patience
	opened := make(chan *runner, 1)
	go func() { opened <- startRunner(t, cfg) }()
	eventually(t, "something is revoked", func() bool {
		first.s.h.mu.Lock()
		defer first.s.h.mu.Unlock()
		for _, p := range first.s.h.roster.parts {
			if p.stage == draining {
				return true
			}
		}
		return false
	})
	end(t, ts, first, l)
	again := startRunner(t, static(ts.net.link()))
	second := <-opened
	want = append(want, ts.put(t, ts.topics[0], 8, 8)...)
	eventually(t, "all came", func() bool {
		for _, v := range want {
			if again.seen()[v]+second.seen()[v] == 0 {
				return false
			}
		}
		return true
	})
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestStaticLeaderComesBack: the static member that led the group ends, and comes back within its session. The group gives it
// its place, and does not tell it that it leads (KIP-814): partitions that are added to the topic later must be somebody's all
// the same.
func TestStaticLeaderComesBack(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			onEach(t, 1, func(t *testing.T, ts *testSystem) {
				ts.balancer = balancer
				testStaticLeaderComesBack(t, ts)
			})
		})
	}
}

func testStaticLeaderComesBack(t *testing.T, ts *testSystem) {
	s := &spoiler{key: keyJoinGroup, ways: []func([]byte) []byte{}}
	ts.dials = s.over
	start := func() *runner {
		cfg := ts.config(ts.net.link())
		cfg.InstanceID, cfg.SessionTimeout, cfg.RebalanceTimeout, cfg.plan = "one", 3*patience, patience, nil
		return startRunner(t, cfg)
	}
	first := start()
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "the first messages came", func() bool { return first.has(want) })
	first.close()
	if ts.cluster != nil { // which tells it
		s.again(ledByOld)
	}
	again := start()
	want = ts.put(t, ts.topics[0], 3, 3)
	eventually(t, "messages came when it was back", func() bool { return again.has(want) })
	ts.addPartitions(t, ts.topics[0], 2)
	want = append(want, ts.putInto(t, ts.topics[0], 1, "added"))
	eventually(t, "what is in the new partition came", func() bool { return again.has(want) })
}

// TestStaticLeaderComesBackToOthers: the static member that leads the group makes a plan while the broker that it asks does not
// know a topic of others. It ends before it knows, and comes back within its session, with its place and no word of leading. The
// topic must be somebody's all the same.
func TestStaticLeaderComesBackToOthers(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 2)
			ts.balancer = balancer
			ts.keepsStaticMembers()
			joins := &spoiler{key: keyJoinGroup, ways: []func([]byte) []byte{}}
			start := func(looks *spoiler) *runner {
				cfg := ts.config(ts.net.link())
				cfg.InstanceID, cfg.SessionTimeout, cfg.RebalanceTimeout, cfg.plan = "one", 3*patience, patience, nil
				cfg.Topics, cfg.dial = ts.topics[:1], looks.over(joins.over(cfg.dial))
				return startRunner(t, cfg)
			}
			unknown := lookWithout(t, ts.topics[1], func(of *kmsg.MetadataResponseTopic) {
				of.ErrorCode, of.Partitions = kerr.UnknownTopicOrPartition.Code, nil
			})
			first := start(&spoiler{key: keyMetadata, ways: slices.Repeat([]func([]byte) []byte{unknown}, 10_000)})
			want := ts.put(t, ts.topics[0], 0, 1)
			eventually(t, "the first messages came", func() bool { return first.has(want) })
			cfg := ts.config(ts.net.link())
			cfg.Topics, cfg.plan, cfg.SessionTimeout = ts.topics[1:], nil, 3*patience
			other := startRunner(t, cfg)
			leader := first.s.m.(*classic)
			eventually(t, "a plan is made for both", func() bool {
				leader.mu.Lock()
				defer leader.mu.Unlock()
				return len(leader.others) == 1 && !leader.has.rejoin
			})
			first.close()
			joins.again(ledByOld)
			start(&spoiler{key: keyMetadata, ways: []func([]byte) []byte{}})
			eventually(t, "the topic of others is somebody's", func() bool { return other.claims() == 1 })
		})
	}
}

// keepsStaticMembers has a static member that comes back subscribe as it did last, for the fake lets all join anew otherwise.
// Kafka looks at the name of the protocol alone.
func (ts *testSystem) keepsStaticMembers() {
	var last []kmsg.JoinGroupRequestProtocol
	ts.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		switch r := req.(*kmsg.JoinGroupRequest); {
		case r.InstanceID == nil:
		case r.MemberID == "" && last != nil:
			r.Protocols = last
		default:
			last = r.Protocols
		}
		return nil, nil, false
	})
}

// ledByOld is the answer to JoinGroup as Kafka has it for a static member that comes back, before version 9: it is led by the
// member that it was.
func ledByOld(frame []byte) []byte {
	r := reader{b: frame[8:]}
	r.i32()
	code, generation, protocol := r.i16(), r.i32(), r.str()
	r.str()
	w := writer{b: append(make([]byte, 4), frame[4:12]...)}
	w.i16(code)
	w.i32(generation)
	w.str(protocol)
	w.str("old")
	w.str(r.str())
	w.array(0)
	binary.BigEndian.PutUint32(w.b, uint32(len(w.b)-4))
	return w.b
}
