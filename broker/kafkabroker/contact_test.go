package kafkabroker

import (
	"context"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestDownWhileOthersAnswer: the coordinator of transactions or of the group takes nothing, while leaders go on to answer. Down
// is told of that with its pauses, and no Up before the coordinator takes something again.
func TestDownWhileOthersAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		protocol string
		key      kmsg.Key
	}{
		"no transaction": {"transactional", kmsg.EndTxn},
		"no commit":      {"sticky", kmsg.OffsetCommit},
		"no heartbeat":   {"sticky", kmsg.Heartbeat},
		"no beat":        {"consumer", kmsg.ConsumerGroupHeartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, tc.protocol)
			testDownWhileOthersAnswer(t, ts, tc.key)
		})
	}
}

func testDownWhileOthersAnswer(t *testing.T, ts *testSystem, key kmsg.Key) {
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "it is up", func() bool { return slices.Equal(r.contact(), []broker.Kind{broker.Up}) })
	want := ts.put(t, ts.topics[0], 0, 1)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.CoordinatorNotAvailable, Count: -1,
		TopLevel: key != kmsg.OffsetCommit})
	want = ts.put(t, ts.topics[0], 1, 10)
	eventually(t, "the messages came", func() bool { return r.has(want) })
	eventually(t, "it is told twice", func() bool {
		return len(slices.DeleteFunc(r.contact(), func(k broker.Kind) bool { return k == broker.Up })) == 2
	})
	if told := r.contact(); !slices.Equal(told, []broker.Kind{broker.Up, broker.Down, broker.Down}) {
		t.Errorf("told %v, though nothing was taken", told)
	}
	h.Remove()
	eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestLeaderAway: one of two brokers that lead partitions cannot be reached, from the start or later. Down is told of that with
// its pauses, and no Up before it is back, while the other partition goes on.
func TestLeaderAway(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2, Lease: lasting}, "sticky", kfake.NumBrokers(2))
			here := ts.cluster.CoordinatorFor(ts.group)
			gone := 1 - here
			for no, node := range []int32{here, gone} {
				if err := ts.cluster.MoveTopicPartition(ts.topics[0], int32(no), node); err != nil {
					t.Fatal(err)
				}
			}
			var away atomic.Bool
			away.Store(!later)
			cfg := ts.config(ts.net.link())
			cfg.Brokers = []string{ts.brokers[here]}
			dial := cfg.dial
			cfg.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
				if to != ts.brokers[gone] {
					return dial(ctx, network, to)
				}
				if away.Load() {
					return nil, errRefused
				}
				c, err := dial(ctx, network, to)
				return &brokenConn{c, away.Load}, err
			}
			r := startRunner(t, cfg)
			if later {
				eventually(t, "it is up", func() bool { return slices.Equal(r.contact(), []broker.Kind{broker.Up}) })
				want := ts.put(t, ts.topics[0], 0, 2)
				eventually(t, "it works", func() bool { return r.has(want) })
				away.Store(true)
			}
			eventually(t, "it is told twice", func() bool {
				ts.produce(t, 0, broker.Outgoing{Topic: ts.topics[0], Value: []byte("here")})
				return len(slices.DeleteFunc(r.contact(), func(k broker.Kind) bool { return k == broker.Up })) == 2
			})
			told := r.contact()
			if down := slices.Index(told, broker.Down); slices.Contains(told[down:], broker.Up) {
				t.Errorf("told %v, though a broker was away", told)
			}
			if !r.has([]string{"here"}) {
				t.Error("the other partition stands still")
			}
			ts.produce(t, 1, broker.Outgoing{Topic: ts.topics[0], Value: []byte("there")})
			away.Store(false)
			eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
			eventually(t, "all messages came", func() bool { return r.has([]string{"there"}) })
		})
	}
}

// A brokenConn brings nothing while its broker is away.
type brokenConn struct {
	net.Conn
	away func() bool
}

func (c *brokenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.away() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestLeaderlessBeginning: brokers answer that nobody leads a partition which is to begin, while another goes on. That is no
// Down, as it is none of a partition that has begun.
func TestLeaderlessBeginning(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}, "sticky")
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: ts.topics[1], Err: kerr.LeaderNotAvailable,
		Count: -1})
	r := startRunner(t, ts.config(ts.net.link()))
	ts.produce(t, 0, broker.Outgoing{Topic: ts.topics[1], Value: []byte("later")})
	want := ts.put(t, ts.topics[0], 0, 10)
	eventually(t, "the others came", func() bool { return r.has(want) })
	eventually(t, "it was tried", func() bool { return h.Hits() > 10 })
	if told := r.contact(); !slices.Equal(told, []broker.Kind{broker.Up}) {
		t.Errorf("told %v, though brokers answer", told)
	}
	h.Remove()
	eventually(t, "it begins", func() bool { return r.has([]string{"later"}) })
}

