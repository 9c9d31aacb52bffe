package kafkabroker

import (
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestEndHiddenByAStranger: the end of a transaction gets no answer, and before we can ask, somebody else has committed another
// offset of its partition, as a member does that has not heard yet that its topic was made anew. The committed offset says
// nothing of our transaction any more; its outputs are written once nevertheless.
func TestEndHiddenByAStranger(t *testing.T) {
	t.Parallel()
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			ts.agreeOn(t, level)
			cfg := ts.config(ts.net.link())
			cfg.Transactional = true
			s, err := NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
				out: make(chan broker.Message, 10)}
			r.open(t)
			emit := func(i int) {
				ts.put(t, ts.topics[0], i, 1)
				m := <-r.out
				if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
					Outs: []broker.Outgoing{{Topic: ts.outputs, Value: fmt.Append(nil, i)}}}}); err != nil {
					t.Fatal(err)
				}
			}
			emit(0)
			eventually(t, "the first output is stored", func() bool { return len(ts.stored(t, ts.outputs)) == 1 })
			var once sync.Once // the end of its transaction is lost, and not that of one before, without outputs
			ts.cluster.ControlKey(keyProduce, func(req kmsg.Request) (kmsg.Response, error, bool) {
				ts.cluster.KeepControl()
				if req.(*kmsg.ProduceRequest).TransactionID != nil {
					once.Do(func() {
						ts.net.breakAnswers(keyEndTxn, 1_000_000)
						ts.net.breakAt(keyInitProducerID, 1_000_000)
					})
				}
				return nil, nil, false
			})
			emit(1)
			eventually(t, "it is carried out", func() bool { return len(ts.stored(t, ts.outputs)) == 2 })
			ts.commitInOpenTransaction(t, 0)()
			ts.net.hearAll(keyEndTxn)
			ts.net.breakAt(keyInitProducerID, 0)
			emit(2)
			eventually(t, "the third output is stored", func() bool { return len(ts.stored(t, ts.outputs)) >= 3 })
			for i, m := range ts.stored(t, ts.outputs) {
				if want := fmt.Sprint(i); string(m.Value) != want {
					t.Errorf("output %s stands where %s is to be", m.Value, want)
				}
			}
		})
	}
}
