package kafkabroker

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestOutputsFollowLeader: a broker says that it is not the leader of what a transaction is sent to: not any more, or not yet.
// The transaction goes on with who leads it by then; where nobody is found, the topic waits, and goes on when there is one.
func TestOutputsFollowLeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		refused int32 // requests
		aborted bool
	}{
		{"once", 1, false},
		{"some times", 4, false},
		{"for long", 12, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			var left atomic.Int32
			left.Store(c.refused)
			ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
				if req.TransactionID == nil || left.Add(-1) < 0 {
					return nil
				}
				return refuse(req, kerr.NotLeaderForPartition)
			})
			cfg := ts.config(ts.net.link())
			cfg.Transactional = true
			s, err := NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
				out: make(chan broker.Message, 10)}
			r.open(t)
			ts.put(t, ts.topics[0], 0, 1)
			m := <-r.out
			if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
				Outs: []broker.Outgoing{{Topic: ts.outputs, Value: []byte("made")}}}}); err != nil {
				t.Fatal(err)
			}
			var stored []broker.Message
			eventually(t, "it is stored", func() bool {
				stored = ts.stored(t, ts.outputs)
				return len(stored) > 0
			})
			if len(stored) != 1 || string(stored[0].Value) != "made" {
				t.Errorf("stored: %v", stored)
			}
			if c.aborted {
				r.told(t, broker.Warning, "wait")
			} else if e, said := r.event(broker.Warning, "wait"); said {
				t.Errorf("it was told that the topic waits: %v", e.Err)
			}
			if n := ts.net.sent(keyInitProducerID); (n > 1) != c.aborted {
				t.Errorf("%d producer ids were asked for: another one stands for a transaction that was aborted", n)
			}
		})
	}
}
