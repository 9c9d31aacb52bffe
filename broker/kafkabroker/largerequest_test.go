package kafkabroker

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestMoreThanARequestTakes: the outputs of one transaction fill many partitions of a leader. A broker closes the connection of a
// request that is larger than it takes (socket.request.max.bytes), and would do so at each try.
func TestMoreThanARequestTakes(t *testing.T) {
	t.Parallel()
	const n = 40
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
	createTopic(t, ts.admin, "wide", n)
	cfg := ts.config(ts.net.link())
	cfg.Transactional, cfg.Compression = true, "none"
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, n)}
	r.open(t)
	var cut atomic.Int32
	ts.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		size := 0
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				size += len(p.Records)
			}
		}
		if size <= 32<<20 {
			return nil, nil, false
		}
		cut.Add(1)
		return nil, errors.New("too large a request"), true
	})
	ts.put(t, ts.topics[0], 0, n)
	var es []broker.Emission
	var claim *broker.Claim
	for i := range int32(n) {
		m := <-r.out
		claim = m.Claim
		es = append(es, broker.Emission{Tokens: []uint64{m.Token},
			Outs: []broker.Outgoing{{Topic: "wide", Partition: &i, Value: make([]byte, batchLimit-1000)}}})
	}
	if err := s.AckEmitting(claim, es); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is committed, or a request was too large", func() bool { return cut.Load() > 2 || ts.unsettled(t) == 0 })
	if n := cut.Load(); n > 0 {
		t.Errorf("%d requests were too large", n)
	}
	for p := range int32(n) {
		if ms := ts.storedAt(t, "wide", p); len(ms) != 1 { // one of a try that was aborted, on a slow machine, is not read
			t.Errorf("partition %d has %d outputs, want 1", p, len(ms))
		}
	}
}
