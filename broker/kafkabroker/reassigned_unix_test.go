//go:build unix

package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// TestReassignedReal: under load each partition is reassigned to another broker, again and again, and the one that had it deletes
// it, so that it does not answer who leads, but that there is no such partition. All comes, once and in its order, without a long
// wait (f26).
func TestReassignedReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	const partitions, moves = 4, 4
	k := kafkad.Start(t, kafkad.Config{Nodes: 3})
	for name, ordered := range map[string]consumer.Order{"unordered": "", "ordered": consumer.OrderKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := plainTestSystem(brokertest.Setup{Topics: 1, Partitions: partitions, Lease: lasting}, "sticky", lasting)
			ts.brokers, ts.group = k.Brokers(), kafkad.Unique("reassigned")
			ts.connect(t)
			ts.topics = []string{ts.group}
			admin := kadm.NewClient(ts.admin)
			if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, ts.group); err != nil {
				t.Fatal(err)
			}
			awaitLeaders(t, ts.admin, ts.group, partitions)
			var mu sync.Mutex
			got := make(map[string][]int)
			last, most := time.Now(), time.Duration(0)
			_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{Order: ordered, Pool: consumer.Pool{Min: 8, Max: 8},
				Handler: func(_ context.Context, m *consumer.Message) error {
					n, err := strconv.Atoi(string(m.Value))
					mu.Lock()
					defer mu.Unlock()
					got[string(m.Key)] = append(got[string(m.Key)], n)
					most, last = max(most, time.Since(last)), time.Now()
					return err
				}})
			loading, end := context.WithCancel(t.Context())
			sent := make(chan int)
			go func() { sent <- ts.loadKeys(loading, ts.group) }()
			for range moves {
				time.Sleep(time.Second)
				ts.reassign(t, admin, ts.group)
			}
			time.Sleep(time.Second)
			end()
			n := <-sent
			all := func() (sum int) {
				mu.Lock()
				defer mu.Unlock()
				for _, of := range got {
					sum += len(of)
				}
				return sum
			}
			eventually(t, "all came", func() bool { return all() >= n })
			eventually(t, "all is committed", func() bool { return committedOn(t, ts.admin, ts.group, ts.group, partitions) == int64(n) })
			if err := stop(); err != nil {
				t.Error(err)
			}
			t.Logf("%d messages, the longest wait is %v", n, most)
			if all() != n || most > 5*time.Second {
				t.Errorf("%d of %d messages came, and the longest wait was %v", all(), n, most)
			}
			for key, of := range got {
				if ordered != "" && !slices.IsSorted(of) {
					t.Errorf("messages of key %s are not in their order", key)
				}
			}
		})
	}
}

// loadKeys produces numbers under several keys until ctx ends, and returns how many.
func (ts *testSystem) loadKeys(ctx context.Context, topic string) (n int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.DefaultProduceTopic(topic),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return 0
	}
	defer client.Close()
	for ; ctx.Err() == nil; n += 10 {
		var rs []*kgo.Record
		for i := range 10 {
			rs = append(rs, &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, n+i)})
		}
		if client.ProduceSync(context.Background(), rs...).FirstErr() != nil {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
	return n
}

// reassign gives each partition of a topic to the next broker, and waits until that has happened.
func (ts *testSystem) reassign(t *testing.T, admin *kadm.Client, topic string) {
	t.Helper()
	topics, err := admin.ListTopics(t.Context(), topic)
	if err = errors.Join(err, topics.Error()); err != nil {
		t.Fatal(err)
	}
	nodes, err := admin.ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := nodes.NodeIDs()
	var order kadm.AlterPartitionAssignmentsReq
	for no, p := range topics[topic].Partitions {
		order.Assign(topic, no, []int32{ids[(slices.Index(ids, p.Leader)+1)%len(ids)]})
	}
	altered, err := admin.AlterPartitionAssignments(t.Context(), order)
	if err = errors.Join(err, altered.Error()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are reassigned", func() bool {
		under, err := admin.ListPartitionReassignments(t.Context(), topics.TopicsSet())
		return err == nil && len(under) == 0
	})
}
