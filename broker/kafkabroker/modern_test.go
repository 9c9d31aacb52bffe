package kafkabroker

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestCommitters: each partition is committed by the epoch at which it was assigned, one that is not ours not at all, and what
// was asked for before a partition was lost stays as it was.
func TestCommitters(t *testing.T) {
	for name, tc := range map[string]struct {
		epochs    bool
		want, now int32 // of the partition that came first, and after it was lost and assigned again
	}{
		"as Kafka 4.3":      {true, 4, 9},
		"one epoch for all": {false, 7, 9},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Group: testGroup, Topics: []string{"a"}, Membership: "consumer"}.withDefaults()
			g := newModern(nil, &cfg, host{topics: func() []string { return cfg.Topics }, tell: func(change) {}})
			g.epochs = tc.epochs
			first, second, other := partitionID{"a", 0}, partitionID{"a", 1}, partitionID{"a", 2}
			give := func(epoch int32, ps ...logPart) {
				changes, _ := g.m.answered(g.m.beat(), beatAnswer{epoch: epoch, told: true, assigned: ps}, time.Now())
				g.announce(changes)
			}
			g.m.named(map[topicID]string{{1}: "a"})
			give(4, logPart{topicID{1}, 0})
			give(7, logPart{topicID{1}, 0}, logPart{topicID{1}, 1})
			who := g.committers()
			check := func(p partitionID, want int32) {
				t.Helper()
				if me, ours := who(p); !ours || me.generation != want || me.member != g.m.id {
					t.Errorf("%v is committed by %+v, %v, want epoch %d", p, me, ours, want)
				}
			}
			check(first, tc.want)
			check(second, 7)
			if me, ours := who(other); ours {
				t.Errorf("what is not ours is committed by %+v", me)
			}
			g.lose(kafka.UnknownMemberId, time.Now(), g.m.id)
			check(first, tc.want)
			d := due{p: &part{partitionID: first}, c: &commitment{partitionID: first}}
			if by := byCommitter([]due{d}, g.committers()); len(by) > 0 || d.c.err == nil {
				t.Errorf("what was lost is committed by %v", by)
			}
			give(9, logPart{topicID{1}, 0})
			check(first, tc.want)
			who = g.committers()
			check(first, tc.now)
		})
	}
}

// TestEpochsByAnUpgrade: the brokers of a group are upgraded to Kafka 4.3. What they have read of it has no epochs of partitions:
// they take the member's for those, and refuse commits by the older ones at which partitions were assigned. So what is ours by an
// answer since then is committed by the epoch of that. The group hears nothing new of what we have.
func TestEpochsByAnUpgrade(t *testing.T) {
	cfg := Config{Group: testGroup, Topics: []string{"a"}, Membership: "consumer"}.withDefaults()
	g := newModern(nil, &cfg, host{topics: func() []string { return cfg.Topics }, tell: func(change) {}})
	before := groupSettings{session: time.Second}
	after := before
	after.epochs = true
	g.hold(before)
	g.m.named(map[topicID]string{{1}: "a"})
	answer := func(epoch int32, ps ...logPart) {
		changes, _ := g.m.answered(g.m.beat(), beatAnswer{epoch: epoch, told: len(ps) > 0, assigned: ps}, time.Now())
		g.announce(changes)
	}
	check := func(when string, want int32) {
		t.Helper()
		if me, ours := g.committers()(partitionID{"a", 0}); !ours || me.generation != want {
			t.Errorf("%s: committed by epoch %d, ours: %v, want epoch %d", when, me.generation, ours, want)
		}
	}
	p := logPart{topicID{1}, 0}
	answer(3, p)
	answer(7)
	check("one epoch for all", 7)
	g.hold(after)
	answer(7)
	check("after the upgrade", 7)
	if b := g.m.beat(); b.owned != nil || b.full != nil {
		t.Errorf("the group is told of %v", b.owned)
	}
	g.hold(after)
	answer(9)
	check("later", 7)
}