// TestRefusedPartitions: brokers refuse to give anything of a topic's partitions, for a right was taken away, while another topic
// goes on. It is told as a Down, with its pauses, and not for each partition and fetch; and no Up before they give something
// again.
func TestRefusedPartitions(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 2, Partitions: 8, Lease: lasting}, "sticky")
	r := startRunner(t, ts.config(ts.net.link()))
	want := append(ts.put(t, ts.topics[0], 0, 8), ts.put(t, ts.topics[1], 0, 8)...)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: ts.topics[1],
		Err: kerr.TopicAuthorizationFailed, Count: -1})
	later := ts.put(t, ts.topics[1], 8, 8)
	staysDown(t, ts, r)
	if e, told := r.event(broker.Warning, ""); told {
		t.Errorf("a warning, too: %v", e.Err)
	}
	h.Remove()
	eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
	eventually(t, "all messages came", func() bool { return r.has(later) })
}

// staysDown waits until a topic that is refused was told of twice as a Down, with no Up between, and sees that another goes on.
func staysDown(t *testing.T, ts *testSystem, r *runner) {
	t.Helper()
	eventually(t, "it is told twice", func() bool {
		ts.produce(t, 0, broker.Outgoing{Topic: ts.topics[0], Value: []byte("here")})
		return len(slices.DeleteFunc(r.contact(), func(k broker.Kind) bool { return k == broker.Up })) == 2
	})
	if told := r.contact(); !slices.Equal(told, []broker.Kind{broker.Up, broker.Down, broker.Down}) {
		t.Errorf("told %v, though a topic is refused", told)
	}
	if !r.has([]string{"here"}) {
		t.Error("the other topic stands still")
	}
}

// TestRefusedLook: brokers refuse to tell of a topic, whose partitions are another member's, or paused, so that nothing is
// fetched of them here. It is told as a Down, with its pauses, and no Up comes before they tell of it again; meanwhile another
// topic goes on.
func TestRefusedLook(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kmsg.Key{"where it is": kmsg.Metadata, "where it ends": kmsg.ListOffsets} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 2, Partitions: 2, Lease: lasting}, "sticky")
			r := startRunner(t, ts.config(ts.net.link()))
			want := append(ts.put(t, ts.topics[0], 0, 2), ts.put(t, ts.topics[1], 0, 2)...)
			eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
			if err := r.s.Pause(ts.topics[1]); err != nil {
				t.Fatal(err)
			}
			h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: ts.topics[1], Err: kerr.TopicAuthorizationFailed,
				Count: -1})
			staysDown(t, ts, r)
			h.Remove()
			eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
		})
	}
}

// TestRefusedCommit: where brokers refuse what is finished of a partition, the Down names it, and no Up comes before they take
// it. Another topic is committed meanwhile, also in transactions, which take all of what they have or nothing.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "transactional"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}, balancer)
			r := startRunner(t, ts.config(ts.net.link()))
			want := ts.put(t, ts.topics[1], 0, 1)
			eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
			h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit}, Topic: ts.topics[1],
				Err: kerr.TopicAuthorizationFailed, Count: -1})
			ts.put(t, ts.topics[1], 1, 1)
			r.told(t, broker.Down, ts.topics[1]+"/0: ")
			ts.put(t, ts.topics[0], 2, 3)
			eventually(t, "another topic is committed", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed >= 3 })
			staysDown(t, ts, r)
			h.Remove()
			eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}

// contact is what was told of it.
func (r *runner) contact() (told []broker.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == broker.Up || e.Kind == broker.Down {
			told = append(told, e.Kind)
		}
	}
	return told
}

// TestRefusedRange: a position is out of range, and its leader does not tell which range that is, while another topic goes on. It
// is told as a Down, with its pauses, and no Up comes before the leader tells.
func TestRefusedRange(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}, "sticky")
	r := startRunner(t, ts.config(ts.net.link()))
	want := append(ts.put(t, ts.topics[0], 0, 1), ts.put(t, ts.topics[1], 0, 1)...)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	fails := func(key kmsg.Key, err *kerr.Error) *kfake.FaultHandle {
		return ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: ts.topics[1], Err: err, Count: -1})
	}
	outside, h := fails(kmsg.Fetch, kerr.OffsetOutOfRange), fails(kmsg.ListOffsets, kerr.UnknownServerError)
	staysDown(t, ts, r)
	h.Remove()
	outside.Remove()
	eventually(t, "it is up again", func() bool { told := r.contact(); return told[len(told)-1] == broker.Up })
}
