package kafkabroker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// A runner consumes and acks everything, and keeps the books.
type runner struct {
	t   testing.TB
	s   *Source
	end chan struct{}

	mu     sync.Mutex
	times  map[string]int
	events []broker.Event
	err    error
	hold   bool                // ack nothing
	out    chan broker.Message // where what comes goes to; nil: nowhere
	killed bool
	watch  func(broker.Event) // nil: nobody
	budget int64              // bytes; 0: enough
}

func startRunner(t testing.TB, cfg Config) *runner {
	t.Helper()
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return runSource(t, s)
}

func runSource(t testing.TB, s *Source) *runner {
	t.Helper()
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int)}
	r.open(t)
	return r
}

func (r *runner) open(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	budget := broker.Budget{Messages: 500, Bytes: cmp.Or(r.budget, 8<<20)}
	_, err := r.s.Open(ctx, broker.Options{Budget: budget, Observe: func(e broker.Event) {
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
		if r.watch != nil {
			r.watch(e)
		}
	}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	go r.run()
	t.Cleanup(r.close)
}

const patience = 20 * time.Second

func (r *runner) run() {
	defer close(r.end)
	dst := make([]broker.Message, 64)
	for {
		n, err := r.s.Receive(dst)
		r.mu.Lock()
		if err != nil {
			r.err = err
			r.mu.Unlock()
			return
		}
		hold := r.hold
		r.mu.Unlock()
		for i := 0; i < n && !hold; i++ {
			_ = r.s.Ack(dst[i].Claim, []uint64{dst[i].Token})
		}
		r.mu.Lock() // who sees that a message came may close at once, and find it acked
		for _, m := range dst[:n] {
			r.times[string(m.Value)]++
		}
		r.mu.Unlock()
		for i := 0; i < n && r.out != nil; i++ {
			r.out <- dst[i]
		}
	}
}

// kill ends it without a goodbye.
func (r *runner) kill(l *link) {
	l.kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.s.Close(ctx)
	<-r.end
	r.killed = true
}

func (r *runner) close() {
	if r.killed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.s.Close(ctx); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	<-r.end
}

func (r *runner) seen() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.times)
}

// event finds one by its kind and a part of its error's text.
func (r *runner) event(k broker.Kind, text string) (broker.Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == k && (text == "" || e.Err != nil && strings.Contains(e.Err.Error(), text)) {
			return e, true
		}
	}
	return broker.Event{}, false
}

// told waits until an event is there. Events are told one after the other: what they are about may be seen before.
func (r *runner) told(t testing.TB, k broker.Kind, text string) (e broker.Event) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v is told: %q", k, text), func() (is bool) { e, is = r.event(k, text); return is })
	return e
}

// eventually waits until cond holds. It may take long: beside others, with the race detector.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, 3*patience)
		}
	}
}

// put produces n messages round the partitions of a topic and returns their values.
func (ts *testSystem) put(t testing.TB, topic string, from, n int) (values []string) {
	t.Helper()
	for i := from; i < from+n; i++ {
		v := fmt.Sprintf("%s-%d", topic, i)
		values = append(values, v)
		ts.produce(t, i, broker.Outgoing{Topic: topic, Value: []byte(v)})
	}
	return values
}

func (r *runner) has(values []string) bool {
	got := r.seen()
	for _, v := range values {
		if got[v] == 0 {
			return false
		}
	}
	return true
}

