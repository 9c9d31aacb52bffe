//go:build unix

package integration

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/integration/ledger"
)

const loadPartitions = 8

// kafkaSystem is a topic and a group of its own on a Kafka cluster. Its client is franz-go, which shares nothing with the
// product.
type kafkaSystem struct {
	cluster      *kafkad.Cluster
	topic, group string
	partitions   atomic.Int32
	client       *kgo.Client
	admin        *kadm.Client
}

// onKafka is the field's system, where it is Kafka.
func (f *field) onKafka() *kafkaSystem { return f.on.(*kafkaSystem) }

func startKafka(t *testing.T) system {
	t.Helper()
	needsKafka(t)
	return newKafkaSystem(t, kafkad.Shared(t))
}

// ownKafka has a broker that may be killed and cut off.
func ownKafka(t *testing.T) system {
	t.Helper()
	needsKafka(t)
	cluster := kafkad.Shared(t)
	if !cluster.Controls() {
		cluster = kafkad.Start(t, kafkad.Config{})
	}
	return newKafkaSystem(t, cluster)
}

func newKafkaSystem(t *testing.T, cluster *kafkad.Cluster) *kafkaSystem {
	t.Helper()
	s := lateKafkaSystem(t, cluster)
	s.createTopic(t, loadPartitions)
	return s
}

// createTopic makes the load's topic.
func (s *kafkaSystem) createTopic(t *testing.T, partitions int32) {
	t.Helper()
	if err := s.cluster.CreateTopic(t.Context(), s.topic, int(partitions), nil); err != nil {
		t.Fatal(err)
	}
	s.partitions.Store(partitions)
}

// lateKafkaSystem is one whose topic is not made yet.
func lateKafkaSystem(t *testing.T, cluster *kafkad.Cluster) *kafkaSystem {
	t.Helper()
	s := &kafkaSystem{cluster: cluster, topic: kafkad.Unique("load"), group: kafkad.Unique("workers")}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.client, s.admin = client, kadm.NewClient(client)
	s.setSession(t, kafkaLease)
	return s
}

// setSession gives the group's members so long a session where it is the broker's to say.
func (s *kafkaSystem) setSession(t *testing.T, session time.Duration) {
	t.Helper()
	if membership() == "classic" || !s.cluster.Real() {
		return
	}
	settings := map[string]string{"consumer.session.timeout.ms": strconv.FormatInt(session.Milliseconds(), 10),
		"consumer.heartbeat.interval.ms": "200"}
	if err := s.cluster.SetGroup(t.Context(), s.group, settings); err != nil {
		t.Fatal(err)
	}
}

// kafkaLease is the members' session.
const kafkaLease = time.Second

// membership is how the members of groups speak with Kafka: LONGSHORE_MEMBERSHIP, or classic.
func membership() string { return cmp.Or(os.Getenv("LONGSHORE_MEMBERSHIP"), "classic") }

// broker says so where nothing is proved about Kafka itself.
func (s *kafkaSystem) broker() string {
	if !s.cluster.Real() {
		return "kafka: " + s.cluster.Name
	}
	return "kafka"
}

func (s *kafkaSystem) configure(c *consumerConfig) {
	c.Broker, c.URL, c.Topic, c.Group, c.Lease = "kafka", strings.Join(s.cluster.Brokers(), ","), s.topic, s.group, kafkaLease
}

// publisher leaves it to franz-go to send again: its producer is idempotent, so the broker drops what it has.
func (s *kafkaSystem) publisher(*testing.T) publish {
	return func(ctx context.Context, m outgoing) (int64, error) {
		record := &kgo.Record{Topic: s.topic, Partition: int32(m.id % int64(s.partitions.Load())), Value: m.body}
		if m.key != "" {
			record.Key = []byte(m.key)
			record.Partition = int32(crc32.ChecksumIEEE(record.Key) % uint32(s.partitions.Load()))
		}
		r, err := s.client.ProduceSync(ctx, record).First()
		if err != nil {
			s.client.ForceMetadataRefresh() // perhaps it does not know a new partition
			return 0, err
		}
		return ledger.Seq(r.Partition, r.Offset), nil
	}
}

// progress compares what is committed with the ends of the partitions.
func (s *kafkaSystem) progress(t *testing.T) progress {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	committed, err := s.committed(ctx)
	if err != nil {
		t.Logf("asking for the group: %v", err)
		return progress{Broker: ledger.Committed{}}
	}
	ends, err := s.ends(ctx, s.topic)
	if err != nil {
		t.Logf("asking for the ends: %v", err)
		return progress{Broker: ledger.Committed{}}
	}
	done := true
	for p, end := range ends {
		done = done && committed[p] == end
	}
	return progress{Broker: committed, idle: done, settled: done}
}

// committed is where each partition would begin again; 0 where nothing is committed.
func (s *kafkaSystem) committed(ctx context.Context) (ledger.Committed, error) {
	offsets := ledger.Committed{}
	for p := range s.partitions.Load() {
		offsets[p] = 0
	}
	answer, err := s.admin.FetchOffsets(ctx, s.group)
	if err = errors.Join(err, answer.Error()); err != nil {
		return nil, err
	}
	for p, o := range answer[s.topic] {
		offsets[p] = max(o.At, 0)
	}
	return offsets, nil
}

// ends is the next offset of each partition.
func (s *kafkaSystem) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	answer, err := s.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, answer.Error()); err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for p, o := range answer[topic] {
		ends[p] = o.Offset
	}
	return ends, nil
}

// letters reads a topic to its end.
func (s *kafkaSystem) letters(t *testing.T, topic string) (all []letter) {
	t.Helper()
	for r := range s.records(t, topic, 0) {
		header := func(key string) string {
			i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == key })
			if i < 0 {
				t.Errorf("a dead letter without %s: %v", key, r.Headers)
				return ""
			}
			return string(r.Headers[i].Value)
		}
		partition, err := strconv.ParseInt(header(broker.HeaderOriginalPartition), 10, 32)
		offset, err2 := strconv.ParseInt(header(broker.HeaderOriginalOffset), 10, 64)
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
		all = append(all, newLetter(t, r.Value, ledger.Seq(int32(partition), offset), header(broker.HeaderID)))
	}
	return all
}

// records reads a partition from its begin to the end that it has now.
func (s *kafkaSystem) records(t *testing.T, topic string, partition int32) iter.Seq[*kgo.Record] {
	t.Helper()
	return func(yield func(*kgo.Record) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ends, err := s.ends(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Brokers()...),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		for next := int64(0); next < ends[partition]; {
			fetched := reader.PollFetches(ctx)
			if err := fetched.Err(); err != nil {
				t.Fatalf("reading %s: %v", topic, err)
			}
			for _, r := range fetched.Records() {
				if next = r.Offset + 1; !yield(r) {
					return
				}
			}
		}
	}
}

// lettersTo makes a topic for dead letters.
func (s *kafkaSystem) lettersTo(t *testing.T) string {
	t.Helper()
	topic := kafkad.Unique("dead")
	if err := s.cluster.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	return topic
}

func (s *kafkaSystem) kill() { s.cluster.Kill(0) }

func (s *kafkaSystem) restart() error { return s.cluster.Restart(0) }

func (s *kafkaSystem) proxy(*testing.T) (*faultproxy.Proxy, string) {
	p := s.cluster.Proxies()[0]
	return p, p.Addr()
}
