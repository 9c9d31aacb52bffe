package kafkabroker

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// A hungConn is to a broker that takes requests and does not answer them from some moment on, as one whose disk hangs, or that
// was stopped by a signal.
type hungConn struct {
	net.Conn
	hung func() bool
}

func (c *hungConn) Write(b []byte) (int, error) {
	if c.hung() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestHungCoordinator: the group's coordinator hangs, and another broker takes over. The members find it there: that the old one
// says nothing is as good as that it says that it is not the coordinator any more.
func TestHungCoordinator(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"sticky", "consumer", "transactional"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2}, protocol, kfake.NumBrokers(3))
			testHungCoordinator(t, ts)
		})
	}
}

func testHungCoordinator(t *testing.T, ts *testSystem) {
	ts.lease = 2 * time.Second
	node := ts.cluster.CoordinatorFor(ts.group)
	address := ts.brokers[node]
	for no := range ts.parts { // they are led by others
		if err := ts.cluster.MoveTopicPartition(ts.topics[0], no, (node+1)%3); err != nil {
			t.Fatal(err)
		}
	}
	var hung atomic.Bool
	cfg := ts.config(ts.net.link())
	cfg.Brokers = slices.Delete(slices.Clone(ts.brokers), int(node), int(node)+1)
	cfg.RequestTimeout, cfg.RebalanceTimeout = time.Second, 5*time.Second
	cfg.InstanceID = "m" // so that the transactional id is known
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dial(ctx, network, to)
		if err != nil || to != address {
			return c, err
		}
		return &hungConn{c, hung.Load}, nil
	}
	r := startRunner(t, cfg)
	first := ts.put(t, ts.topics[0], 0, 10)
	eventually(t, "the first messages came", func() bool { return r.has(first) })
	hung.Store(true)
	// Nor is it the transactions' coordinator: without that one there are none.
	for ts.cluster.CoordinatorFor(ts.group) == node || ts.cluster.CoordinatorFor(cfg.transactionalID()) == node {
		ts.cluster.RehashCoordinators()
	}
	want := ts.put(t, ts.topics[0], 10, 10)
	eventually(t, "all messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// A deafConn is to a broker that does not answer one kind of requests.
type deafConn struct {
	net.Conn
	key   uint16
	asked func()
}

func (c *deafConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == c.key {
		c.asked()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// deafen has requests of a kind go nowhere, over each connection to a broker that hangs when it is made.
func deafen(cfg *Config, key uint16, hangs func(to string) bool, asked func(to string)) {
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dial(ctx, network, to)
		if err != nil || !hangs(to) {
			return c, err
		}
		return &deafConn{c, key, func() { asked(to) }}, nil
	}
}

// TestHungLeaders: several leaders hang. All of them are asked where their logs end, beside each other: who waited for one after
// the other would not look for new leaders in all that time, nor tell the lag of the other partitions.
func TestHungLeaders(t *testing.T) {
	t.Parallel()
	for name, measure := range map[string]func(ctx context.Context, t *testing.T, ts *testSystem, cfg Config){
		"of a source":   measureSource,
		"of a lag view": measureLag,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 3}, "sticky", kfake.NumBrokers(3))
			for no := range ts.parts {
				if err := ts.cluster.MoveTopicPartition(ts.topics[0], no, no); err != nil {
					t.Fatal(err)
				}
			}
			cfg := ts.config(ts.net.link())
			cfg.RequestTimeout = time.Hour
			var mu sync.Mutex
			asked := make(map[string]bool)
			deafen(&cfg, keyListOffsets, func(string) bool { return true }, func(to string) {
				mu.Lock()
				defer mu.Unlock()
				asked[to] = true
			})
			ctx, cancel := context.WithCancel(t.Context())
			var measures sync.WaitGroup
			measures.Go(func() { measure(ctx, t, ts, cfg) })
			eventually(t, "each of them is asked", func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) == len(ts.brokers) })
			cancel()
			measures.Wait()
		})
	}
}

func measureSource(ctx context.Context, t *testing.T, ts *testSystem, cfg Config) {
	s, err := NewSource(cfg)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = s.Close(context.Background()) }()
	for no := range ts.parts {
		s.h.place(ts.topics[0], no).moveTo(no)
	}
	s.poll.measure(ctx)
}

