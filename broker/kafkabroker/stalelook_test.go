package kafkabroker

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestStaleLook: a topic was made anew, and its messages are handled. Then a look is answered by a broker that has not heard of
// that yet, for it stood still meanwhile: it tells of the topic that was there before. Nothing is begun anew for that.
func TestStaleLook(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "consumer", "transactional"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			testStaleLook(t, fakeSystem(t, ofOne, balancer))
		})
	}
}

func testStaleLook(t *testing.T, ts *testSystem) {
	ts.lease = lasting
	r := startRunner(t, ts.config(ts.net.link()))
	old := ts.put(t, ts.topics[0], 0, 9)
	eventually(t, "the old messages came", func() bool { return r.has(old) })
	before := ts.cluster.TopicInfo(ts.topics[0]).TopicID
	ts.recreate(t, ts.topics[0])
	values := ts.put(t, ts.topics[0], 9, 9)
	eventually(t, "the new messages came", func() bool { return r.has(values) })
	eventually(t, "they are committed", func() bool { return ts.unsettled(t) == 0 })

	looks := ts.lookBack(before, 2)
	eventually(t, "looks are answered by the broker that is behind, and others after that", func() bool {
		signal(r.s.bells.find)
		return looks.Load() >= 4
	})
	values = append(values, ts.put(t, ts.topics[0], 18, 9)...)
	eventually(t, "what was written since came", func() bool { return r.has(values) })
	for v, n := range r.seen() {
		if n > 1 {
			t.Errorf("%q came %d times", v, n)
		}
	}
	if n := r.claims(); n != 1 {
		t.Errorf("%d claims are open", n)
	}
	r.close()
	gaps := 0
	for _, e := range r.events {
		if e.Kind == broker.Gap {
			gaps++
		}
	}
	if gaps > 1 {
		t.Errorf("%d gaps were told of one topic that was made anew once", gaps)
	}
}

// TestStaleLookAtTheStart: a topic was made anew, and its messages are handled. Then a process starts that has never heard of the
// old one, and several of its first looks are answered by a broker that is behind. It goes on with what is committed of the new
// one, and does not take that for the old one's.
func TestStaleLookAtTheStart(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"range", "sticky", "consumer", "transactional"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			testStaleLookAtTheStart(t, startFake(t, ofOne, balancer, kfake.NumBrokers(3)))
		})
	}
}

func testStaleLookAtTheStart(t *testing.T, ts *testSystem) {
	ts.lease = lasting
	keeper := ts.cluster.CoordinatorFor(ts.group)
	behind := (keeper + 1) % 3
	before := ts.cluster.TopicInfo(ts.topics[0]).TopicID
	ts.recreate(t, ts.topics[0])
	if err := ts.cluster.MoveTopicPartition(ts.topics[0], 0, keeper); err != nil {
		t.Fatal(err)
	}
	cfg := ts.config(ts.net.link())
	cfg.Brokers = ts.brokers[behind : behind+1]
	r := startRunner(t, cfg)
	old := ts.put(t, ts.topics[0], 0, 9)
	eventually(t, "the messages came", func() bool { return r.has(old) })
	eventually(t, "they are committed", func() bool { return ts.unsettled(t) == 0 })
	r.close()

	const stale = 5
	looks := ts.lookBackAt(behind, before, stale)
	cfg = ts.config(ts.net.link())
	cfg.Brokers = ts.brokers[behind : behind+1]
	r = startRunner(t, cfg)
	eventually(t, "looks are answered by the broker that is behind, and others after that", func() bool {
		signal(r.s.bells.find)
		return looks.Load() >= stale+2
	})
	values := ts.put(t, ts.topics[0], 9, 9)
	eventually(t, "what was written since came", func() bool { return r.has(values) })
	r.close()
	if n := len(r.seen()); n != len(values) {
		t.Errorf("%d messages came, want the %d that nobody has handled", n, len(values))
	}
	if e, told := r.event(broker.Gap, ""); told {
		t.Errorf("a gap was told: %v", e.Err)
	}
}

// lookBack has the next looks find a topic with an id that it had before, so many of them, and counts all.
func (ts *testSystem) lookBack(id topicID, times int64) *atomic.Int64 {
	return ts.lookBackAt(0, id, times)
}

// lookBackAt does so by one of the brokers.
func (ts *testSystem) lookBackAt(node int32, id topicID, times int64) *atomic.Int64 {
	var looks atomic.Int64
	leader := ts.cluster.LeaderFor(ts.topics[0], 0)
	ts.cluster.ControlKey(keyMetadata, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		if ts.cluster.CurrentNode() != node || r.Version != 12 || len(r.Topics) == 0 || looks.Add(1) > times {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.MetadataResponse)
		for i, address := range ts.brokers {
			b := kmsg.NewMetadataResponseBroker()
			host, port, _ := net.SplitHostPort(address)
			n, _ := strconv.Atoi(port)
			b.NodeID, b.Host, b.Port = int32(i), host, int32(n)
			res.Brokers = append(res.Brokers, b)
		}
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader = leader
		p.Replicas, p.ISR = []int32{leader}, []int32{leader}
		of := kmsg.NewMetadataResponseTopic()
		of.Topic, of.TopicID = &ts.topics[0], id
		of.Partitions = []kmsg.MetadataResponseTopicPartition{p}
		res.Topics = append(res.Topics, of)
		return res, nil, true
	})
	return &looks
}
