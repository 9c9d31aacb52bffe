package kafkabroker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestPauseLetsGo: what is prefetched of a topic fills the budget when it is paused. It is let go, or the other topics would get
// nothing.
func TestPauseLetsGo(t *testing.T) {
	t.Parallel()
	const budget = 256 << 10
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 1}, "sticky")
	paused, other := ts.topics[0], ts.topics[1]
	ts.putBatch(t, paused, 60, 10_000)
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: budget},
		Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(ctx) }()
	eventually(t, "the budget is used up", func() bool {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		for _, p := range s.h.roster.parts {
			if p.flying { // a fetch of the other topic, from before, would bring what comes
				return false
			}
		}
		_, held := s.h.gate.Held()
		return len(s.h.roster.parts) == 2 && held >= budget
	})
	if err := s.Pause(paused); err != nil {
		t.Fatal(err)
	}
	ts.put(t, other, 0, 5)
	came := make(chan string, 10)
	go func() {
		dst := make([]broker.Message, 10)
		for {
			n, err := s.Receive(dst)
			if err != nil {
				return
			}
			for _, m := range dst[:n] {
				came <- m.Topic
			}
		}
	}()
	for range 5 {
		select {
		case topic := <-came:
			if topic != other {
				t.Fatalf("a message of %s came, which is paused", topic)
			}
		case <-time.After(patience): // not ctx, of which a busy machine has used up most by now
			t.Fatal("the other topic gets nothing")
		}
	}
}

// putBatch stores n messages of a size in one batch.
func (ts *testSystem) putBatch(t *testing.T, topic string, n, size int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(100*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: topic, Value: make([]byte, size)}
	}
	if err := c.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
