//go:build unix

package kafkabroker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// sharedKafka is one Apache Kafka for all tests of this process.
func sharedKafka(t testing.TB) (brokers []string) {
	t.Helper()
	k := kafkad.Shared(t)
	if !k.Real() {
		t.Skip("NO REAL KAFKA: nothing was tested on one")
	}
	return k.Brokers()
}

func stopSharedKafka() { kafkad.StopShared() }

// TestMovesReal: each of three brokers is killed and started again, so that leaders and the group's coordinator move (f26, f09).
func TestMovesReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{Nodes: 3, Properties: map[string]string{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}})
	const partitions, n = 6, 300
	topic := kafkad.Unique("moves")
	if err := k.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
		t.Fatal(err)
	}
	ts := &testSystem{brokers: k.Brokers(), group: topic, topics: []string{topic}, parts: partitions}
	ts.connect(t)
	var want []string
	put := func() {
		var rs []*kgo.Record
		for range n {
			v := fmt.Sprint(len(want))
			want = append(want, v)
			rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(len(want)) % partitions, Value: []byte(v)})
		}
		if err := ts.admin.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r := startRunner(t, Config{Connection: Connection{Brokers: k.Brokers(), DialTimeout: time.Second, RequestTimeout: 3 * time.Second}, Group: topic, Topics: []string{topic}})
	put()
	long(t, "the first messages came", func() bool { return r.has(want) })
	for node := range 3 {
		k.Kill(node)
		put()
		long(t, fmt.Sprintf("messages came without node %d", node), func() bool { return r.has(want) })
		if err := k.Restart(node); err != nil {
			t.Fatal(err)
		}
	}
	long(t, "all is committed", func() bool { return committedOn(t, ts.admin, topic, topic, partitions) == int64(len(want)) })
	twice := -len(want)
	for _, times := range r.seen() {
		twice += times
	}
	t.Logf("%d messages, %d came again", len(want), twice)
}

// long is eventually for what takes a cluster some time.
func long(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, 3*patience)
		}
	}
}
