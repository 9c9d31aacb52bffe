package kafkabroker

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// benchTopic fills a topic on the brokers of KAFKA_BROKERS once: n messages of 100 bytes in 4 partitions.
var benchTopic = sync.OnceValues(func() (string, error) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BROKERS"), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(20), kgo.ProducerBatchMaxBytes(64<<10), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return "", err
	}
	defer admin.Close()
	topic := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 4, -1
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	if _, err := admin.Request(context.Background(), req); err != nil {
		return "", err
	}
	value := make([]byte, 100)
	for i := range benchMessages {
		admin.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % 4), Value: value}, nil)
	}
	return topic, admin.Flush(context.Background())
})

const benchMessages = 1_000_000

// BenchmarkConsume reads and commits a million messages, ours beside kafka-go's Reader and franz-go, each in a fresh group. The client's CPU and
// allocations are what to compare: b.N is 1, repeat with -count.
func BenchmarkConsume(b *testing.B) {
	if os.Getenv("KAFKA_BROKERS") == "" {
		b.Skip("KAFKA_BROKERS is not set: nothing was measured")
	}
	topic, err := benchTopic()
	if err != nil {
		b.Fatal(err)
	}
	brokers := strings.Split(os.Getenv("KAFKA_BROKERS"), ",")
	for name, consume := range map[string]func(b *testing.B, brokers []string, topic, group string){"longshore": consumeOurs, "reader": consumeReader, "franz": consumeFranz} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				cpu, begin := cpuTime(), time.Now()
				consume(b, brokers, topic, fmt.Sprintf("%s-%s-%d-%d", topic, name, i, time.Now().UnixNano()))
				b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/benchMessages, "cpu-ns/msg")
				b.ReportMetric(benchMessages/time.Since(begin).Seconds(), "msg/s")
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/benchMessages, "allocs/msg")
			}
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func consumeOurs(b *testing.B, brokers []string, topic, group string) {
	s, err := New(Config{Connection: Connection{Brokers: brokers}, Group: group, Topics: []string{topic}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 10_000, Bytes: 64 << 20}, Observe: func(broker.Event) {}}); err != nil {
		b.Fatal(err)
	}
	dst, tokens := make([]broker.Message, 256), make([]uint64, 256)
	for n := 0; n < benchMessages; {
		k, err := s.Receive(dst)
		if err != nil {
			b.Fatal(err)
		}
		for i := range k {
			tokens[i] = dst[i].Token
		}
		if err := s.Ack(dst[0].Claim, tokens[:k]); err != nil {
			b.Fatal(err)
		}
		n += k
	}
	if err := s.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func consumeReader(b *testing.B, brokers []string, topic, group string) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxBytes: 1 << 20, MaxWait: time.Second})
	last := time.Now()
	pending := make(map[int]kafka.Message)
	for range benchMessages {
		m, err := r.FetchMessage(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		pending[m.Partition] = m
		if m.Offset%256 == 0 && time.Since(last) > time.Second {
			for _, m := range pending {
				_ = r.CommitMessages(context.Background(), m)
			}
			last = time.Now()
		}
	}
	for _, m := range pending {
		if err := r.CommitMessages(context.Background(), m); err != nil {
			b.Fatal(err)
		}
	}
	_ = r.Close()
}

func consumeFranz(b *testing.B, brokers []string, topic, group string) {
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	n, last := 0, time.Now()
	for n < benchMessages {
		fs := c.PollFetches(context.Background())
		fs.EachRecord(func(*kgo.Record) { n++ })
		if time.Since(last) > time.Second {
			_ = c.CommitUncommittedOffsets(context.Background())
			last = time.Now()
		}
	}
	if err := c.CommitUncommittedOffsets(context.Background()); err != nil {
		b.Fatal(err)
	}
	c.Close()
}
