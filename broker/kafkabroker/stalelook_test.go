package kafkabroker

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"

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

// lookBack has the next looks find a topic with an id that it had before, so many of them, and counts all.
func (ts *testSystem) lookBack(id topicID, times int64) *atomic.Int64 {
	var looks atomic.Int64
	ts.cluster.ControlKey(keyMetadata, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		if r.Version != 12 || len(r.Topics) == 0 || looks.Add(1) > times {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		host, port, _ := net.SplitHostPort(ts.brokers[0])
		b.Host = host
		n, _ := strconv.Atoi(port)
		b.Port = int32(n)
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Replicas, p.ISR = []int32{0}, []int32{0}
		of := kmsg.NewMetadataResponseTopic()
		of.Topic, of.TopicID = &ts.topics[0], id
		of.Partitions = []kmsg.MetadataResponseTopicPartition{p}
		res.Brokers, res.Topics = append(res.Brokers, b), append(res.Topics, of)
		return res, nil, true
	})
	return &looks
}
