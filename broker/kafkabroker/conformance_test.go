package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
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
)

const (
	testLease = 300 * time.Millisecond
	testGroup = "workers"
)

func harness(balancer string) brokertest.Harness {
	return brokertest.Harness{
		New:        func(t testing.TB, s brokertest.Setup) *brokertest.System { return newSystem(t, s, balancer) },
		Traits:     broker.Traits{Ordered: true, Attempts: broker.AtLeast},
		Lease:      testLease,
		RevokeWait: revokeWait(balancer),
		Patience:   60 * time.Second,
		KeepsRuns:  true,
		Goroutines: []string{"broker/kafkabroker.("},
		Cannot: map[string]string{
			"Redeliver":     "Kafka delivers nothing again by itself",
			"ForgetSettles": "a coordinator that answered a commit has written it",
		},
	}
}

// revokeWait is longer for eager balancers: each join of another member revokes everything, also under handlers that take some leases.
func revokeWait(balancer string) time.Duration {
	if schemes[balancer].cooperative {
		return 2 * testLease
	}
	return 6 * testLease
}

func TestConformance(t *testing.T) {
	needsKafka(t)
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) { brokertest.Run(t, harness(balancer)) })
	}
}

// A testSystem is a fake cluster for one case.
type testSystem struct {
	balancer string
	cluster  *kfake.Cluster
	admin    *kgo.Client
	net      network
	topics   []string
	parts    int32
	lease    time.Duration

	mu      sync.Mutex
	sources []*Source
	avoid   map[partitionID]*Source // plans give the partition to somebody else
	bounce  map[partitionID]bool    // the next plan gives it to nobody
	floors  map[string][]int64
}

// needsKafka holds what runs on a broker. The adapter is not finished: a case of its suite still fails now and then, and nothing uses it
// yet. `make kafka` runs these.
func needsKafka(t testing.TB) {
	t.Helper()
	if os.Getenv("LONGSHORE_KAFKA") == "" {
		t.Skip("the Kafka adapter is not finished: LONGSHORE_KAFKA=1 (make kafka) runs its tests on a broker")
	}
}

func startCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	needsKafka(t)
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newSystem(t testing.TB, s brokertest.Setup, balancer string) *brokertest.System {
	return makeSystem(t, s, balancer).system()
}

func makeSystem(t testing.TB, s brokertest.Setup, balancer string, opts ...kfake.Opt) *testSystem {
	ts := &testSystem{
		balancer: balancer, parts: int32(s.Partitions), lease: testLease,
		avoid: make(map[partitionID]*Source), bounce: make(map[partitionID]bool), floors: make(map[string][]int64),
	}
	if s.Lease != 0 {
		ts.lease = s.Lease
	}
	for i := range s.Topics {
		ts.topics = append(ts.topics, fmt.Sprintf("topic%d", i))
	}
	ts.cluster = startCluster(t, append(opts, kfake.SeedTopics(ts.parts, ts.topics...))...)
	admin, err := kgo.NewClient(kgo.SeedBrokers(ts.cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<20))
	if err != nil {
		t.Fatal(err)
	}
	ts.admin = admin
	t.Cleanup(admin.Close)
	return ts
}

func (ts *testSystem) system() *brokertest.System {
	pulls := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Count: -1, Observe: true})
	beats := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Count: -1, Observe: true})
	return &brokertest.System{
		Topics: ts.topics, Join: ts.join, Produce: ts.produce, Unsettled: ts.unsettled, MaxMessageBytes: 1_000_000,
		Floors:     ts.history,
		Pulls:      func(testing.TB) int64 { return int64(pulls.Hits()) },
		Heartbeats: func(testing.TB) int64 { return int64(beats.Hits()) },
		Publisher:  ts.publisher,
		Down:       func(testing.TB) { ts.net.setDown(true) },
		Up:         func(testing.TB) { ts.net.setDown(false) },
		Revoke: func(t testing.TB, c *broker.Claim) {
			ts.set(func() { ts.avoid[claimed(c)] = c.State.(*part).s })
			ts.rebalance()
		},
		Bounce: func(t testing.TB, c *broker.Claim) {
			if schemes[ts.balancer].cooperative { // an eager group takes everything away at each join
				ts.set(func() { ts.bounce[claimed(c)] = true })
			}
			ts.rebalance()
		},
		Steal: func(t testing.TB, c *broker.Claim) {
			owner := c.State.(*part).s
			ts.set(func() { ts.avoid[claimed(c)] = owner })
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group = testGroup
			req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: owner.m.seat(partitionID{}).member}}
			if _, err := ts.admin.Request(context.Background(), req); err != nil {
				t.Fatal(err)
			}
		},
		FailSettles: func(_ testing.TB, n int) {
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: n})
		},
		SlowSettles: func(_ testing.TB, d time.Duration) { ts.net.setSlow(d) },
		Trim: func(t testing.TB, topic string, n int) {
			at := ts.cluster.PartitionInfo(topic, 0).LogStartOffset + int64(n)
			if err := ts.cluster.DeleteRecords(topic, 0, at); err != nil {
				t.Fatal(err)
			}
		},
		Recreate:    ts.recreate,
		Undecodable: ts.undecodable,
	}
}

