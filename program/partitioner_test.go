package program

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestPartitionerInTheProgram: a consumer whose topic kafka-go writes says so in its file; then what it publishes is where
// kafka-go would write it, and a letter that is replayed is back in its partition, wherever its key would be.
func TestPartitionerInTheProgram(t *testing.T) {
	t.Parallel()
	c, broker := startKafka(t, kfake.SeedTopics(6, "orders", "done"), kfake.SeedTopics(1, "dead"))
	dir := t.TempDir()
	source := `{kafka: {brokers: ["` + broker + `"], topics: [orders], group: g, partitioner: fnv1a}}`
	writeFile(t, dir, "publish.yaml", "consumers: {a: {source: "+source+", dead_letter: {to: dead}, routes: "+
		"[{handler: publish, with: {to: done}}]}}")
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	at := map[string]int32{"c23": 1, "c34": 3, "bad": 0} // as kafka-go's Hash
	for key, no := range at {
		letter := &kgo.Record{Topic: "dead", Key: []byte(key), Value: []byte("letter"), Headers: []kgo.RecordHeader{
			{Key: "Longshore-Original-Topic", Value: []byte("orders")},
			{Key: "Longshore-Original-Partition", Value: []byte(strconv.Itoa(int(no)))},
			{Key: "Longshore-Handler", Value: []byte("a")},
		}}
		if err := cl.ProduceSync(t.Context(), letter).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	replay := launch(t, dir, "dlq", "replay", "-c", "publish.yaml")
	if code := replay.code(t); code != 0 {
		t.Fatalf("replay: %d %s", code, replay.stderr.String())
	}
	run := launch(t, dir, "run", "-c", "publish.yaml")
	for key, no := range at {
		for _, topic := range []string{"orders", "done"} {
			run.eventually(t, topic+" has "+key+" where kafka-go has it", func() bool {
				return c.PartitionInfo(topic, no).HighWatermark == 1
			})
		}
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("run: %d %s", code, run.stderr.String())
	}
}

// TestPartitionerOfProduce: produce writes where the topic's other producers do, if it is told to, and takes no other word.
func TestPartitionerOfProduce(t *testing.T) {
	t.Parallel()
	c, broker := startKafka(t, kfake.SeedTopics(6, "java", "hash"))
	for topic, tc := range map[string]struct {
		flags []string
		no    int32
	}{
		"java": {nil, 5},
		"hash": {[]string{"--partitioner", "fnv1a"}, 1},
	} {
		args := append([]string{"produce", "--brokers", broker, "--topic", topic, "--key", "c23", "--count", "1"}, tc.flags...)
		p := launch(t, t.TempDir(), args...)
		if code := p.code(t); code != 0 {
			t.Fatalf("produce: %d %s", code, p.stderr.String())
		}
		if n := c.PartitionInfo(topic, tc.no).HighWatermark; n != 1 {
			t.Errorf("partition %d of %s has %d messages, want 1", tc.no, topic, n)
		}
	}
	for _, args := range [][]string{
		{"--partitioner", "random", "--topic", "java"},
		{"--partitioner", "crc32", "--url", "nats://x"},
	} {
		p := launch(t, t.TempDir(), append([]string{"produce"}, args...)...)
		if code := p.code(t); code != 2 || !strings.Contains(p.stderr.String(), "--partitioner") {
			t.Errorf("%q: %d %s", args, code, p.stderr.String())
		}
	}
}
