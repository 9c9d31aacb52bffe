package program

import (
	"strconv"
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
