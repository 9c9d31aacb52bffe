package kafkabroker

import (
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestEndHiddenByAStranger: the end of a transaction gets no answer, and before we can ask, somebody else has committed another
// offset of its partition, as a member does that has not heard yet that its topic was made anew. The committed offset says
// nothing of our transaction any more; its outputs are written once nevertheless.
func TestEndHiddenByAStranger(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprint("fake/level ", level), func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, setup, "transactional")
			ts.agreeOn(t, level)
			testEndHidden(t, ts)
		})
	}
	t.Run("real", func(t *testing.T) { testEndHidden(t, realSystem(t, setup, "transactional")) })
}

func testEndHidden(t *testing.T, ts *testSystem) {
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 10)}
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
	ts.net.loseEnd()
	emit(1)
	eventually(t, "its transaction is carried out", func() bool { return len(ts.stored(t, ts.outputs)) == 2 })
	ts.commitInOpenTransaction(t, 0)()
	ts.net.foundEnd()
	emit(2)
	eventually(t, "the third output is stored", func() bool { return len(ts.stored(t, ts.outputs)) >= 3 })
	for i, m := range ts.stored(t, ts.outputs) {
		if want := fmt.Sprint(i); string(m.Value) != want {
			t.Errorf("output %s stands where %s is to be", m.Value, want)
		}
	}
}