func claimed(c *broker.Claim) partitionID { return partitionID{c.Topic, c.Partition} }

func (ts *testSystem) set(f func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	f()
}

// rebalance lets the group's leader join again.
func (ts *testSystem) rebalance() {
	ts.mu.Lock()
	sources := slices.Clone(ts.sources)
	ts.mu.Unlock()
	for _, s := range sources {
		g := s.m.(*classic)
		g.mu.Lock()
		g.rejoin = g.rejoin || g.leads
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
		who[s.m.seat(partitionID{}).member] = s
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
	return Config{
		Connection: Connection{Brokers: ts.cluster.ListenAddrs(), RequestTimeout: 2 * time.Second, dial: l.dial},
		Group:      testGroup, Topics: ts.topics, Balancer: ts.balancer, SessionTimeout: ts.lease, HeartbeatInterval: min(ts.lease/10, 100*time.Millisecond),
		RevokeWait: revokeWait(ts.balancer), RebalanceTimeout: 6 * time.Second, CommitInterval: 5 * time.Millisecond, Poll: 100 * time.Millisecond,
		MaxWait: 100 * time.Millisecond, plan: ts.plan,
	}
}

func (ts *testSystem) join(t testing.TB) *brokertest.Process {
	l := ts.net.link()
	s, err := New(ts.config(l))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, s) })
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

// unsettled goes by the cluster's own state.
func (ts *testSystem) unsettled(t testing.TB) (n int64) {
	t.Helper()
	info := ts.cluster.GroupInfo(testGroup)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, topic := range ts.topics {
		for _, pi := range ts.cluster.PartitionInfos(topic) {
			at := pi.LogStartOffset
			var done []span
			if info != nil {
				if c, ok := info.Commits[topic][pi.Partition]; ok {
					ts.floor(topic, pi.Partition, c.Offset)
					p, err := decodeMetadata(c.Offset, c.Metadata)
					if err != nil {
						t.Errorf("committed metadata of %s/%d: %v", topic, pi.Partition, err)
					}
					at, done = max(at, c.Offset), p.done
				}
			}
			n += max(0, pi.HighWatermark-at)
			for _, s := range done {
				n -= max(0, min(s.to, pi.HighWatermark)-max(s.from, at))
			}
		}
	}
	return n
}

func (ts *testSystem) floor(topic string, no int32, offset int64) {
	key := fmt.Sprintf("%s/%d", topic, no)
	if h := ts.floors[key]; len(h) == 0 || h[len(h)-1] != offset {
		ts.floors[key] = append(h, offset)
	}
}

func (ts *testSystem) history(t testing.TB) map[string][]int64 {
	ts.unsettled(t)
	return ts.floors
}

func (ts *testSystem) recreate(t testing.TB, topic string) {
	t.Helper()
	err := errors.Join(ts.cluster.DeleteTopic(topic), ts.cluster.CreateTopic(topic, ts.parts, nil))
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { clear(ts.floors) })
	ts.admin.PurgeTopicsFromClient(topic)
}

// undecodable stores a batch that says it is gzip and is not.
func (ts *testSystem) undecodable(t testing.TB, topic string) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Version = -1, 1000, 9
	info := ts.cluster.TopicInfo(topic)
	b := testBatch{offsets: []int64{0}, attrs: 1, producer: -1, corrupt: func(b []byte) {
		for i := atProducer; i < atCount; i++ {
			b[i] = 0xff
		}
	}}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = b.bytes()
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, info.TopicID, []kmsg.ProduceRequestTopicPartition{part}
	req.Topics = append(req.Topics, rt)
	res, err := ts.admin.Request(context.Background(), req)
	if err == nil {
		err = kerr.ErrorForCode(res.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (ts *testSystem) publisher(t testing.TB) broker.Publisher {
	p, err := NewPublisher(PublisherConfig{
		Connection:      Connection{Brokers: ts.cluster.ListenAddrs(), RequestTimeout: 2 * time.Second, dial: ts.net.link().dial},
		MaxMessageBytes: 1_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
