package kafkabroker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestMoreThanATransactionTakes: there are more outputs than can be written before a transaction's time is over, as after an
// outage over a slow network. They go in several. All in one would be aborted for being late, again and again, and more would
// join.
func TestMoreThanATransactionTakes(t *testing.T) {
	t.Parallel()
	const n, each = 20, 100 * time.Millisecond
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
	cfg := ts.config(ts.net.link())
	cfg.Transactional, cfg.TransactionTimeout, cfg.Compression = true, n*each/2, "none"
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, n)}
	r.open(t)
	ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if req.TransactionID != nil {
			time.Sleep(each)
		}
		return nil
	})
	ts.put(t, ts.topics[0], 0, n)
	var es []broker.Emission
	var claim *broker.Claim
	for range n {
		m := <-r.out
		claim = m.Claim
		es = append(es, broker.Emission{Tokens: []uint64{m.Token},
			Outs: []broker.Outgoing{{Topic: ts.outputs, Value: append(make([]byte, batchLimit-1000), m.Value...)}}})
	}
	if err := s.AckEmitting(claim, es); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all outputs are stored", func() bool { return len(ts.stored(t, ts.outputs)) == n })
	for i, m := range ts.stored(t, ts.outputs) {
		if got, want := string(m.Value[batchLimit-1000:]), string(es[i].Outs[0].Value[batchLimit-1000:]); got != want {
			t.Fatalf("output %d is %s, want %s", i, got, want)
		}
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}
