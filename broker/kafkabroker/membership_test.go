package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestTakeover proves that a running group of kafka.Reader members is taken over member by member with nothing lost.
func TestTakeover(t *testing.T) {
	for balancer, theirs := range map[string]kafka.GroupBalancer{"range": kafka.RangeGroupBalancer{},
		"roundrobin": kafka.RoundRobinGroupBalancer{}} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			onEach(t, 4, func(t *testing.T, ts *testSystem) { testTakeover(t, ts, balancer, theirs) })
		})
	}
}

func testTakeover(t *testing.T, ts *testSystem, balancer string, theirs kafka.GroupBalancer) {
	ts.balancer, ts.lease = balancer, time.Second
	var mu sync.Mutex
	seen := make(map[string]bool)
	read := func() (stop func()) {
		rd := kafka.NewReader(kafka.ReaderConfig{
			Brokers: ts.brokers, GroupID: ts.group, Topic: ts.topics[0], GroupBalancers: []kafka.GroupBalancer{theirs},
			StartOffset: kafka.FirstOffset, SessionTimeout: time.Second, HeartbeatInterval: 100 * time.Millisecond,
			RebalanceTimeout: 3 * time.Second,
			JoinGroupBackoff: 100 * time.Millisecond, MaxWait: 100 * time.Millisecond,
		})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer close(done)
			for {
				m, err := rd.FetchMessage(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				seen[string(m.Value)] = true
				mu.Unlock()
				_ = rd.CommitMessages(ctx, m)
			}
		}()
		return func() { cancel(); <-done; _ = rd.Close() }
	}
	stop1, stop2 := read(), read()
	var want []string
	var ours []*runner
	handled := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, v := range want {
			ok := seen[v]
			for _, r := range ours {
				ok = ok || r.seen()[v] > 0
			}
			if !ok {
				return false
			}
		}
		return true
	}
	step := func(what string, f func()) {
		want = append(want, ts.put(t, ts.topics[0], len(want), 40)...)
		f()
		want = append(want, ts.put(t, ts.topics[0], len(want), 40)...)
		eventually(t, what, handled)
	}
	step("readers alone", func() {})
	step("one of ours beside two readers", func() { ours = append(ours, startRunner(t, ts.config(ts.net.link()))) })
	step("one each", stop1)
	step("two of ours beside one reader", func() { ours = append(ours, startRunner(t, ts.config(ts.net.link()))) })
	step("ours alone", stop2)
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestStatic: a static member that comes back within the session has its partitions again without a rebalance.
func TestStatic(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	ts.lease = 5 * time.Second
	cfg := ts.config(ts.net.link())
	cfg.InstanceID = "one"
	r := startRunner(t, cfg)
	eventually(t, "it has claims", func() bool { _, ok := r.event(broker.Assigned, ""); return ok })
	before := ts.cluster.GroupInfo(testGroup).Epoch
	r.close()
	if n := ts.net.sent(keyLeaveGroup); n > 0 {
		t.Errorf("it left the group %d times", n)
	}
	r = startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 4)
	eventually(t, "it goes on", func() bool { return r.has(want) })
	if ts.net.sent(keyDescribeGroups) < 2 {
		t.Error("it did not look whether all partitions are given to somebody")
	}
	if after := ts.cluster.GroupInfo(testGroup).Epoch; after != before {
		t.Errorf("the generation went from %d to %d", before, after)
	}
}

// TestStaticTwice: of two processes with one instance id the first is fenced: it ends with an error that says so, and the second
// has its partitions.
func TestStaticTwice(t *testing.T) {
	t.Parallel()
	onEach(t, 2, testStaticTwice)
}