// TestFaultAnswers proves for each answer of a broker that the source goes on: nothing is lost, all is committed (f23, f24, f25).
func TestFaultAnswers(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		key  kmsg.Key
		errs []*kerr.Error
	}{
		{kmsg.OffsetCommit, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.RebalanceInProgress,
			kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RequestTimedOut, kerr.GroupAuthorizationFailed,
			kerr.OffsetMetadataTooLarge}},
		{kmsg.Fetch, []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.OffsetOutOfRange,
			kerr.UnknownServerError, kerr.TopicAuthorizationFailed, kerr.CorruptMessage, kerr.FencedLeaderEpoch}},
		{kmsg.Heartbeat, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.UnknownMemberID, kerr.IllegalGeneration,
			kerr.RebalanceInProgress, kerr.UnknownServerError, kerr.GroupAuthorizationFailed}},
		{kmsg.JoinGroup, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.UnknownMemberID,
			kerr.GroupMaxSizeReached, kerr.UnknownServerError}},
		{kmsg.SyncGroup, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.RebalanceInProgress, kerr.UnknownMemberID,
			kerr.IllegalGeneration}},
		{kmsg.OffsetFetch, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.UnstableOffsetCommit}},
		{kmsg.ListOffsets, []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable}},
		{kmsg.FindCoordinator, []*kerr.Error{kerr.CoordinatorNotAvailable}},
	} {
		for _, e := range f.errs {
			t.Run(f.key.Name()+"/"+e.Message, func(t *testing.T) {
				t.Parallel()
				ts := newTestSystem(t, 2, 1)
				topic := ts.topics[0]
				want := ts.put(t, topic, 0, 40)
				early := slices.Contains([]kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch, kmsg.ListOffsets, kmsg.FindCoordinator},
					f.key)
				fault := kfake.Fault{Keys: []kmsg.Key{f.key}, Err: e, Count: 3, TopLevel: f.key == kmsg.Heartbeat ||
					f.key == kmsg.JoinGroup || f.key == kmsg.SyncGroup}
				var h *kfake.FaultHandle
				if early {
					h = ts.cluster.Fault(fault)
				}
				r := startRunner(t, ts.config(ts.net.link()))
				if !early {
					eventually(t, "some messages came", func() bool { return len(r.seen()) > 0 })
					h = ts.cluster.Fault(fault)
				}
				want = append(want, ts.put(t, topic, 40, 40)...)
				eventually(t, "the fault was met", func() bool { return h.Hits() >= 1 })
				want = append(want, ts.put(t, topic, 80, 40)...)
				eventually(t, "all messages came", func() bool { return r.has(want) })
				eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
			})
		}
	}
}

// TestMoves proves that leaders and coordinators are followed (f26).
func TestMoves(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 6, 1, kfake.NumBrokers(3))
	r := startRunner(t, ts.config(ts.net.link()))
	var want []string
	for i := range 8 {
		want = append(want, ts.put(t, ts.topics[0], 30*i, 30)...)
		ts.cluster.ShufflePartitionLeaders()
		if i%2 == 1 {
			ts.cluster.RehashCoordinators()
		}
		eventually(t, "all messages came", func() bool { return r.has(want) })
	}
	if err := ts.cluster.RemoveNode(ts.cluster.LeaderFor(ts.topics[0], 0)); err != nil {
		t.Fatal(err)
	}
	want = append(want, ts.put(t, ts.topics[0], 240, 30)...)
	eventually(t, "all messages came after a broker was gone", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestNewTopics proves that a topic that is made later, one that matches a pattern, and new partitions are picked up (f29).
func TestNewTopics(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testNewTopics)
}

func testNewTopics(t *testing.T, ts *testSystem) {
	late := ts.topics[0] + "-late"
	cfg := ts.config(ts.net.link())
	cfg.Topics, cfg.Pattern = nil, regexp.QuoteMeta(ts.topics[0])+".*"
	r := startRunner(t, cfg)
	named := ts.config(ts.net.link())
	named.Group, named.Topics, named.Missing = ts.group+"-named", []string{late}, "run"
	other := startRunner(t, named)
	eventually(t, "it is told that a topic does not exist", func() bool { _, ok := other.event(broker.Warning, late); return ok })
	createTopic(t, ts.admin, late, 1)
	t.Cleanup(func() { deleteTopic(t, ts.admin, late) })
	want := append(ts.put(t, ts.topics[0], 0, 5), ts.put(t, late, 0, 5)...)
	eventually(t, "the late topic is read", func() bool { return r.has(want) && other.has(want[5:]) })
	ts.addPartitions(t, ts.topics[0], 3)
	var more []string
	for i := range 6 {
		more = append(more, ts.putInto(t, ts.topics[0], int32(i%3), fmt.Sprintf("new-%d", i)))
	}
	eventually(t, "new partitions are read", func() bool { return r.has(more) })
}

