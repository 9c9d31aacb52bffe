package kafkabroker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// realKafka is the brokers of KAFKA_BROKERS, with a fresh topic. Without it the test is skipped.
func realKafka(t *testing.T, partitions int32) (admin *kgo.Client, brokers []string, topic string) {
	t.Helper()
	env := os.Getenv("KAFKA_BROKERS")
	if env == "" {
		t.Skip("KAFKA_BROKERS is not set: nothing was tested on real Kafka")
	}
	brokers = strings.Split(env, ",")
	admin, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	topic = fmt.Sprintf("longshore-%d", time.Now().UnixNano())
	createTopic(t, admin, topic, partitions)
	return admin, brokers, topic
}

func createTopic(t *testing.T, admin *kgo.Client, topic string, partitions int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, -1
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	res, err := admin.Request(context.Background(), req)
	if err == nil {
		err = kerr.ErrorForCode(res.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// committedOn is the sum of what the broker says is committed.
func committedOn(t *testing.T, admin *kgo.Client, group, topic string, partitions int32) (sum int64) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	rt.Topic = topic
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic = topic
	for p := range partitions {
		rt.Partitions = append(rt.Partitions, p)
		gt.Partitions = append(gt.Partitions, p)
	}
	req.Topics, rg.Topics = append(req.Topics, rt), append(rg.Topics, gt)
	req.Groups = append(req.Groups, rg)
	res, err := admin.Request(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range res.(*kmsg.OffsetFetchResponse).Groups {
		for _, p := range g.Topics[0].Partitions {
			sum += max(0, p.Offset)
		}
	}
	return sum
}

// TestReal proves on Apache Kafka that members come and go under load with nothing lost, nothing twice, and everything committed; in each
// protocol.
func TestReal(t *testing.T) {
	for balancer := range schemes {
		t.Run(balancer, func(t *testing.T) {
			const partitions, n = 8, 20_000
			admin, brokers, topic := realKafka(t, partitions)
			cfg := Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}, Balancer: balancer,
				SessionTimeout: 3 * time.Second, HeartbeatInterval: 200 * time.Millisecond, CommitInterval: 200 * time.Millisecond}
			runners := []*runner{startRunner(t, cfg)}
			for i := range n {
				switch i {
				case n / 4, n / 2:
					runners = append(runners, startRunner(t, cfg))
				case 3 * n / 4:
					runners[0].close()
				}
				admin.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(fmt.Sprint(i))}, nil)
				if i%100 == 0 {
					time.Sleep(5 * time.Millisecond)
				}
			}
			if err := admin.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "everything is committed", func() bool { return committedOn(t, admin, topic, topic, partitions) == n })
			seen, twice := make(map[string]int), 0
			for _, r := range runners {
				for v, k := range r.seen() {
					seen[v] += k
				}
			}
			for _, k := range seen {
				twice += k - 1
			}
			if len(seen) != n || twice > 0 {
				t.Errorf("%d of %d messages were seen, %d of them again", len(seen), n, twice)
			}
			for i, r := range runners {
				t.Logf("member %d: %d messages, lag %+v", i, len(r.seen()), r.s.Lag())
			}
		})
	}
}

// TestRealRecreated proves on Apache Kafka that a topic which is made anew under a running source is read from its beginning.
func TestRealRecreated(t *testing.T) {
	admin, brokers, topic := realKafka(t, 1)
	r := startRunner(t, Config{Connection: Connection{Brokers: brokers}, Group: topic, Topics: []string{topic}})
	put := func(from, n int) (want []string) {
		for i := from; i < from+n; i++ {
			want = append(want, fmt.Sprint(i))
			if err := admin.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte(want[len(want)-1])}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return want
	}
	want := put(0, 50)
	eventually(t, "the first messages came", func() bool { return r.has(want) })
	req := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = &topic
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, dt), []string{topic}, 10_000
	if _, err := admin.Request(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	admin.PurgeTopicsFromClient(topic)
	createTopic(t, admin, topic, 1)
	want = put(100, 80) // more than were read of the old one
	eventually(t, "all of the new topic came", func() bool { return r.has(want) })
}
