package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/internal/dialer"
)

const testGroup = "workers"

// A testSystem is a group and its topics for one case, on a cluster in this process or on a real one.
type testSystem struct {
	balancer   string
	membership string
	// transactional: sources are, and balancer is sticky.
	transactional bool
	group         string
	brokers       []string
	cluster       *kfake.Cluster // nil on a real one
	admin         *kgo.Client
	net           network
	dials         func(dialer.Func) dialer.Func // over net's; nil: there is nothing over it
	topics        []string
	outputs       string // where the suite's outputs go
	parts         int32
	short         time.Duration // the harness's lease
	lease         time.Duration // this case's

	mu      sync.Mutex
	sources []*Source
	avoid   map[partitionID]*Source // plans give the partition to somebody else
	bounce  map[partitionID]bool    // the next plan gives it to nobody
	floors  map[string][]int64
	failing []*kfake.FaultHandle        // of commits
	away    map[*Source]map[string]away // of the consumer protocol: who does not subscribe to what
	session time.Duration               // of the group, as the brokers have it
}

// plainTestSystem knows its names and nothing of a cluster. A balancer "consumer" is the broker's.
func plainTestSystem(s brokertest.Setup, balancer string, lease time.Duration) *testSystem {
	membership, transactional := "classic", balancer == "transactional"
	if transactional {
		balancer = "sticky"
	}
	if balancer == "consumer" {
		membership, balancer = "consumer", "sticky"
	}
	ts := &testSystem{
		transactional: transactional, membership: membership, away: make(map[*Source]map[string]away),
		balancer: balancer, parts: int32(s.Partitions), short: lease, lease: lease,
		avoid: make(map[partitionID]*Source), bounce: make(map[partitionID]bool), floors: make(map[string][]int64),
	}
	if s.Lease != 0 {
		ts.lease = max(s.Lease, lease)
	}
	return ts
}

func (ts *testSystem) connect(t testing.TB) {
	t.Helper()
	admin, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(4<<20),
		kgo.UnknownTopicRetries(20))
	if err != nil {
		t.Fatal(err)
	}
	ts.admin = admin
	t.Cleanup(admin.Close)
}

func (ts *testSystem) system() *brokertest.System {
	sys := &brokertest.System{
		Topics: ts.topics, Join: ts.join, Produce: ts.produce, Unsettled: ts.unsettled, MaxMessageBytes: 1_000_000,
		Floors:      ts.history,
		Pulls:       func(testing.TB) int64 { return ts.net.sent(keyFetch) },
		Heartbeats:  func(testing.TB) int64 { return ts.net.sent(keyHeartbeat) + ts.net.sent(keyConsumerGroupHeartbeat) },
		Publisher:   ts.publisher,
		Down:        func(testing.TB) { ts.net.setDown(true) },
		Up:          func(testing.TB) { ts.net.setDown(false) },
		Revoke:      ts.revoke,
		Bounce:      ts.bounceClaim,
		Steal:       ts.steal,
		FailSettles: func(_ testing.TB, n int) { ts.failCommits(n) },
		SlowSettles: func(_ testing.TB, d time.Duration) { ts.net.setSlow(d) },
		Trim:        ts.trim,
		Recreate:    ts.recreate,
		Undecodable: ts.undecodable, Misconfigured: ts.misconfigured,
	}
	if ts.transactional {
		sys.Outputs, sys.Stored = ts.outputs, ts.stored
	}
	return sys
}

func claimed(c *broker.Claim) partitionID { return partitionID{c.Topic, c.Partition} }

func (ts *testSystem) set(f func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	f()
}

func (ts *testSystem) revoke(_ testing.TB, c *broker.Claim) {
	owner := ts.ownerOf(c)
	if ts.membership == "consumer" {
		ts.sendAway(owner, c, goneUntilAlone)
		return
	}
	ts.set(func() { ts.avoid[claimed(c)] = owner })
	ts.rebalance()
}

func (ts *testSystem) ownerOf(c *broker.Claim) (owner *Source) {
	ts.set(func() {
		for _, s := range ts.sources {
			if s.partOf(c) != nil {
				owner = s
			}
		}
	})
	return owner
}

