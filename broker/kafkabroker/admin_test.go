package kafkabroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends what an administrator does, and fails t when it cannot be done. code is the answer's error code.
func ask[R kmsg.Response](t testing.TB, admin *kgo.Client, req kmsg.Request, code func(R) int16) (r R) {
	t.Helper()
	again(t, func() error {
		res, err := admin.Request(context.Background(), req)
		if err != nil {
			return err
		}
		r = res.(R)
		return kerr.ErrorForCode(code(r))
	})
	return r
}

// again does something until it works, or fails t when patience is over or another try does not help. A broker says what is
// retriable while it is not ready: the topic of commits is being made, a new topic is not known everywhere. What no broker says
// is a connection's, to one that was killed perhaps.
func again(t testing.TB, do func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		var said *kerr.Error
		if errors.As(err, &said) && !said.Retriable || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// createTopic makes one with settings given as names and values in turns.
func createTopic(t testing.TB, admin *kgo.Client, topic string, partitions int32, settings ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = settings[i], &settings[i+1]
		rt.Configs = append(rt.Configs, c)
	}
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, -1
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	ask(t, admin, req, func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
	awaitLeaders(t, admin, topic, partitions)
}

// awaitLeaders waits until brokers know a topic: it is the controller that has made it.
func awaitLeaders(t testing.TB, admin *kgo.Client, topic string, partitions int32) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	eventually(t, "topic "+topic+" has leaders", func() bool {
		r, err := req.RequestWith(context.Background(), admin)
		if err != nil {
			return false
		}
		led := int32(0)
		for _, p := range r.Topics[0].Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				led++
			}
		}
		return led == partitions
	})
}

func deleteTopic(t testing.TB, admin *kgo.Client, topic string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &topic
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, rt), []string{topic}, 10_000
	ask(t, admin, req, func(r *kmsg.DeleteTopicsResponse) int16 { return r.Topics[0].ErrorCode })
	admin.PurgeTopicsFromClient(topic)
}

// trimTopic deletes the records of partition 0 below an offset, as retention does.
func trimTopic(t testing.TB, admin *kgo.Client, topic string, below int64) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = below
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	ask(t, admin, req, func(r *kmsg.DeleteRecordsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

// listOffsets asks for the starts or the ends of a topic's partitions.
func listOffsets(t testing.TB, admin *kgo.Client, topic string, partitions int32, at int64) []int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for no := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = no, at
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	offsets := make([]int64, partitions)
	again(t, func() error {
		for _, shard := range admin.RequestSharded(context.Background(), req) { // one for each leader
			if shard.Err != nil {
				return shard.Err
			}
			for _, p := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
				offsets[p.Partition] = p.Offset
			}
		}
		return nil
	})
	return offsets
}

// committedOf is what the broker says is committed, by partition; offset -1: nothing.
func committedOf(t testing.TB, admin *kgo.Client, group, topic string, partitions int32) []position {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic = topic
	for no := range partitions {
		rt.Partitions = append(rt.Partitions, no)
	}
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.Topics = group, append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	r := ask(t, admin, req, func(r *kmsg.OffsetFetchResponse) int16 { return r.Groups[0].ErrorCode })
	at := make([]position, partitions)
	for _, p := range r.Groups[0].Topics[0].Partitions {
		at[p.Partition].offset = p.Offset
		if p.Metadata != nil {
			at[p.Partition].metadata = *p.Metadata
		}
	}
	return at
}

// committedOn is the sum of it.
func committedOn(t testing.TB, admin *kgo.Client, group, topic string, partitions int32) (sum int64) {
	t.Helper()
	for _, at := range committedOf(t, admin, group, topic, partitions) {
		sum += max(0, at.offset)
	}
	return sum
}

func topicIDOf(t testing.TB, admin *kgo.Client, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	return ask(t, admin, req, func(r *kmsg.MetadataResponse) int16 { return r.Topics[0].ErrorCode }).Topics[0].TopicID
}

// produceRaw stores a batch as it is.
func produceRaw(t testing.TB, admin *kgo.Client, topic string, batch []byte) {
	t.Helper()
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, topicIDOf(t, admin, topic), []kmsg.ProduceRequestTopicPartition{part}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 10_000, append(req.Topics, rt)
	ask(t, admin, req, func(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

// unproduced are the fields of a batch that no idempotent producer fills.
func unproduced(b []byte) {
	for i := atProducer; i < atCount; i++ {
		b[i] = 0xff
	}
}

func (ts *testSystem) trim(t testing.TB, topic string, n int) {
	t.Helper()
	trimTopic(t, ts.admin, topic, listOffsets(t, ts.admin, topic, 1, timeStart)[0]+int64(n))
}

func (ts *testSystem) recreate(t testing.TB, topic string) {
	t.Helper()
	deleteTopic(t, ts.admin, topic)
	createTopic(t, ts.admin, topic, ts.parts)
	ts.admin.PurgeTopicsFromClient(topic) // else it produces by the old one's id
	ts.set(func() { clear(ts.floors) })
}

// undecodable stores a batch that says it is gzip and is not. A real broker looks into batches, so it gets one that is more than
// MaxBatchBytes.
func (ts *testSystem) undecodable(t testing.TB, topic string) {
	t.Helper()
	b := testBatch{offsets: []int64{0}, attrs: 1, producer: -1, corrupt: unproduced}
	if ts.cluster == nil {
		b = testBatch{offsets: []int64{0}, codec: compress.Zstd, value: func(int64) []byte { return make([]byte, 5<<20) },
			corrupt: unproduced}
	}
	produceRaw(t, ts.admin, topic, b.bytes())
}

// TestAskAgain: the tests' own questions are asked again where a broker is not ready for them: the group's coordinator is being
// made, a new topic is not known everywhere.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	ts.put(t, ts.topics[0], 0, 4)
	ts.commit(t, 1, "")
	for _, f := range []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorNotAvailable, Count: 4},
		{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownTopicOrPartition, Count: 4},
	} {
		h := ts.cluster.Fault(f)
		at, ends := committedOf(t, ts.admin, ts.group, ts.topics[0], 2), listOffsets(t, ts.admin, ts.topics[0], 2, timeEnd)
		if at[0].offset != 1 || ends[0] != 2 || ends[1] != 2 || h.Hits() == 0 {
			t.Errorf("committed %+v, ends %v, after %d faults", at, ends, h.Hits())
		}
	}
}
