package sim

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/sim/memnet"
)

// A kafkaLog reads what topics have, as one who reads what is committed.
type kafkaLog struct {
	w    *kafkaWorld
	read map[string][]broker.Message
	next map[string]map[int32]int64 // by topic and partition, what comes next
}

// messages reads what came since it was last asked, as far as no open transaction stands in the way.
func (l *kafkaLog) messages(topic string) ([]broker.Message, error) {
	next, stable := l.next[topic], map[int32]int64{}
	if next == nil {
		next = map[int32]int64{}
		l.next[topic] = next
	}
	from := map[int32]kgo.Offset{}
	for _, p := range l.w.brokers().PartitionInfos(topic) {
		if next[p.Partition] < p.LastStableOffset {
			from[p.Partition], stable[p.Partition] = kgo.NewOffset().At(next[p.Partition]), p.LastStableOffset
		}
	}
	if len(from) == 0 {
		return l.read[topic], nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.w.addresses()...), kgo.Dialer(l.w.net.Host(memnet.HostConfig{}).Dial),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), // which stand where an aborted transaction ends
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for len(stable) > 0 {
		fetches := cl.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if r.Offset+1 >= stable[r.Partition] {
				delete(stable, r.Partition)
			}
			if !r.Attrs.IsControl() {
				m := broker.Message{Topic: topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
				l.read[topic] = append(l.read[topic], m)
			}
		})
	}
	return l.read[topic], nil
}
