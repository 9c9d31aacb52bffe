package kafkabroker

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// stored is what another client reads of a topic's only partition that reads what is committed, as far as no open transaction
// hides it.
func (ts *testSystem) stored(t testing.TB, topic string) (ms []broker.Message) {
	t.Helper()
	return ts.storedAt(t, topic, 0)
}

// storedAt is stored of one of several partitions.
func (ts *testSystem) storedAt(t testing.TB, topic string, partition int32) (ms []broker.Message) {
	t.Helper()
	end := ts.stableEnd(t, topic, partition)
	if end == 0 {
		return nil
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for next := int64(0); next < end; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("reading %s at %d of %d: %v", topic, next, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				ms = append(ms, broker.Message{Topic: topic, Partition: partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
			}
		})
	}
	return ms
}

// stableEnd is how far a partition can be read by who reads what is committed.
func (ts *testSystem) stableEnd(t testing.TB, topic string, partition int32) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timeEnd
	of.Partitions = append(of.Partitions, p)
	req.Topics = append(req.Topics, of)
	r := ask(t, ts.admin, req, func(r *kmsg.ListOffsetsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	return r.Topics[0].Partitions[0].Offset
}
