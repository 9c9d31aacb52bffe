package kafkabroker

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestOutputsOfDeletedTopic: a topic is deleted while outputs of its messages wait for their transaction. They can go with no
// offset any more, and hold up nobody else's: what is acked of another topic is stored long before the transaction timeout.
func TestOutputsOfDeletedTopic(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}
	for _, balancer := range []string{"sticky", "consumer"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			t.Run("fake", func(t *testing.T) { testOutputsOfDeleted(t, fakeSystem(t, setup, balancer)) })
			t.Run("real", func(t *testing.T) { testOutputsOfDeleted(t, realSystem(t, setup, balancer)) })
		})
	}
}

// lasting is a session that a busy machine does not miss. A claim that is lost brings its messages again, and they wait for acks
// of their own.
const lasting = 3 * patience

func testOutputsOfDeleted(t *testing.T, ts *testSystem) {
	ts.takeOlderEpochs()
	cfg := ts.config(ts.net.link())
	cfg.Transactional, cfg.TransactionTimeout = true, 10*time.Minute
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 100)}
	t.Cleanup(func() { createTopic(t, ts.admin, ts.topics[0], 1) }) // on a real broker it is deleted in the end
	r.open(t)
	var ms []broker.Message
	for i, topic := range ts.topics {
		ts.put(t, topic, 5*i, 5)
	}
	for len(ms) < 10 {
		ms = append(ms, <-r.out)
	}
	of := func(topic string) []broker.Message {
		return slices.DeleteFunc(slices.Clone(ms), func(m broker.Message) bool { return m.Topic != topic })
	}
	refused := 0 // acks of the deleted topic, once its claim has ended
	emit := func(m broker.Message) {
		err := r.s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
			Outs: []broker.Outgoing{{Topic: ts.outputs, Value: m.Value}}}})
		switch {
		case err != nil && m.Topic == ts.topics[1]:
			t.Errorf("acking of %s: %v", m.Topic, err)
		case err != nil:
			refused++
		}
	}
	deleteTopic(t, ts.admin, ts.topics[0])
	for i := range 5 {
		emit(of(ts.topics[0])[i])
		emit(of(ts.topics[1])[i])
	}
	eventually(t, "what was made of the other topic is stored", func() bool {
		return len(ts.stored(t, ts.outputs)) >= 5
	})
	eventually(t, "it is said that the others are not, or they are: the broker may hear of the deletion later", func() bool {
		_, said := r.event(broker.Unconfirmed, "")
		late := ts.cluster == nil && refused+len(ts.stored(t, ts.outputs)) == 10
		return said || refused == 5 || late
	})
}

// takeOlderEpochs lets a group's only member commit in transactions under the epoch at which a partition was assigned to it, as
// Kafka 4.3 does; kfake wants the member's newest.
func (ts *testSystem) takeOlderEpochs() {
	if ts.cluster == nil || ts.membership != "consumer" {
		return
	}
	ts.cluster.ControlKey(keyTxnOffsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.(*kmsg.TxnOffsetCommitRequest)
		if info := ts.cluster.GroupInfo(r.Group); info != nil && len(info.Members) == 1 && info.Members[0].MemberID == r.MemberID {
			r.Generation = info.Epoch
		}
		return nil, nil, false
	})
}
