//go:build unix

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/integration/faultproxy"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/integration/ledger"
)

const loadPartitions = 8

// kafkaSystem is a topic and a group of its own on a Kafka cluster. Its client is franz-go, which shares nothing with the product.
type kafkaSystem struct {
	cluster      *kafkad.Cluster
	topic, group string
	client       *kgo.Client
}

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
	s := &kafkaSystem{cluster: cluster, topic: kafkad.Unique("load"), group: kafkad.Unique("workers")}
	if err := cluster.CreateTopic(t.Context(), s.topic, loadPartitions, nil); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.client = client
	return s
}

// broker says so where nothing is proved about Kafka itself.
func (s *kafkaSystem) broker() string {
	if !s.cluster.Real() {
		return "kafka: " + s.cluster.Name
	}
	return "kafka"
}

func (s *kafkaSystem) configure(c *consumerConfig) {
	c.Broker, c.URL, c.Topic, c.Group, c.Lease = "kafka", strings.Join(s.cluster.Brokers(), ","), s.topic, s.group, time.Second
}

// publisher leaves it to franz-go to send again: its producer is idempotent, so the broker drops what it has.
func (s *kafkaSystem) publisher(*testing.T) publish {
	return func(ctx context.Context, _ string, id int64, body []byte) (int64, error) {
		r, err := s.client.ProduceSync(ctx, &kgo.Record{Topic: s.topic, Partition: int32(id % loadPartitions), Value: body}).First()
		if err != nil {
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
	ends, err := s.ends(ctx, s.topic, loadPartitions)
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
	request := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = s.group
	request.Groups = append(request.Groups, group)
	response, err := request.RequestWith(ctx, s.client)
	if err != nil {
		return nil, err
	}
	offsets := ledger.Committed{}
	for p := range int32(loadPartitions) {
		offsets[p] = 0
	}
	for _, g := range response.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, err
		}
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				if topic.Topic == s.topic {
					offsets[p.Partition] = max(p.Offset, 0)
				}
			}
		}
	}
	return offsets, nil
}

// ends is the next offset of each partition.
func (s *kafkaSystem) ends(ctx context.Context, topic string, partitions int32) (map[int32]int64, error) {
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p, -1
		t.Partitions = append(t.Partitions, one)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, t)
	ends := map[int32]int64{}
	for _, shard := range s.client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	if len(ends) != int(partitions) {
		return nil, fmt.Errorf("the ends of %d of %d partitions of %s", len(ends), partitions, topic)
	}
	return ends, nil
}

func (s *kafkaSystem) kill() { s.cluster.Kill(0) }

func (s *kafkaSystem) restart() error { return s.cluster.Restart(0) }

func (s *kafkaSystem) proxy(*testing.T) (*faultproxy.Proxy, string) {
	p := s.cluster.Proxies()[0]
	return p, p.Addr()
}