func testStaticTwice(t *testing.T, ts *testSystem) {
	cfg := ts.config(ts.net.link())
	cfg.InstanceID = "one"
	cfg.SessionTimeout = patience // else a first one whose session has run out comes back as a new member, and fences the second
	first := startRunner(t, cfg)
	eventually(t, "it has claims", func() bool { _, ok := first.event(broker.Assigned, ""); return ok })
	second := startRunner(t, cfg)
	<-first.end
	if !errors.Is(first.err, kafka.FencedInstanceID) || !strings.Contains(first.err.Error(), ts.group) {
		t.Errorf("Receive of the first one returned %v, want that its instance id is taken, and the group", first.err)
	}
	want := ts.put(t, ts.topics[0], 0, 10)
	eventually(t, "the second one has all", func() bool { return second.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if _, ended := first.event(broker.Ended, ""); !ended {
		t.Error("the first one's claims go on")
	}
}

// TestRejoin: a member joins again when it has given up what the group wanted back, and not when it ends: the last commit at
// Close also releases, and a join there moves everybody else's partitions once more.
func TestRejoin(t *testing.T) {
	p, q, r := partitionID{"orders", 0}, partitionID{"orders", 1}, partitionID{"orders", 2}
	for name, tc := range map[string]struct {
		assigned [][]partitionID // one assignment after the other
		released [][]partitionID
		want     bool
	}{
		"given up":                      {[][]partitionID{{p, q}, {p}}, [][]partitionID{{q}}, true},
		"one of two given up":           {[][]partitionID{{p, q}, {}}, [][]partitionID{{q}}, false},
		"two given up, one by one":      {[][]partitionID{{p, q}, {}}, [][]partitionID{{q}, {p}}, true},
		"one given up, one comes again": {[][]partitionID{{p, q, r}, {p}, {p, r}}, [][]partitionID{{q}, {r}}, true},
		"comes again":                   {[][]partitionID{{p, r}, {p}, {p, r}}, [][]partitionID{{r}}, false},
		"never revoked":                 {[][]partitionID{{p, q}}, [][]partitionID{{p, q}}, false},
		"given up beside a kept one":    {[][]partitionID{{p, q}, {p}}, [][]partitionID{{p, q}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Group: testGroup, Topics: []string{"orders"}}.withDefaults()
			g := newClassic(nil, &cfg, host{topics: func() []string { return cfg.Topics }, tell: func(change) {}})
			g.names = cfg.Topics
			for _, ps := range tc.assigned {
				g.apply(ps)
			}
			for _, ps := range tc.released {
				g.release(ps)
			}
			if got := g.wantsJoin(); got != tc.want {
				t.Errorf("wantsJoin is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestToldInOrder: what the group wants again is told while it is drained, and at that moment it is lost, or to be given up once
// more. Told the other way round a claim would begin that is not ours, and nothing would end it.
func TestToldInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*classic)
		last      changeKind
	}{
		"lost":             {func(g *classic) { g.lose(kafka.UnknownMemberId) }, lost},
		"to be given back": {func(g *classic) { g.apply(nil) }, revoking},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Group: testGroup, Topics: []string{"orders"}}.withDefaults()
			var told []changeKind
			var ended atomic.Bool
			var beside sync.WaitGroup
			releases := false
			g := newClassic(nil, &cfg, host{topics: func() []string { return cfg.Topics }})
			g.tell = func(c change) {
				if releases && c.kind == assigned {
					beside.Go(func() { tc.meanwhile(g); ended.Store(true) })
					for range 1000 { // it is on a processor for long enough to end, unless it waits for us
						if ended.Load() {
							break
						}
						runtime.Gosched()
					}
				}
				told = append(told, c.kind)
			}
			p := []partitionID{{"orders", 0}}
			g.apply(p)
			g.apply(nil)
			g.apply(p)
			releases = true
			g.release(p)
			beside.Wait()
			if want := []changeKind{assigned, revoking, assigned, tc.last}; !slices.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
		})
	}
}

// TestOwnWord: that we want to join again is no answer of the coordinator. While it is away, what was asked last has failed all
// the same, and our place in the group is not taken for safe.
func TestOwnWord(t *testing.T) {
	cfg := Config{Group: testGroup, Topics: []string{"orders"}}.withDefaults()
	g := newClassic(nil, &cfg, host{
		topics: func() []string { return cfg.Topics }, tell: func(change) {},
		trouble: func(time.Time, error) { t.Error("it is told of an exchange, and there was none") },
	})
	away := errors.New("no answer")
	g.fails(away)
	g.mend(time.Now(), errRejoin)
	if s := g.contact(); s.failed != away || !s.asked.IsZero() {
		t.Errorf("asked at %v, failed: %v, want what failed before", s.asked, s.failed)
	}
}

// TestSilence: a coordinator that was away for longer than a session, and still has the group as it was. A broker that is killed
// and started again is such a one: it gives every member it had written down a new session. Who gave its partitions up in the
// silence has to join again: heartbeats alone are answered for ever, and the group thinks that they are being worked on.
func TestSilence(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	ts.cluster.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r.(*kmsg.JoinGroupRequest).SessionTimeoutMillis = 60_000
		return nil, nil, false
	})
	r := startRunner(t, ts.config(ts.net.link()))
	want := ts.put(t, ts.topics[0], 0, 4)
	eventually(t, "it works", func() bool { return r.has(want) })
	ts.net.setDown(true)
	eventually(t, "it gives its partitions up", func() bool { _, ok := r.event(broker.Ended, ""); return ok })
	ts.net.setDown(false)
	want = ts.put(t, ts.topics[0], 4, 4)
	eventually(t, "it works again", func() bool { return r.has(want) })
}