func (ts *testSystem) bounceClaim(_ testing.TB, c *broker.Claim) {
	if ts.membership == "consumer" {
		ts.sendAway(ts.ownerOf(c), c, goneUntilReleased)
		return
	}
	if schemes[ts.balancer].cooperative { // an eager group takes everything away at each join
		ts.set(func() { ts.bounce[claimed(c)] = true })
	}
	ts.rebalance()
}

// steal takes the owner out of the group, as an administrator can.
func (ts *testSystem) steal(t testing.TB, c *broker.Claim) {
	owner := ts.ownerOf(c)
	if ts.membership == "consumer" {
		ts.sendAway(owner, c, goneUntilAlone)
		ts.expel(t, owner)
		return
	}
	ts.set(func() { ts.avoid[claimed(c)] = owner })
	ts.putOut(t, owner)
}

// putOut takes a member out of a classic group, as an administrator can. It joins again.
func (ts *testSystem) putOut(t testing.TB, owner *Source) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = ts.group
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: owner.m.self().member}}
	if _, err := ts.admin.Request(context.Background(), req); err != nil {
		t.Fatal(err)
	}
}

// failCommits lets the next ones fail: by the broker's answer, or where that cannot be scripted by a connection that breaks. 0:
// none any more.
func (ts *testSystem) failCommits(n int) {
	switch {
	case ts.cluster == nil:
		key := int16(keyOffsetCommit)
		if ts.transactional {
			key = keyTxnOffsetCommit
		}
		ts.net.breakAt(key, n)
	case n == 0:
		for _, f := range ts.failing {
			f.Remove()
		}
	default:
		f := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit},
			Err: kerr.CoordinatorLoadInProgress, Count: n})
		ts.failing = append(ts.failing, f)
	}
}

// misconfigured makes a source with a session timeout, or an assignor, that no broker takes.
func (ts *testSystem) misconfigured(t testing.TB) broker.Source {
	cfg := ts.config(ts.net.link())
	cfg.Membership, cfg.SessionTimeout = "classic", 24*time.Hour
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.Balancer = unknownAssignor
	return s
}

// unknownAssignor is no balancer, so validation would not let it pass; the classic protocol's is chosen by then.
const unknownAssignor = "unknown"

func init() { assignors[unknownAssignor] = unknownAssignor }

// rebalance lets the group's leader join again.
func (ts *testSystem) rebalance() {
	ts.mu.Lock()
	sources := slices.Clone(ts.sources)
	ts.mu.Unlock()
	for _, s := range sources {
		g := s.m.(*classic)
		g.mu.Lock()
		g.has.rejoin = g.has.rejoin || g.leads
		g.mu.Unlock()
		signal(g.poke)
	}
}

// plan is what leaders make of their plans.
func (ts *testSystem) plan(plan map[string][]partitionID) map[string][]partitionID {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	who := make(map[string]*Source)
	for _, s := range ts.sources {
		who[s.m.self().member] = s
	}
	for id, ps := range plan {
		var keep []partitionID
		for _, p := range ps {
			if ts.bounce[p] {
				delete(ts.bounce, p)
				continue
			}
			if avoided := ts.avoid[p]; avoided != nil && who[id] == avoided {
				if other := otherThan(plan, who, avoided); other != "" {
					plan[other] = append(plan[other], p)
					continue
				}
			}
			keep = append(keep, p)
		}
		plan[id] = keep
	}
	return plan
}

func otherThan(plan map[string][]partitionID, who map[string]*Source, avoided *Source) string {
	for id := range plan {
		if who[id] != nil && who[id] != avoided {
			return id
		}
	}
	return ""
}