func measureLag(ctx context.Context, t *testing.T, ts *testSystem, cfg Config) {
	v, err := NewLagView(LagViewConfig{Connection: cfg.Connection, Group: ts.group, Topics: ts.topics})
	if err != nil {
		t.Error(err)
		return
	}
	defer v.Close()
	_, _ = v.Read(ctx)
}

// TestHungRange: a position is out of range, and the leader does not say which range that is. It is asked once, and not with each
// fetch again: each question has a connection of its own. Another topic goes on.
func TestHungRange(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}, "sticky")
	var asked atomic.Int32
	var hung atomic.Bool
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout = time.Hour
	// a question that is under way has its connection
	deafen(&cfg, keyListOffsets, func(string) bool { return hung.Load() }, func(string) { asked.Add(1) })
	r := startRunner(t, cfg)
	want := append(ts.put(t, ts.topics[0], 0, 1), ts.put(t, ts.topics[1], 0, 1)...)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	hung.Store(true)
	r.s.c.transport.CloseIdleConnections()
	ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: ts.topics[1], Err: kerr.OffsetOutOfRange, Count: -1})
	eventually(t, "it was asked", func() bool { return asked.Load() > 0 })
	from := ts.net.sent(keyFetch)
	for i := 1; ts.net.sent(keyFetch) < from+300; i++ {
		want := ts.put(t, ts.topics[0], i, 1)
		eventually(t, "the other topic goes on", func() bool { return r.has(want) })
	}
	if n := asked.Load(); n > 2 { // the other one is for the lag
		t.Errorf("it was asked %d times", n)
	}
}

// TestHungLeaderAndBudget: a leader hangs, and a fetch of it is under way for as long as a request may take. The budget is no
// larger than one fetch may be; what another broker leads goes on.
func TestHungLeaderAndBudget(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2, Lease: lasting}, "sticky", kfake.NumBrokers(2))
	here := ts.cluster.CoordinatorFor(ts.group)
	gone := 1 - here
	for no, node := range []int32{here, gone} {
		if err := ts.cluster.MoveTopicPartition(ts.topics[0], int32(no), node); err != nil {
			t.Fatal(err)
		}
	}
	cfg := ts.config(ts.net.link())
	cfg.RequestTimeout = time.Hour
	var asked atomic.Int32
	deafen(&cfg, keyFetch, func(to string) bool { return to == ts.brokers[gone] }, func(string) { asked.Add(1) })
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), budget: 1 << 20}
	r.open(t)
	eventually(t, "it hangs", func() bool { return asked.Load() > 0 })
	for i := range 10 {
		ts.produce(t, 0, broker.Outgoing{Topic: ts.topics[0], Value: []byte{byte(i)}})
		eventually(t, "the other partition goes on", func() bool { return r.has([]string{string([]byte{byte(i)})}) })
	}
}

// TestHungMeasure: a leader hangs that is asked where its logs end, for a topic that is paused. Another topic moves to another
// broker meanwhile, and is looked for there at once: nobody waits for the first answer before.
func TestHungMeasure(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}, "sticky", kfake.NumBrokers(3))
	here := ts.cluster.CoordinatorFor(ts.group)
	gone, next := (here+1)%3, (here+2)%3
	move := func(topic string, node int32) {
		if err := ts.cluster.MoveTopicPartition(topic, 0, node); err != nil {
			t.Fatal(err)
		}
	}
	move(ts.topics[0], here)
	move(ts.topics[1], gone)
	var hung atomic.Bool
	var asked atomic.Int32
	cfg := ts.config(ts.net.link())
	cfg.Brokers, cfg.RequestTimeout = []string{ts.brokers[here]}, time.Hour
	deafen(&cfg, keyListOffsets, func(to string) bool { return to == ts.brokers[gone] && hung.Load() },
		func(string) { asked.Add(1) })
	r := startRunner(t, cfg)
	want := append(ts.put(t, ts.topics[0], 0, 1), ts.put(t, ts.topics[1], 0, 1)...)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	hung.Store(true)
	if err := r.s.Pause(ts.topics[1]); err != nil {
		t.Fatal(err)
	}
	r.s.c.transport.CloseIdleConnections()
	eventually(t, "it is asked", func() bool { return asked.Load() > 0 })
	move(ts.topics[0], next)
	want = ts.put(t, ts.topics[0], 1, 1)
	eventually(t, "the other topic goes on", func() bool { return r.has(want) })
	if n := asked.Load(); n > 1 {
		t.Errorf("it was asked %d times", n)
	}
}
