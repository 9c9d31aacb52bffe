package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
)

// TestOutputsKeyless: some of what handlers emit has no key, and its topic is compacted. A broker takes no batch with such a
// record, and says so when its message is acked. The message comes again, cannot emit that any more, and goes to the dead
// letters. All other outputs to the topic are stored, each once.
func TestOutputsKeyless(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 2, Partitions: 1, Lease: lasting}
	for name, e := range keylessErrors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, setup, "transactional")
			ts.refuseKeyless(ts.group+"-compacted", e)
			testOutputsKeyless(t, ts)
		})
	}
	t.Run("real", func(t *testing.T) { testOutputsKeyless(t, realSystem(t, setup, "transactional")) })
}

func testOutputsKeyless(t *testing.T, ts *testSystem) {
	compacted := ts.group + "-compacted"
	createTopic(t, ts.admin, compacted, 1, "cleanup.policy", "compact")
	t.Cleanup(func() { deleteTopic(t, ts.admin, compacted) })
	var ms []broker.Outgoing
	var want, bad []string
	for i := range 40 {
		v := fmt.Sprintf("%02d", i)
		o := broker.Outgoing{Topic: ts.topics[0], Key: []byte(v), Value: []byte(v)}
		if i%10 == 3 {
			o.Key, bad = nil, append(bad, v)
		} else {
			want = append(want, v)
		}
		ms = append(ms, o)
	}
	testRefused(t, ts, compacted, ms, want, bad)
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
	small := ts.outputs + "-small"
	createTopic(t, ts.admin, small, 1, "max.message.bytes", "5000")
	t.Cleanup(func() { deleteTopic(t, ts.admin, small) })
	random := rand.NewChaCha8([32]byte{})
	var ms []broker.Outgoing
	var want, bad []string
	for i := range 40 {
		v := fmt.Appendf(nil, "%02d", i)
		switch {
		case i%10 == 3:
			filler := make([]byte, 6000)
			_, _ = random.Read(filler)
			v = append(v, filler...)
			bad = append(bad, string(v))
		case i%10 == 4:
			v = append(v, make([]byte, 6000)...)
			fallthrough
		default:
			want = append(want, string(v))
		}
		ms = append(ms, broker.Outgoing{Topic: ts.topics[0], Value: v})
	}
	testRefused(t, ts, small, ms, want, bad)
}

// testRefused handles messages, and emits each to a topic that takes what is wanted and refuses the bad, which end as dead
// letters.
func testRefused(t *testing.T, ts *testSystem, to string, ms []broker.Outgoing, want, bad []string) {
	t.Helper()
	ts.produce(t, 0, ms...)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: ts.topics[1]},
		Retry:      consumer.Retry{Backoff: consumer.Backoff{Initial: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			return consumer.Emit(ctx, broker.Outgoing{Topic: to, Key: m.Key, Value: m.Value})
		},
	})
	eventually(t, "all is committed", func() bool { return ts.progress(t, ts.topics[0])[0].committed == int64(len(ms)) })
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for topic, want := range map[string][]string{to: want, ts.topics[1]: bad} {
		var got []string
		for _, m := range ts.stored(t, topic) {
			got = append(got, string(m.Value))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("in %s are %d messages, %.99q, want %d, %.99q", topic, len(got), got, len(want), want)
		}
	}
}

// A source without transactions refuses what can be told by the output alone, and no more.
func TestCheckEmitWithoutTransactions(t *testing.T) {
	s, err := NewSource(Config{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckEmit(&broker.Outgoing{Topic: "t"}); err != nil {
		t.Error(err)
	}
	if err := s.CheckEmit(&broker.Outgoing{Topic: "no topic"}); !errors.Is(err, broker.ErrRefused) {
		t.Errorf("%v, want ErrRefused", err)
	}
}