// TestStaleCommit: a commit is refused for its epoch. It is not made again by a newer one: by that the broker takes a commit of
// any partition, whoever has it.
func TestStaleCommit(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, "consumer")
	ts.lease = patience
	a := ts.join(t).Source.(*Source)
	stays := runSource(t, a)
	owns := func() (n int, since [2]int32) {
		who := a.m.committers()
		for no := range since {
			if me, ours := who(partitionID{ts.topics[0], int32(no)}); ours {
				n, since[no] = n+1, me.generation
			}
		}
		return n, since
	}
	eventually(t, "one has all", func() bool { n, _ := owns(); return n == 2 })
	other := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "they share", func() bool { n, _ := owns(); return n == 1 })
	other.close()
	eventually(t, "it has all again", func() bool { n, _ := owns(); return n == 2 })
	_, since := owns()
	if newest := a.m.self().generation; since[0] == since[1] || newest != max(since[0], since[1]) {
		t.Fatalf("the epochs are %v, of %d", since, newest)
	}
	var mu sync.Mutex
	by := make(map[int32][]int32)
	ts.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		r := req.(*kmsg.OffsetCommitRequest)
		for _, p := range r.Topics[0].Partitions {
			if !slices.Contains(by[p.Partition], r.Generation) {
				by[p.Partition] = append(by[p.Partition], r.Generation)
			}
		}
		return nil, nil, false
	})
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.StaleMemberEpoch, Count: 4})
	want := ts.put(t, ts.topics[0], 0, 20)
	eventually(t, "all messages came", func() bool { return stays.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if h.Hits() == 0 {
		t.Error("no commit was refused")
	}
	mu.Lock()
	defer mu.Unlock()
	for no, at := range since {
		if !slices.Equal(by[int32(no)], []int32{at}) {
			t.Errorf("partition %d is committed by %v, want %d alone", no, by[int32(no)], at)
		}
	}
}

// TestGroupGone: a group of the consumer protocol is not there any more, for its brokers lost it. Its member does not wait for
// the end of its session to join again: until then nothing of what it does could be committed.
func TestGroupGone(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, "consumer")
	ts.lease = 10 * patience
	r := startRunner(t, ts.config(ts.net.link()))
	want := ts.put(t, ts.topics[0], 0, 20)
	eventually(t, "all is committed", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	var joined atomic.Bool
	ts.cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if req.(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch == joinEpoch {
			joined.Store(true)
		}
		if joined.Load() {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		answer.ErrorCode = kerr.GroupIDNotFound.Code
		return answer, nil, true
	})
	eventually(t, "it joins again", joined.Load)
	want = append(want, ts.put(t, ts.topics[0], 20, 20)...)
	eventually(t, "all is committed", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
}

// TestSlowJoin: over a network on which an answer takes longer than half a session, a member joins all the same (f20).
func TestSlowJoin(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, "consumer")
	ts.lease = time.Second
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout = patience
	ts.net.delay(keyConsumerGroupHeartbeat, 7*ts.lease/10)
	r := startRunner(t, cfg) // Open waits for the answer to the join
	ts.net.delay(keyConsumerGroupHeartbeat, 0)
	want := ts.put(t, ts.topics[0], 0, 20)
	eventually(t, "all messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestLeaveUnheard: a member that ends before it hears that it has joined says goodbye all the same: the others would wait for
// its session to be over.
func TestLeaveUnheard(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, "consumer")
	ts.lease = 3 * patience // nobody waits for that
	members := func() int {
		info := ts.cluster.GroupInfo(ts.group)
		if info == nil {
			return 0
		}
		return len(info.Members)
	}
	l := ts.net.link()
	s, err := NewSource(ts.config(l))
	if err != nil {
		t.Fatal(err)
	}
	ts.net.breakAnswers(keyConsumerGroupHeartbeat, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}})
		opened <- err
	}()
	eventually(t, "the group has it", func() bool { return members() == 1 })
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	eventually(t, "the group has it no more", func() bool { return members() == 0 })
	ts.net.hearAll(keyConsumerGroupHeartbeat)
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-opened; err == nil {
		t.Error("Open says that it has joined")
	}
}