// TestUnmatchedPattern: a pattern that matches no topic, as a mistyped one, is told of once, and waited for.
func TestUnmatchedPattern(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	cfg := ts.config(ts.net.link())
	cfg.Topics, cfg.Pattern = nil, "later.*"
	r := startRunner(t, cfg)
	told := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.Kind == broker.Warning && strings.Contains(e.Err.Error(), `no topic matches "later.*": waiting for one`) {
				n++
			}
		}
		return n
	}
	eventually(t, "it is told", func() bool { return told() == 1 })
	looks := ts.net.sent(keyMetadata)
	eventually(t, "topics are looked at again", func() bool { return ts.net.sent(keyMetadata) > looks+10 })
	createTopic(t, ts.admin, "later-0", 1)
	want := ts.put(t, "later-0", 0, 3)
	eventually(t, "the late topic is read", func() bool { return r.has(want) })
	if n := told(); n != 1 {
		t.Errorf("it was told %d times", n)
	}
}

// TestDeletedTopic: one of two topics is deleted with progress in it that is not committed. Its claims end, those of the other
// one go on, and Close does not wait for a commit that nobody can take.
func TestDeletedTopic(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testDeletedTopic)
}

func testDeletedTopic(t *testing.T, ts *testSystem) {
	ts.lease = lasting // it does not lose its session, however long the machine stands still
	doomed := ts.topics[0] + "-doomed"
	createTopic(t, ts.admin, doomed, 1)
	cfg := ts.config(ts.net.link())
	cfg.Topics, cfg.CommitInterval, cfg.CommitMessages = []string{ts.topics[0], doomed}, 10*patience, 1_000_000
	r := startRunner(t, cfg)
	want := append(ts.put(t, ts.topics[0], 0, 5), ts.put(t, doomed, 0, 5)...)
	eventually(t, "both are read", func() bool { return r.has(want) })
	deleteTopic(t, ts.admin, doomed)
	eventually(t, "its claim ends", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.events, func(e broker.Event) bool { return e.Kind == broker.Ended && e.Claim.Topic == doomed })
	})
	want = ts.put(t, ts.topics[0], 5, 5)
	eventually(t, "the other topic goes on", func() bool { return r.has(want) })
	r.close()
	eventually(t, "the other topic is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestLatestHolds: with start latest the position is committed at once, so that what comes before the first message is handled is
// not skipped by the next process.
func TestLatestHolds(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.put(t, ts.topics[0], 0, 5)
	l := ts.net.link()
	cfg := ts.config(l)
	cfg.Start.At = "latest"
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	committed := make(chan int64, 1)
	if _, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1},
		Observe: func(e broker.Event) {
			if e.Kind == broker.Assigned {
				committed <- ts.fakeProgress(ts.topics[0])[0].committed
			}
		}}); err != nil {
		t.Fatal(err)
	}
	if at := <-committed; at != 5 {
		t.Errorf("when the claim begins %d is committed, want 5", at)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	want := ts.put(t, ts.topics[0], 5, 5)
	next := startRunner(t, cfg)
	eventually(t, "what came between is handed out", func() bool { return next.has(want) })
	if len(next.seen()) != 5 {
		t.Errorf("%d messages came, want 5", len(next.seen()))
	}
}

