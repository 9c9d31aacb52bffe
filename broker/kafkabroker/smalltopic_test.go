package kafkabroker

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
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

// TestOutputsTooLarge: some of what handlers emit is larger than its topic takes, and nobody knows before it is written. Its
// message comes again, cannot emit that any more, and goes to the dead letters. All other outputs to the topic are stored, each
// once, and large ones that compression makes small enough.
func TestOutputsTooLarge(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}
	t.Run("fake", func(t *testing.T) { t.Parallel(); testOutputsTooLarge(t, fakeSystem(t, setup, "transactional")) })
	t.Run("real", func(t *testing.T) { testOutputsTooLarge(t, realSystem(t, setup, "transactional")) })
}

func testOutputsTooLarge(t *testing.T, ts *testSystem) {
	const n, every, first = 40, 10, 3
	small := ts.outputs + "-small"
	createTopic(t, ts.admin, small, 1, "max.message.bytes", "5000")
	t.Cleanup(func() { deleteTopic(t, ts.admin, small) })
	random := rand.NewChaCha8([32]byte{})
	var ms []broker.Outgoing
	var want, bad []string
	for i := range n {
		v := []byte(fmt.Sprintf("%02d", i))
		switch {
		case i%every == first:
			filler := make([]byte, 6000)
			_, _ = random.Read(filler)
			v = append(v, filler...)
			bad = append(bad, string(v))
		case i%every == first+1:
			v = append(v, make([]byte, 6000)...)
			fallthrough
		default:
			want = append(want, string(v))
		}
		ms = append(ms, broker.Outgoing{Topic: ts.topics[0], Value: v})
	}
	ts.produce(t, 0, ms...)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: ts.topics[1]},
		Retry:      consumer.Retry{Backoff: consumer.Backoff{Initial: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			return consumer.Emit(ctx, broker.Outgoing{Topic: small, Value: m.Value})
		},
	})
	eventually(t, "all is committed", func() bool { return ts.progress(t, ts.topics[0])[0].committed == n })
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for topic, want := range map[string][]string{small: want, ts.topics[1]: bad} {
		var got []string
		for _, m := range ts.stored(t, topic) {
			got = append(got, string(m.Value))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("in %s are %d messages, want %d", topic, len(got), len(want))
		}
	}
}
