package kafkabroker

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestProducerRefused: a leader takes nothing of our producer: somebody else has its transactional id, or its coordinator has
// forgotten it, for nothing was written for long. That is not about the topic: it is not said of it that it waits, and nothing
// waits for it. What a broker says beside its code is told.
func TestProducerRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal *kerr.Error
		message string
		waits   bool
	}{
		{kerr.InvalidProducerEpoch, "", false},
		{kerr.InvalidProducerIDMapping, "", false},
		{kerr.ProducerFenced, "", false},
		{kerr.InvalidTxnState, "", false},
		{kerr.TransactionAbortable, "", false},
		{kerr.NotEnoughReplicas, "Unable to verify the partition has been added to the transaction.", true},
	} {
		t.Run(c.refusal.Message, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			var left atomic.Int32
			left.Store(1)
			ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
				if req.TransactionID == nil || left.Add(-1) < 0 {
					return nil
				}
				answer := refuse(req, c.refusal)
				answer.Topics[0].Partitions[0].ErrorMessage = &c.message
				return answer
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
			eventually(t, "it is stored", func() bool { return len(ts.stored(t, ts.outputs)) > 0 })
			if n := len(ts.stored(t, ts.outputs)); n != 1 {
				t.Errorf("it is stored %d times", n)
			}
			is, not := broker.Warning, broker.Down
			says := map[broker.Kind]string{broker.Warning: "wait", broker.Down: codeErr(c.refusal.Code).Error()}
			if !c.waits {
				is, not = not, is
			}
			if e := r.told(t, is, says[is]); c.waits && !strings.Contains(e.Err.Error(), c.message) {
				t.Errorf("it was told that the topic waits: %v, want %q", e.Err, c.message)
			}
			if e, said := r.event(not, says[not]); said {
				t.Errorf("it was told: %v", e)
			}
		})
	}
}