func (ts *testSystem) config(l *link) Config {
	ts.setSession(ts.lease)
	dial := dialer.Func(l.dial)
	if ts.dials != nil {
		dial = ts.dials(dial)
	}
	return Config{
		Connection: Connection{Brokers: ts.brokers, RequestTimeout: 2 * time.Second, dial: dial},
		Group:      ts.group, Topics: ts.topics, Membership: ts.membership, Balancer: ts.balancer, SessionTimeout: ts.lease,
		HeartbeatInterval: min(ts.lease/10, 100*time.Millisecond),
		RevokeWait:        revokeWait(ts.balancer, ts.short), RebalanceTimeout: 20 * ts.short, CommitInterval: 5 * time.Millisecond,
		Poll:    100 * time.Millisecond,
		MaxWait: 100 * time.Millisecond, MaxBatchBytes: 4 << 20, plan: ts.plan, Transactional: ts.transactional,
		// A transaction has six exchanges, and a case makes each a quarter of a lease longer.
		TransactionTimeout: max(time.Second, min(2*ts.lease, 3*time.Second)),
	}
}

func (ts *testSystem) join(t testing.TB) *brokertest.Process {
	l := ts.net.link()
	s, err := NewSource(ts.config(l))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, s) })
	ts.watchSubscription(s)
	return &brokertest.Process{
		Source: s,
		Kill: func() {
			l.kill()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Close(ctx)
		},
		Freeze: func() { l.setCut(brokertest.Both, true) },
		Thaw:   func() { l.setCut(brokertest.Both, false) },
		Cut:    func(d brokertest.Direction) { l.setCut(d, true) },
		Heal:   func() { l.setCut(brokertest.Both, false) },

		EndReceive: func() { ts.undecodable(t, ts.topics[0]) },
	}
}

func (ts *testSystem) produce(t testing.TB, partition int, ms ...broker.Outgoing) {
	t.Helper()
	var rs []*kgo.Record
	for _, m := range ms {
		r := &kgo.Record{Topic: m.Topic, Partition: int32(partition) % ts.parts, Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		rs = append(rs, r)
	}
	if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (ts *testSystem) publisher(t testing.TB) broker.Publisher {
	return ts.publisherFor(t, 2*time.Second)
}

// publisherFor makes one that tries on for so long.
func (ts *testSystem) publisherFor(t testing.TB, long time.Duration) broker.Publisher {
	p, err := NewPublisher(PublisherConfig{
		Connection:      Connection{Brokers: ts.brokers, RequestTimeout: long, dial: ts.net.link().dial},
		MaxMessageBytes: 1_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A progressOf is what the cluster has of a partition, and of the group's progress in it.
type progressOf struct {
	start, end int64
	committed  int64 // -1: nothing
	metadata   string
}

// unsettled goes by the cluster's own state.
func (ts *testSystem) unsettled(t testing.TB) (n int64) {
	t.Helper()
	for _, topic := range ts.topics {
		for no, p := range ts.progress(t, topic) {
			n += ts.left(t, topic, no, p)
		}
	}
	return n
}

func (ts *testSystem) progress(t testing.TB, topic string) []progressOf {
	t.Helper()
	if ts.cluster != nil {
		return ts.fakeProgress(topic)
	}
	return ts.realProgress(t, topic)
}

// left is how many messages of a partition are not settled.
func (ts *testSystem) left(t testing.TB, topic string, no int, p progressOf) int64 {
	t.Helper()
	at, done := p.start, []span(nil)
	if p.committed >= 0 {
		ts.floor(topic, no, p.committed)
		pr, err := decodeMetadata(p.committed, p.metadata)
		if err != nil {
			t.Errorf("committed metadata of %s/%d: %v", topic, no, err)
		}
		at, done = max(at, p.committed), pr.done
	}
	n := max(0, p.end-at)
	for _, s := range done {
		n -= max(0, min(s.to, p.end)-max(s.from, at))
	}
	return n
}

func (ts *testSystem) floor(topic string, no int, offset int64) {
	key := fmt.Sprintf("%s/%d", topic, no)
	ts.set(func() {
		if h := ts.floors[key]; len(h) == 0 || h[len(h)-1] != offset {
			ts.floors[key] = append(h, offset)
		}
	})
}

func (ts *testSystem) history(t testing.TB) map[string][]int64 {
	ts.unsettled(t)
	return ts.floors
}
