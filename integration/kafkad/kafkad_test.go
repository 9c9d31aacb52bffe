//go:build unix

package kafkad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// needsKafka skips what starts JVMs unless it is asked for.
func needsKafka(t *testing.T) {
	t.Helper()
	if os.Getenv("LONGSHORE_KAFKA") == "" {
		t.Skip("LONGSHORE_KAFKA=1 runs tests on Kafka")
	}
}

func TestShared(t *testing.T) {
	needsKafka(t)
	k := Shared(t)
	if k.Controls() {
		k.Kill(0)
	}
	if Shared(t) != k || len(liveBrokers(k.Brokers()[0])) == 0 {
		t.Fatal("two shared clusters, or one that does not run")
	}
	topic := Unique("shared")
	create(t, k, topic, 2)
	put(t, k, topic, 0, 10)
	if got := fetchAll(t, k, topic, 0, 10); len(got) != 10 || got[0].Offset != 0 || string(got[9].Value) != "9" {
		t.Fatalf("got %d messages: %v", len(got), got)
	}
	if err := k.DeleteRecords(t.Context(), topic, 0, 7); err != nil {
		t.Fatal(err)
	}
	if got := fetchAll(t, k, topic, 0, 10); len(got) != 3 || got[0].Offset != 7 {
		t.Fatalf("after deleting 7 of 10 records: %v", got)
	}
	if err := k.CreateTopic(t.Context(), topic, 2, nil); err == nil {
		t.Fatal("a topic was made twice")
	}
}

// TestDescribeGroup: what one client commits, Kafka's own tool sees.
func TestDescribeGroup(t *testing.T) {
	needsKafka(t)
	k := Shared(t)
	topic, group := Unique("described"), Unique("readers")
	create(t, k, topic, 2)
	put(t, k, topic, 1, 10)
	commit(t, k, group, topic, 1, 4)
	got, err := k.DescribeGroup(group)
	if errors.Is(err, ErrNoTool) && os.Getenv("LONGSHORE_REAL") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := (Progress{Topic: topic, Partition: 1, Committed: 4, End: 10, Lag: 6}); len(got) != 1 || got[0] != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// commit says so again while the coordinator moves in.
func commit(t *testing.T, k *Cluster, group, topic string, partition int, offset int64) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers()...), Timeout: 10 * time.Second, Transport: transport}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		committed, err := client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
			Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: partition, Offset: offset}}}})
		if err == nil {
			err = committed.Topics[topic][0].Error
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestKilledBrokerComesBackWithItsData(t *testing.T) {
	needsKafka(t)
	k := Start(t, Config{})
	create(t, k, "kept", 1)
	put(t, k, "kept", 0, 10)
	first := k.Pid(0)
	k.Kill(0)
	if ids := liveBrokers(k.Brokers()[0]); len(ids) != 0 {
		t.Fatalf("a killed broker answers: %v", ids)
	}
	if err := k.Restart(0); err != nil {
		t.Fatal(err)
	}
	if k.Pid(0) == first {
		t.Fatalf("still process %d", first)
	}
	if got := fetchAll(t, k, "kept", 0, 10); len(got) != 10 {
		t.Fatalf("%d of 10 messages are left", len(got))
	}
	if err := k.Freeze(0); err != nil {
		t.Fatal(err)
	}
	if ids := liveBrokers(k.Brokers()[0]); len(ids) != 0 {
		t.Fatalf("a frozen broker answers: %v", ids)
	}
	if err := k.Thaw(0); err != nil {
		t.Fatal(err)
	}
	put(t, k, "kept", 0, 1)
	testProxy(t, k)
	if err := k.Stop(0); err != nil {
		t.Fatal(err)
	}
}

// testProxy: who begins at a proxy stays there.
func testProxy(t *testing.T, k *Cluster) {
	t.Helper()
	proxy := k.Proxies()[0]
	over := &Cluster{brokers: []string{proxy.Addr()}}
	put(t, over, "kept", 0, 1)
	proxy.Refuse(true)
	proxy.Reset()
	if ids := liveBrokers(proxy.Addr()); len(ids) != 0 {
		t.Errorf("a refusing proxy answers: %v", ids)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		t.Errorf("without the proxy: %v", err)
	}
	proxy.Heal()
}

// TestThreeNodes: with one of three killed, the others lead and confirm.
func TestThreeNodes(t *testing.T) {
	needsKafka(t)
	if os.Getenv("LONGSHORE_CHAOS") == "" {
		t.Skip("in short: run make chaos")
	}
	k := Start(t, Config{Nodes: 3})
	create(t, k, "replicated", 3)
	for p := range 3 {
		put(t, k, "replicated", p, 5)
	}
	k.Kill(0)
	for p := range 3 {
		put(t, k, "replicated", p, 5)
		if got := fetchAll(t, k, "replicated", p, 10); len(got) != 10 {
			t.Errorf("partition %d: %d of 10 messages", p, len(got))
		}
	}
	if err := k.Restart(0); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, k *Cluster, topic string, partitions int) {
	t.Helper()
	if err := k.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
		t.Fatal(err)
	}
}

// put writes n numbered messages with kafka-go, confirmed by all replicas, in one batch.
func put(t *testing.T, k *Cluster, topic string, partition, n int) {
	t.Helper()
	transport := &kafka.Transport{MetadataTTL: time.Second}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(k.Brokers()...), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond, BatchSize: n,
		MaxAttempts: 60, WriteBackoffMin: 100 * time.Millisecond, Transport: transport,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition })}
	defer w.Close()
	var ms []kafka.Message
	for i := range n {
		ms = append(ms, kafka.Message{Value: fmt.Append(nil, i)})
	}
	if err := w.WriteMessages(t.Context(), ms...); err != nil {
		t.Fatalf("writing to %s/%d: %v", topic, partition, err)
	}
}

// fetchAll reads a partition with kafka-go from its begin up to the offset end.
func fetchAll(t *testing.T, k *Cluster, topic string, partition int, end int64) (ms []kafka.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: k.Brokers(), Topic: topic, Partition: partition, MaxWait: time.Second})
	defer r.Close()
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("reading %s/%d after %d messages: %v", topic, partition, len(ms), err)
		}
		if ms = append(ms, m); m.Offset == end-1 {
			return ms
		}
	}
}

func TestParseGroup(t *testing.T) {
	const head = "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     " +
		"HOST            CLIENT-ID\n"
	for name, c := range map[string]struct {
		out  string
		want []Progress
		err  string
	}{
		"without members": {"\nConsumer group 'g' has no active members.\n" + head +
			"g               t               0          10              12              2               -               -               " +
			"-\n",
			[]Progress{{Topic: "t", Committed: 10, End: 12, Lag: 2}}, ""},
		"nothing committed": {head + "g t 3 - 7 - longshore-1 /127.0.0.1 longshore\n",
			[]Progress{{Topic: "t", Partition: 3, Committed: -1, End: 7, Lag: -1}}, ""},
		"no such group": {"\nError: Consumer group 'g' does not exist.\n", nil, "no table"},
		"another table": {strings.Replace(head, "LAG", "GAP", 1) + "g t 0 1 2 1 - - -\n", nil, "no column LAG"},
		"no number":     {head + "g t 0 one 2 1 - - -\n", nil, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseGroup(c.out)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, %v; want an error with %q", got, err, c.err)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Fatalf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}
