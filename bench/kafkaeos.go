package main

import (
	"context"
	_ "embed" // of EOSLoop.java
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// outputs makes a topic for what a run writes.
func (r *kafkaRun) outputs() string {
	c := must(kgo.NewClient(kgo.SeedBrokers(r.brokers...)))
	defer c.Close()
	topic := kafkad.Unique("out")
	check(createTopic(context.Background(), c, topic, kafkaPartitions))
	return topic
}

// kafkaEOSLongshore hands messages on from topic to topic in transactions. It is done when the last one is committed, and not
// when the last handler has returned.
func kafkaEOSLongshore(where string, n, workers int, do func(int)) sample {
	r := newKafkaRun(where, n)
	out := r.outputs()
	at := kafkabroker.Connection{Brokers: r.brokers}
	source := must(kafkabroker.NewSource(kafkabroker.Config{Connection: at, Group: r.group, Topics: []string{r.topic},
		Transactional: true}))
	p := must(kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at}))
	c := must(consumer.New(consumer.Config{Source: source, Pool: consumer.Pool{Min: workers, Max: workers},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			r.once.Do(func() { r.meter = begin() })
			do(0)
			return consumer.EmitBy(ctx, p, broker.Outgoing{Topic: out, Key: m.Key, Value: m.Value})
		}}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { check(c.Run(ctx)) }()
	for committed := int64(0); committed < int64(n); {
		time.Sleep(5 * time.Millisecond)
		committed = 0
		for _, f := range source.Floors() {
			committed += f.Offset
		}
	}
	return r.meter.stop(n)
}

// kafkaEOSFranz is franz-go's GroupTransactSession, as its documentation has it: one loop, and a transaction for each poll.
// beside: the partitions of a poll are handled beside each other, each message after the other.
func kafkaEOSFranz(where string, n int, beside bool, do func(int)) sample {
	r := newKafkaRun(where, n)
	out := r.outputs()
	opts := []kgo.Opt{kgo.SeedBrokers(r.brokers...), kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.TransactionalID(r.group), kgo.FetchIsolationLevel(kgo.ReadCommitted())}
	if beside { // some of each partition, so that a transaction of slow messages ends before its timeout
		opts = append(opts, kgo.FetchMaxPartitionBytes(64<<10))
	}
	s := must(kgo.NewGroupTransactSession(opts...))
	defer s.Close()
	ctx := context.Background()
	for committed := 0; committed < n; {
		fs := s.PollFetches(ctx)
		check(fs.Err())
		r.once.Do(func() { r.meter = begin() })
		check(s.Begin())
		failed := kgo.AbortingFirstErrPromise(s.Client())
		hand := func(m *kgo.Record) {
			do(0)
			s.Produce(ctx, &kgo.Record{Topic: out, Key: m.Key, Value: m.Value}, failed.Promise())
		}
		if beside {
			var all sync.WaitGroup
			fs.EachPartition(func(p kgo.FetchTopicPartition) { all.Go(func() { p.EachRecord(hand) }) })
			all.Wait()
		} else {
			fs.EachRecord(hand)
		}
		ok, err := s.End(ctx, kgo.TransactionEndTry(failed.Err() == nil))
		check(err)
		if ok {
			committed += fs.NumRecords()
		}
	}
	return r.meter.stop(n)
}

//go:embed EOSLoop.java
var eosLoop []byte

// kafkaEOSJava is Kafka's own client in a loop, in a JVM: see EOSLoop.java. Its allocations are not counted.
func kafkaEOSJava(where string, n int) (s sample) {
	r := newKafkaRun(where, n)
	dir := must(os.MkdirTemp("", "longshore-java-"))
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "EOSLoop.java")
	check(os.WriteFile(file, eosLoop, 0o644))
	run := must(kafkad.CompileJava(file, dir))
	cmd := run("EOSLoop", strings.Join(r.brokers, ","), r.topic, r.outputs(), r.group, fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	check(json.Unmarshal(must(cmd.Output()), &s))
	return s
}

// kafkaEOSFigures are those of messages that are handed on at once. The better one of the other two is the measure.
func kafkaEOSFigures(name string) func(map[string]sample) []figure {
	return func(m map[string]sample) []figure {
		l, f, java := m["longshore"], m["franz"], m["java"]
		return []figure{
			atLeast(name+"_throughput_vs_better", min(f.WallNS, java.WallNS)/l.WallNS, 1),
			atMost(name+"_cpu_vs_franz", l.CPUNS/f.CPUNS, 1.3),
			show(name+"_messages_per_second_longshore", 1e9/l.WallNS), show(name+"_messages_per_second_franz", 1e9/f.WallNS),
			show(name+"_messages_per_second_java", 1e9/java.WallNS),
			show(name+"_cpu_us_longshore", l.CPUNS/1e3), show(name+"_cpu_us_franz", f.CPUNS/1e3),
			show(name+"_cpu_us_java", java.CPUNS/1e3),
			show(name+"_allocs_longshore", l.Allocs), show(name+"_allocs_franz", f.Allocs),
		}
	}
}

// kafkaEOSSlowFigures are those of handlers that take 5 ms.
func kafkaEOSSlowFigures(m map[string]sample) []figure {
	l, loops := m["longshore"], m["franz"]
	const possible = workers * 200
	return []figure{
		atLeast("kafka_eos_5ms_share_of_possible", 1e9/l.WallNS/possible, 0.8),
		show("kafka_eos_5ms_messages_per_second_longshore", 1e9/l.WallNS),
		show("kafka_eos_5ms_messages_per_second_franz_by_partition", 1e9/loops.WallNS),
	}
}