// TestRecreatedAwaitsGroup: a topic is made anew, and the group does not know yet. The claim ends, and the new topic is not begun
// before the group has assigned it: another member may get it, and would do all of it again.
func TestRecreatedAwaitsGroup(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, "consumer")
	ts.lease = 3 * patience // so long it hears nothing of the group
	cfg := ts.config(ts.net.link())
	cfg.Start.At = "latest"
	r := startRunner(t, cfg)
	told := func(k broker.Kind) (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.Kind == k {
				n++
			}
		}
		return n
	}
	eventually(t, "it is assigned", func() bool { return told(broker.Assigned) == 1 })
	old := ts.put(t, ts.topics[0], 0, 5)
	eventually(t, "the old messages came", func() bool { return r.has(old) })
	ts.net.breakAt(keyConsumerGroupHeartbeat, 1<<20)
	ts.recreate(t, ts.topics[0])
	want := ts.put(t, ts.topics[0], 5, 20)
	eventually(t, "its claim ends", func() bool { return told(broker.Ended) == 1 })
	looks := ts.net.sent(keyMetadata)
	eventually(t, "topics are looked at again", func() bool { return ts.net.sent(keyMetadata) > looks+3 })
	if n := told(broker.Assigned); n != 1 {
		t.Error("the new topic is begun before the group assigns it")
	}
	ts.net.breakAt(keyConsumerGroupHeartbeat, 0)
	eventually(t, "the new messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if e := r.told(t, broker.Gap, errRecreated.Error()); e.From != 0 {
		t.Errorf("the gap is %+v, want one that says the topic was made again", e)
	}
	if n := len(r.seen()); n != len(old)+len(want) {
		t.Errorf("%d messages came, want %d", n, len(old)+len(want))
	}
}

// TestStaticModern: in the consumer protocol, a process with a static name that ends and starts again within the session has the
// partitions that it had, nobody else's move, and nothing comes twice.
func TestStaticModern(t *testing.T) {
	t.Parallel()
	onConsumer(t, 4, func(t *testing.T, ts *testSystem) {
		ts.lease = 3 * patience // nobody waits for that
		start := func(name string) *runner {
			cfg := ts.config(ts.net.link())
			cfg.InstanceID = name
			return startRunner(t, cfg)
		}
		has := func(r *runner) (ps []int32) {
			who := r.s.m.committers()
			for no := range ts.parts {
				if _, ours := who(partitionID{ts.topics[0], no}); ours {
					ps = append(ps, no)
				}
			}
			return ps
		}
		a, b := start("a"), start("b")
		eventually(t, "they share", func() bool { return len(has(a)) == 2 && len(has(b)) == 2 })
		before := has(a)
		want := ts.put(t, ts.topics[0], 0, 40)
		came := func() bool {
			return !slices.ContainsFunc(want, func(v string) bool { return a.seen()[v]+b.seen()[v] == 0 })
		}
		eventually(t, "all came", came)
		a.close()
		eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		first := a.seen()
		a = start("a")
		eventually(t, "it has its partitions back", func() bool { return slices.Equal(has(a), before) })
		for v, n := range first {
			a.mu.Lock()
			a.times[v] += n
			a.mu.Unlock()
		}
		want = append(want, ts.put(t, ts.topics[0], 40, 40)...)
		eventually(t, "all came", came)
		if e, ok := b.event(broker.Ended, ""); ok {
			t.Errorf("a partition of the other one ended: %v", e.Err)
		}
		for _, v := range want {
			if n := a.seen()[v] + b.seen()[v]; n != 1 {
				t.Errorf("%s came %d times", v, n)
			}
		}
	})
}

// TestSessionEndsBesideSettings: the coordinator answers nothing any more, and the end of the session comes while the settings
// are asked for. What we have ends then, and not when one more heartbeat has got no answer: others may have it by now.
func TestSessionEndsBesideSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Connection: Connection{Brokers: []string{"broker:1"}, RequestTimeout: 10 * time.Second}, Group: testGroup,
			Topics: []string{"a"}, Membership: "consumer", SessionTimeout: 45 * time.Second}.withDefaults()
		cfg.DialTimeout = time.Hour // it is taken, and not answered
		cfg.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := cfg.connect()
		if err != nil {
			t.Fatal(err)
		}
		defer c.transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		var after time.Duration
		g := newModern(&coordinator{c: c, group: testGroup}, &cfg, host{
			topics: func() []string { return cfg.Topics }, trouble: func(time.Time, error) {}, say: func(broker.Event) {}, find: func() {},
			tell: func(c change) {
				if c.kind == lost {
					after = time.Since(began)
					cancel()
				}
			},
		})
		g.m.named(map[topicID]string{{1}: "a"})
		changes, _ := g.m.answered(g.m.beat(), beatAnswer{epoch: 1, told: true, assigned: []logPart{{topicID{1}, 0}}}, began)
		g.heard(began, nil)
		g.announce(changes)
		if err := g.run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		if after != cfg.SessionTimeout {
			t.Errorf("it is lost after %v, want %v", after, cfg.SessionTimeout)
		}
	})
}