// TestKiller: a message above which process after process dies is told of.
func TestKiller(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.lease = time.Second // it is waited for
	ts.put(t, ts.topics[0], 0, 5)
	for i := range killer {
		l := ts.net.link()
		s, err := NewSource(ts.config(l))
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true}
		if _, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 5, Bytes: 1 << 20},
			Observe: func(broker.Event) {}}); err != nil {
			t.Fatal(err)
		}
		go r.run()
		eventually(t, "the messages are out", func() bool { return len(r.seen()) == 5 })
		eventually(t, "the start is committed", func() bool { return ts.starts() == i+1 })
		r.kill(l)
	}
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "it is told", func() bool { _, ok := r.event(broker.Warning, "may be killing"); return ok })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// starts is what is committed of partition 0.
func (ts *testSystem) starts() int {
	info := ts.cluster.GroupInfo(testGroup)
	if info == nil {
		return 0
	}
	c := info.Commits[ts.topics[0]][0]
	p, _ := decodeMetadata(c.Offset, c.Metadata)
	return p.starts
}

// TestUndecodableStops: by default a batch that cannot be decoded ends Receive with an error that names it; what is before it was
// handed out.
func TestUndecodableStops(t *testing.T) {
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			ts := newTestSystem(t, 1, 1)
			want := ts.put(t, ts.topics[0], 0, 3)
			ts.undecodable(t, ts.topics[0])
			after := ts.put(t, ts.topics[0], 3, 3)
			cfg := ts.config(ts.net.link())
			cfg.SkipUndecodable = skip
			r := startRunner(t, cfg)
			eventually(t, "what is before it came", func() bool { return r.has(want) })
			if skip {
				eventually(t, "what is behind it came", func() bool { return r.has(after) })
				if e := r.told(t, broker.Gap, "topic0/0: record batch at offset 3"); e.From != 3 || e.N != 1 {
					t.Errorf("the gap is %+v", e)
				}
				eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
				return
			}
			<-r.end
			if r.err == nil || !strings.Contains(r.err.Error(), "topic0/0: record batch at offset 3") {
				t.Errorf("Receive returned %v, want the topic, partition and offset", r.err)
			}
			eventually(t, "what is before it is committed", func() bool { return ts.unsettled(t) == 4 })
		})
	}
}

// TestTransactions: what was aborted is dropped, what is open waits, and markers do not keep the commit from the log's end.
func TestTransactions(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testTransactions)
}

func testTransactions(t *testing.T, ts *testSystem) {
	tx, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.TransactionalID(ts.group),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	ctx := context.Background()
	var want []string
	for i := range 6 {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for j := range 5 {
			v := fmt.Sprintf("tx%d-%d", i, j)
			if i%2 == 0 {
				want = append(want, v)
			}
			if err := tx.ProduceSync(ctx, &kgo.Record{Topic: ts.topics[0], Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "committed transactions came", func() bool { return r.has(want) })
	eventually(t, "the commit is at the log's end", func() bool { return ts.unsettled(t) == 0 })
	if len(r.seen()) != len(want) {
		t.Errorf("%d messages came, want %d", len(r.seen()), len(want))
	}
	cfg := ts.config(ts.net.link())
	cfg.Group, cfg.Uncommitted = ts.group+"-dirty", true
	dirty := startRunner(t, cfg)
	eventually(t, "read_uncommitted has all", func() bool { return len(dirty.seen()) == 30 })
}

// TestLagUnderLoad: the lag grows although nothing is fetched, because the budget is used up.
func TestLagUnderLoad(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.put(t, ts.topics[0], 0, 600)
	cfg := ts.config(ts.net.link())
	cfg.SessionTimeout = 10 * time.Second // what is out under a claim that was lost meanwhile would be counted again
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true}
	if _, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20},
		Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	go r.run()
	defer r.close()
	eventually(t, "the budget is used up", func() bool { return len(r.seen()) == 100 })
	ts.put(t, ts.topics[0], 600, 50)
	eventually(t, "the lag counts what came since", func() bool { l := s.Lag(); return l.Waiting == 550 && l.Unsettled == 650 })
}
