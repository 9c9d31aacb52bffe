package program

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// publishUndecodable puts a batch into partition 0 that says it is gzip and is not. Its checksum is right, so that a broker
// stores it.
func publishUndecodable(t *testing.T, client *kgo.Client, topic string) {
	t.Helper()
	b := kmsg.RecordBatch{Magic: 2, Attributes: 1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1,
		Records: []byte("no gzip at all")}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = raw
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.TopicID, of.Partitions = topic, topicID(t, client, topic), append(of.Partitions, part)
	req.Topics = append(req.Topics, of)
	answer, err := req.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUndecodableBatchInTheProgram: by default the program ends, and says where; with skip it goes on, and counts what was
// skipped (bad inputs b13 to b16).
func TestUndecodableBatchInTheProgram(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders"))
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publish := func() {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("good")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	publishUndecodable(t, client, "orders")
	publish()
	dir, admin := t.TempDir(), freePort(t)
	file := fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
consumers:
  orders:
    source: {kafka: {brokers: ["%s"], topics: [orders], group: workers%%s}}
    routes: [{handler: log}]
`, admin, broker)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(file, ""))
	run := launch(t, dir, "run", "-c", "c.yaml")
	if code := run.code(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if log := run.stderr.String(); !strings.Contains(log, "orders/0: record batch at offset 1") ||
		wantJSONLines(t, log)["failed"] != 1 || strings.Count(log, `"event":"message"`) != 1 {
		t.Errorf("not told, or more than the first message was handled:\n%s", log)
	}
	writeFile(t, dir, "c.yaml", fmt.Sprintf(file, ", on_bad_batch: skip"))
	run = launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "the last is handled", func() bool {
		return metric(admin, "handled_messages_total", "orders", 1) && metric(admin, "gap_messages_total", "orders", 1)
	})
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := run.stderr.String(); !strings.Contains(log, `"event":"source_gap"`) || !strings.Contains(log, `"offset":2`) {
		t.Errorf("%s", log)
	}
}

// TestPublishKeepsRecords: publish hands on a tombstone as one, and an empty value, a missing key and an odd header as they were
// (bad inputs b08 to b10). What is too large for the limit becomes a dead letter without a run (b07).
func TestPublishKeepsRecords(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "in", "out", "dead"))
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("out", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	odd := kgo.RecordHeader{Key: "X-Odd\r\n", Value: []byte{0xff, 0, '\n'}}
	records := []*kgo.Record{
		{Topic: "in", Key: []byte("tombstone"), Headers: []kgo.RecordHeader{odd, {Key: "X-Odd\r\n"},
			{Key: "Longshore-Attempts", Value: []byte("-1")}}},
		{Topic: "in", Key: []byte("empty"), Value: []byte{}},
		{Topic: "in", Value: []byte("no key")},
		{Topic: "in", Key: []byte("large"), Value: make([]byte, 2000)},
		{Topic: "in", Key: []byte("many"), Value: []byte("v"), Headers: make([]kgo.RecordHeader, 10_000)},
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dir, admin := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
consumers:
  copy:
    source: {kafka: {brokers: ["%s"], topics: [in], group: copy}}
    dead_letter: {to: dead}
    max_message_bytes: 1000
    middleware: [{use: logging, with: {level: info}}]
    routes: [{handler: publish, with: {to: out}}]
`, admin, broker))
	run := launch(t, dir, "run", "-c", "c.yaml")
	got := map[string]*kgo.Record{}
	run.eventually(t, "all are settled", func() bool {
		return metric(admin, "handled_messages_total", "copy", 4) && metric(admin, "dead_lettered_messages_total", "copy", 1)
	})
	for end := time.Now().Add(patience); len(got) < 5 && time.Now().Before(end); {
		for _, r := range client.PollRecords(t.Context(), 10).Records() {
			got[string(r.Key)] = r
		}
	}
	wantRecords(t, got, odd)
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := run.stderr.String(); strings.Contains(log, "\r") || strings.Contains(log, "\xff") {
		t.Errorf("the odd header is in the log as it is:\n%q", log)
	}
}

// wantRecords holds what TestPublishKeepsRecords got, by key, against what it sent.
func wantRecords(t *testing.T, got map[string]*kgo.Record, odd kgo.RecordHeader) {
	t.Helper()
	if r := got["tombstone"]; r == nil || r.Value != nil || len(r.Headers) < 2 || r.Headers[0].Key != odd.Key ||
		string(r.Headers[0].Value) != string(odd.Value) || r.Headers[1].Value != nil {
		t.Errorf("the tombstone: %+v", r)
	}
	if r := got["empty"]; r == nil || r.Value == nil || len(r.Value) != 0 {
		t.Errorf("the empty value: %+v", r)
	}
	if r := got[""]; r == nil || r.Key != nil || string(r.Value) != "no key" {
		t.Errorf("without a key: %+v", r)
	}
	if r := got["large"]; r == nil || r.Topic != "dead" || len(r.Value) != 2000 {
		t.Errorf("the large one: %+v", r)
	}
	if r := got["many"]; r == nil || r.Topic != "out" || len(r.Headers) < 10_000 {
		t.Errorf("the one with many headers is not on its way")
	}
}