// TestLeave: a coordinator that cannot take the goodbye at the moment is asked again, so that others need not wait for a session
// timeout.
func TestLeave(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress,
		kerr.UnknownMemberID} {
		t.Run(e.Message, func(t *testing.T) {
			ts := newTestSystem(t, 1, 1)
			r := startRunner(t, ts.config(ts.net.link()))
			eventually(t, "it has a claim", func() bool { _, ok := r.event(broker.Assigned, ""); return ok })
			h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.LeaveGroup}, Err: e, Count: 2, TopLevel: true})
			r.close() // fails the test when Close does
			if h.Hits() == 0 {
				t.Fatal("the fault was not met")
			}
			if info := ts.cluster.GroupInfo(testGroup); e != kerr.UnknownMemberID && len(info.Members) > 0 {
				t.Errorf("the group still has %d members", len(info.Members))
			}
		})
	}
}

// TestLostJoin: the group has gone on without us, for the answer to our join is lost. Heartbeats are answered, that our
// generation is over; they do not keep the session, so what we have is given up when it ends.
func TestLostJoin(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	cfg := ts.config(ts.net.link())
	cfg.RebalanceTimeout = 10 * patience // a join waits for so long
	r := startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "three are read", func() bool { return r.has(want) })
	release := make(chan struct{})
	ts.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	var joins atomic.Bool
	ts.cluster.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.IllegalGeneration.Code
		if !joins.Swap(true) {
			resp.ErrorCode = kerr.RebalanceInProgress.Code
		}
		return resp, nil, true
	})
	eventually(t, "its claim ends", func() bool {
		_, ended := r.event(broker.Ended, "no answer for")
		return ended
	})
	close(release)
}

// TestLateJoin: the answer to a join may have been on its way for long. The coordinator counts the session from when it gave the
// answer, not from when we read it: were we to, the claims would outlast the session.
func TestLateJoin(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	r := startRunner(t, ts.config(ts.net.link()))
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "three are read", func() bool { return r.has(want) })
	release, synced := make(chan struct{}), make(chan struct{})
	var began atomic.Pointer[time.Time] // of the last join: on a busy machine there may be several
	var once sync.Once
	ts.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		now := time.Now()
		began.Store(&now)
		ts.cluster.SleepControl(func() { time.Sleep(100 * time.Millisecond) }) // it is under way for so long
		return nil, nil, false
	})
	ts.cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(synced) })
		ts.cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	var beats atomic.Int32
	ts.cluster.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if beats.Add(1) > 1 { // no answer says how we are
			ts.cluster.SleepControl(func() { <-release })
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		return resp, nil, true
	})
	defer close(release)
	<-synced
	at := *began.Load()
	g := r.s.m.(*classic)
	if asked := g.contact().asked; asked.After(at) {
		t.Errorf("the group is believed to have heard of us %v after the join came to it", asked.Sub(at))
	}
}

