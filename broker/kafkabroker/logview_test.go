package kafkabroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

func newLogView(t *testing.T, brokers []string) *LogView {
	t.Helper()
	v, err := NewLogView(LogViewConfig{Connection: Connection{Brokers: brokers, RequestTimeout: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func fill(t *testing.T, brokers []string, rs ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, r := range rs { // a batch each
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func scanAll(t *testing.T, v *LogView, s broker.Scan) (places string, done broker.Scanned) {
	t.Helper()
	var list []string
	done, err := v.Scan(t.Context(), s, func(m *broker.Message) error {
		list = append(list, fmt.Sprintf("%d/%d=%s", m.Partition, m.Offset, m.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " "), done
}

// A scan reads all partitions to their ends, from an offset or a time on, and makes no group.
func TestLogViewScan(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "dead"))
	scansAndTrims(t, c.ListenAddrs(), "dead")
	if groups := c.GroupInfo("longshore-dlq"); groups != nil {
		t.Errorf("a group: %+v", groups)
	}
}

func TestLogViewOnRealKafka(t *testing.T) {
	_, brokers, topic := realKafka(t, 2)
	scansAndTrims(t, brokers, topic)
}

func scansAndTrims(t *testing.T, brokers []string, topic string) {
	t.Helper()
	start := time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())
	for i := range 5 {
		fill(t, brokers,
			&kgo.Record{Topic: topic, Partition: 0, Value: fmt.Append(nil, "a", i), Timestamp: start.Add(time.Duration(i) * time.Minute),
				Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}},
			&kgo.Record{Topic: topic, Partition: 1, Value: fmt.Append(nil, "b", i), Timestamp: start.Add(time.Duration(i) * time.Minute)})
	}
	v := newLogView(t, brokers)
	got, done := scanAll(t, v, broker.Scan{Topic: topic})
	if want := "0/0=a0 0/1=a1 0/2=a2 0/3=a3 0/4=a4 1/0=b0 1/1=b1 1/2=b2 1/3=b3 1/4=b4"; got != want || !done.Whole ||
		done.Log == "" {
		t.Errorf("%s %+v", got, done)
	}
	if got, _ = scanAll(t, v, broker.Scan{Topic: topic, Partitions: []int32{1}, Offset: 3}); got != "1/3=b3 1/4=b4" {
		t.Errorf("from 1/3: %s", got)
	}
	if got, done = scanAll(t, v, broker.Scan{Topic: topic,
		Since: start.Add(3 * time.Minute)}); got != "0/3=a3 0/4=a4 1/3=b3 1/4=b4" || !done.Whole {
		t.Errorf("since 3 min: %s %+v", got, done)
	}
	if got, _ = scanAll(t, v, broker.Scan{Topic: topic, Since: start.Add(time.Hour)}); got != "" {
		t.Errorf("from the future: %s", got)
	}
	_, err := v.Scan(t.Context(), broker.Scan{Topic: topic}, func(m *broker.Message) error {
		if h, ok := m.Headers.Get("h"); string(m.Key) != "k" || !ok || string(h) != "v" || !m.Time().Equal(start) {
			t.Errorf("%+v", m)
		}
		return broker.ErrStopScan
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := v.Scan(t.Context(), broker.Scan{Topic: "nothing"}, nil); !errors.Is(err, broker.ErrNoTopic) ||
		!strings.Contains(err.Error(), "topic nothing") {
		t.Error(err)
	}

	// Kafka has words for ends of a log that look like times and offsets. None of them is meant.
	for ms := range int64(6) {
		if got, _ = scanAll(t, v, broker.Scan{Topic: topic, Since: time.UnixMilli(-ms)}); strings.Count(got, "=") != 10 {
			t.Errorf("since %d ms before 1970: %s", ms, got)
		}
	}
	for _, before := range []int64{-1, -2, math.MinInt64} {
		if err := v.Trim(t.Context(), topic, map[int32]int64{0: before}); err == nil {
			t.Errorf("what is below offset %d was deleted", before)
		}
	}
	if got, done = scanAll(t, v, broker.Scan{Topic: topic, Partitions: []int32{0}}); got != "0/0=a0 0/1=a1 0/2=a2 0/3=a3 0/4=a4" {
		t.Errorf("after trimming below the first offset: %s %+v", got, done)
	}

	// What was cut off is gone, and a scan says that it did not see all.
	if err := v.Trim(t.Context(), topic, map[int32]int64{0: 3}); err != nil {
		t.Fatal(err)
	}
	if got, done = scanAll(t, v, broker.Scan{Topic: topic}); got != "0/3=a3 0/4=a4 1/0=b0 1/1=b1 1/2=b2 1/3=b3 1/4=b4" ||
		done.Whole {
		t.Errorf("after trimming: %s %+v", got, done)
	}
	if _, done = scanAll(t, v, broker.Scan{Topic: topic, Since: start}); done.Whole {
		t.Error("a scan from before the cut says that it saw all")
	}
	err = v.Trim(t.Context(), topic, map[int32]int64{0: 100, 7: 1})
	if err == nil || !strings.Contains(err.Error(), "there is no partition 7") ||
		!strings.Contains(err.Error(), "up to offset 100") {
		t.Error(err)
	}
}

func TestLogViewCreatesLogs(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(3, "wide"))
	v := newLogView(t, c.ListenAddrs())
	for range 2 {
		if err := v.CreateLog(t.Context(), "journal", "dead"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.PartitionInfos("journal")); n != 1 {
		t.Errorf("%d partitions", n)
	}
	if err := v.CreateLog(t.Context(), "wide", "dead"); err == nil ||
		!strings.Contains(err.Error(), "topic wide: it is there with 3 partitions") {
		t.Errorf("a journal of three partitions: %v", err)
	}
	if got, done := scanAll(t, v, broker.Scan{Topic: "journal"}); got != "" || !done.Whole {
		t.Errorf("%s %+v", got, done)
	}
}

// What is cut off while a scan reads another partition was perhaps there: the scan did not see all.
func TestLogViewCutOffMeanwhile(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "dead"))
	for i := range 4 {
		fill(t, c.ListenAddrs(), &kgo.Record{Topic: "dead", Partition: int32(i % 2), Value: fmt.Append(nil, i)})
	}
	v, n := newLogView(t, c.ListenAddrs()), 0
	done, err := v.Scan(t.Context(), broker.Scan{Topic: "dead"}, func(m *broker.Message) error {
		if n++; n == 1 {
			return v.Trim(t.Context(), "dead", map[int32]int64{1 - m.Partition: 1})
		}
		return nil
	})
	if err != nil || n != 3 || done.Whole {
		t.Errorf("%d messages, %+v %v; want 3, and not whole", n, done, err)
	}
}

// A batch that cannot be decoded is no end of the log: it is an error that says where.
func TestLogViewBadBatch(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "dead"))
	fill(t, c.ListenAddrs(), &kgo.Record{Topic: "dead", Value: bytes.Repeat([]byte("x"), 1<<17)})
	v, err := NewLogView(LogViewConfig{Connection: Connection{Brokers: c.ListenAddrs()}, MaxBatchBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, err = v.Scan(t.Context(), broker.Scan{Topic: "dead"}, func(*broker.Message) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "topic dead: partition 0: record batch at offset 0") {
		t.Error(err)
	}
}

func TestLogViewRefused(t *testing.T) {
	if _, err := NewLogView(LogViewConfig{Connection: Connection{Brokers: []string{"nohost"}}, MaxBatchBytes: -1}); err == nil ||
		!strings.Contains(err.Error(), "Brokers[0]") || !strings.Contains(err.Error(), "MaxBatchBytes is -1") {
		t.Error(err)
	}
	v, err := NewLogView(LogViewConfig{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := v.Scan(ctx, broker.Scan{Topic: "dead"}, nil); err == nil || !strings.Contains(err.Error(), "broker 127.0.0.1:1: ") {
		t.Error(err)
	}
}
