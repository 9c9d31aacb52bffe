package kafkabroker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestOutputsOfSmallTopic: a topic takes smaller batches than others do. Each output fits there, and all are stored, in their
// order.
func TestOutputsOfSmallTopic(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}
	t.Run("fake", func(t *testing.T) { testOutputsOfSmallTopic(t, fakeSystem(t, setup, "sticky")) })
	t.Run("real", func(t *testing.T) { testOutputsOfSmallTopic(t, realSystem(t, setup, "sticky")) })
}

func testOutputsOfSmallTopic(t *testing.T, ts *testSystem) {
	const n, size = 100, 1000
	small := ts.outputs + "-small"
	createTopic(t, ts.admin, small, 1, "max.message.bytes", "5000")
	cfg := ts.config(ts.net.link())
	cfg.Transactional, cfg.MaxOutputBytes = true, 2*size
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 1)}
	r.open(t)
	ts.put(t, ts.topics[0], 0, 1)
	m := <-r.out
	random := rand.NewChaCha8([32]byte{})
	var outs []broker.Outgoing
	for i := range n {
		value := make([]byte, size) // which no codec makes shorter
		_, _ = random.Read(value)
		outs = append(outs, broker.Outgoing{Topic: small, Value: append(fmt.Appendf(nil, "%d ", i), value...)})
	}
	if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token}, Outs: outs}}); err != nil {
		t.Fatal(err)
	}
	var ms []broker.Message
	eventually(t, "all are stored", func() bool {
		ms = ts.stored(t, small)
		return len(ms) > 0
	})
	if len(ms) != n {
		t.Fatalf("%d are stored, want %d", len(ms), n)
	}
	for i, m := range ms {
		if !bytes.Equal(m.Value, outs[i].Value) {
			t.Fatalf("output %d is not the one that was emitted in this place", i)
		}
	}
}
