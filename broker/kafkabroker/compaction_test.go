package kafkabroker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// serve lets fetches of partition 0 be answered from a log of batches, one in each answer. The fake's own cleaner moves the log's
// start and leaves no empty batches, which a real one does.
func (ts *testSystem) serve(log []testBatch, end int64) {
	id := ts.cluster.TopicInfo(ts.topics[0]).TopicID
	ts.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.RecordBatches = end, end, []byte{}
		at := req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset
		for _, b := range log {
			if b.last >= at {
				p.RecordBatches = b.bytes()
				break
			}
		}
		if len(p.RecordBatches) == 0 {
			time.Sleep(10 * time.Millisecond) // all wait: the fake locks up where two requests sleep by SleepControl
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID, t.Partitions = ts.topics[0], id, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
}

// TestCompacted: batches without their last records, and without any, are passed wherever they stand in an answer and in the log;
// all is committed up to the log's end, and nothing is handed out twice.
func TestCompacted(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.serve([]testBatch{
		{offsets: offsets(0, 3), last: 2},
		{base: 3, last: 19},
		{base: 20, offsets: []int64{21, 24}, last: 29, codec: compress.Gzip},
		{base: 30, last: 34},
		{base: 35, offsets: []int64{35}, last: 39, codec: compress.Zstd},
		{base: 40, last: 49},
	}, 50)
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all messages came", func() bool { return r.has([]string{"v0", "v1", "v2", "v21", "v24", "v35"}) })
	eventually(t, "the commit is at the log's end", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == 50 })
	for v, n := range r.seen() {
		if n != 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
	if n := len(r.seen()); n != 6 {
		t.Errorf("%d messages came, want 6", n)
	}
}

// TestCompactedReal: the same of a log that Kafka's own cleaner has compacted.
func TestCompactedReal(t *testing.T) {
	const keys, rounds = 10, 6
	ts := realSystem(t, brokertest.Setup{Partitions: 1}, "sticky")
	ts.topics = []string{ts.group + "-compacted"}
	createTopic(t, ts.admin, ts.topics[0], 1, "cleanup.policy", "compact", "segment.ms", "100", "min.cleanable.dirty.ratio", "0.01",
		"max.compaction.lag.ms", "100")
	t.Cleanup(func() { deleteTopic(t, ts.admin, ts.topics[0]) })
	var latest []string
	for round := range rounds {
		latest = latest[:0]
		var rs []*kgo.Record
		for key := range keys {
			v := fmt.Sprintf("key%d-round%d", key, round)
			latest = append(latest, v)
			rs = append(rs, &kgo.Record{Topic: ts.topics[0], Key: fmt.Appendf(nil, "key%d", key), Value: []byte(v)})
		}
		if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond) // the next round begins a segment
	}
	left := keys * rounds
	for end := time.Now().Add(90 * time.Second); left > keys*rounds/2; left = ts.count(t) {
		if time.Now().After(end) {
			t.Fatalf("the cleaner has left %d of %d messages", left, keys*rounds)
		}
	}
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "the latest of each key came", func() bool { return r.has(latest) })
	eventually(t, "the commit is at the log's end", func() bool {
		return committedOn(t, ts.admin, ts.group, ts.topics[0],
			1) == keys*rounds
	})
	t.Logf("the cleaner left %d of %d messages, %d came", left, keys*rounds, len(r.seen()))
	for v, n := range r.seen() {
		if n != 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
}

// count is how many messages an independent client finds in the log.
func (ts *testSystem) count(t *testing.T) (n int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.ConsumeTopics(ts.topics[0]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := listOffsets(t, ts.admin, ts.topics[0], 1, timeEnd)[0]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for last := int64(-1); last < end-1; { // the active segment is never compacted
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { n, last = n+1, r.Offset })
	}
	return n
}

// TestCodecs: whatever a producer compresses with is read.
func TestCodecs(t *testing.T) {
	t.Parallel()
	onEach(t, 1, testCodecs)
}

func testCodecs(t *testing.T, ts *testSystem) {
	var want []string
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	} {
		c, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.ProducerBatchCompression(codec),
			kgo.ProducerLinger(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		var rs []*kgo.Record
		for i := range 200 {
			v := fmt.Sprintf("%s-%d-%0100d", name, i, 0)
			want = append(want, v)
			rs = append(rs, &kgo.Record{Topic: ts.topics[0], Value: []byte(v)})
		}
		if err := c.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if n := len(r.seen()); n != len(want) {
		t.Errorf("%d messages came, want %d", n, len(want))
	}
	if got := codecsOf(t, r.s, partitionID{ts.topics[0], 0}); len(got) != 5 {
		t.Errorf("the log has batches of the codecs %v, want all five: nothing was proved of the others", got)
	}
}

// codecsOf lists the codecs of the batches in a partition.
func codecsOf(t *testing.T, s *Source, p partitionID) map[int]bool {
	t.Helper()
	s.h.mu.Lock()
	of := s.h.roster.parts[p]
	f := &fetchRequest{node: of.leader, maxWait: time.Second, bytes: 16 << 20,
		wishes: []wish{{partitionID: p, id: of.id, epoch: -1, bytes: 16 << 20}}}
	s.h.mu.Unlock()
	got, err := s.c.fetch(context.Background(), f, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	codecs := make(map[int]bool)
	d := newDecoder(got[0].records, 0, got[0].high, false, nil, 16<<20)
	for {
		b, err := d.cut()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return codecs
		}
		codecs[int(b[atAttrs+1]&attrCodec)] = true
	}
}