// TestGoodbye: a goodbye is said again after what may pass, for a while, and is none that fails where the group has us no more.
func TestGoodbye(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer kafka.Error
		times  int // that it is answered
		said   int
		fails  bool
	}{
		{kafka.UnknownMemberId, 100, 1, false},
		{fencedMemberEpoch, 100, 1, false},
		{kafka.GroupIdNotFound, 100, 1, false},
		{kafka.NotCoordinatorForGroup, goodbyes + 3, goodbyes + 4, false},
		{kafka.Unknown, goodbyes, goodbyes + 1, false},
		{kafka.Unknown, 100, goodbyes + 1, true},
		{kafka.GroupAuthorizationFailed, 1, 1, true},
	} {
		t.Run(fmt.Sprintf("%d x %d", c.answer, c.times), func(t *testing.T) {
			t.Parallel()
			said := 0
			err := sayGoodbye(t.Context(), func() error {
				if said++; said <= c.times {
					return fmt.Errorf("heartbeat: %w", c.answer)
				}
				return nil
			})
			if said != c.said || (err != nil) != c.fails {
				t.Errorf("said %d times: %v, want %d times, an error: %v", said, err, c.said, c.fails)
			}
		})
	}
}

// TestTopicOfOthersGrows: partitions are added to a topic that the leader of the group does not subscribe to, as while processes
// are restarted one by one with another topic more. Who does has them all the same.
func TestTopicOfOthersGrows(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 2)
			ts.balancer = balancer
			start := func(topic string) *runner {
				cfg := ts.config(ts.net.link())
				cfg.Topics, cfg.plan, cfg.SessionTimeout = []string{topic}, nil, patience
				return startRunner(t, cfg)
			}
			leader := start(ts.topics[0])
			want := ts.put(t, ts.topics[0], 0, 1)
			eventually(t, "the first has begun", func() bool { return leader.has(want) })
			other := start(ts.topics[1])
			want = ts.put(t, ts.topics[1], 0, 1)
			eventually(t, "the second has begun", func() bool { return other.has(want) })
			ts.addPartitions(t, ts.topics[1], 2)
			want = []string{ts.putInto(t, ts.topics[1], 1, "added")}
			eventually(t, "what is in the new partition came", func() bool { return other.has(want) })
		})
	}
}

// TestLostBetweenJoinAndSync: a member says as it joins what it has, and loses all of that before it hears what it is to have,
// for the answers to its heartbeats do not come. The plan has kept from the others what it was to give up first. It joins again,
// and the next plan gives that away.
func TestLostBetweenJoinAndSync(t *testing.T) {
	t.Parallel()
	onEach(t, 4, testLostBetweenJoinAndSync)
}

func testLostBetweenJoinAndSync(t *testing.T, ts *testSystem) {
	ts.lease = time.Second
	hold := make(chan struct{})
	answer := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(answer)
	late := func(frame []byte) []byte { <-hold; return frame }
	none := []func([]byte) []byte{}
	beats, syncs := &spoiler{key: keyHeartbeat, ways: none}, &spoiler{key: keySyncGroup, ways: none}
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout, cfg.dial = patience, syncs.over(beats.over(cfg.dial))
	first := startRunner(t, cfg)
	eventually(t, "the first one has all", func() bool { return first.claims() == 4 })
	syncs.again(func(frame []byte) []byte {
		beats.again(late)
		return late(frame)
	})
	second := startRunner(t, ts.config(ts.net.link()))
	first.told(t, broker.Ended, "no answer for")
	answer()
	want := ts.put(t, ts.topics[0], 0, 8)
	eventually(t, "each partition is somebody's", func() bool {
		a, b := first.seen(), second.seen()
		return !slices.ContainsFunc(want, func(v string) bool { return a[v] == 0 && b[v] == 0 })
	})
}
