package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

const kafkaPartitions = 4

// withKafka runs Apache Kafka in a process of its own, or takes the brokers of KAFKA_BROKERS, with n messages of 100 bytes and
// 10,000 keys in a topic of 4 partitions. where is the topic and the brokers, as "topic@host:port,host:port".
func withKafka(n int, do func(where string)) error { return runKafka(n, manyKeys, zeros, do) }

// withRandomKafka is withKafka with bodies that no codec makes shorter.
func withRandomKafka(n int, do func(where string)) error { return runKafka(n, manyKeys, random, do) }

// manyKeys, and the others, are the number of message i's key.
func manyKeys(i int) int     { return i % orderKeys }
func tenKeys(i int) int      { return i % 10 }
func thousandKeys(i int) int { return i % 1000 }

// oneHotKey has three of ten messages, 10,000 others have the rest.
func oneHotKey(i int) int {
	if i%10 < 3 {
		return 0
	}
	return 1 + i%orderKeys
}

// withKafkaKeys is withKafka with other keys.
func withKafkaKeys(key func(i int) int) func(n int, do func(where string)) error {
	return func(n int, do func(where string)) error { return runKafka(n, key, zeros, do) }
}

// onKafka runs Apache Kafka, or takes the brokers of KAFKA_BROKERS.
func onKafka(do func(brokers []string) error) error {
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		return do(strings.Split(brokers, ","))
	}
	k, err := kafkad.Launch(kafkad.Config{})
	if err != nil {
		return err
	}
	defer k.Close()
	return do(k.Brokers())
}

func runKafka(n int, key func(i int) int, bodies func() func() []byte, do func(where string)) error {
	return onKafka(func(brokers []string) error {
		topic := kafkad.Unique("bench")
		if err := fillTopic(brokers, topic, n, key, bodies()); err != nil {
			return fmt.Errorf("filling the topic: %w", err)
		}
		do(topic + "@" + strings.Join(brokers, ","))
		return nil
	})
}

// bodySize is how many bytes a message has.
const bodySize = 100

// zeros, and random, make what returns one body after the other: always the same, or such as no codec makes shorter.
func zeros() func() []byte {
	body := make([]byte, bodySize)
	return func() []byte { return body }
}

func random() func() []byte {
	source := rand.NewChaCha8([32]byte{})
	return func() []byte {
		body := make([]byte, bodySize)
		_, _ = source.Read(body) // never fails
		return body
	}
}

// fillTopic fills a topic with n messages of bodySize.
func fillTopic(brokers []string, topic string, n int, key func(i int) int, body func() []byte) error {
	keys := make([][]byte, orderKeys+1) // key i is always in partition i % 4
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%d", i)
	}
	return fillRecords(brokers, topic, kafkaPartitions, bodySize, func(yield func(*kgo.Record) bool) {
		for i := range n {
			k := key(i)
			if !yield(&kgo.Record{Partition: int32(k % kafkaPartitions), Key: keys[k], Value: body()}) {
				return
			}
		}
	})
}

// fillRecords makes a topic, and fills it with records, whose values have so many bytes.
func fillRecords(brokers []string, topic string, partitions, size int, records iter.Seq[*kgo.Record], opts ...kgo.Opt) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(20), kgo.ProducerBatchMaxBytes(int32(max(64<<10, size+1000))),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(max(16, min(100_000, (64<<20)/size)))}, opts...)...)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := createTopic(ctx, c, topic, partitions); err != nil {
		return err
	}
	var first error
	var once sync.Once
	for r := range records {
		r.Topic = topic
		c.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	return first
}

func createTopic(ctx context.Context, c *kgo.Client, topic string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, int32(partitions), -1
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 60_000
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(res.Topics[0].ErrorCode)
}

// A kafkaRun measures from the first handled message to the last one, in a group of its own.
type kafkaRun struct {
	topic   string
	brokers []string
	group   string
	done    *counter
	made    time.Time
	once    sync.Once
	meter   *meter
}

func newKafkaRun(where string, n int) *kafkaRun {
	topic, brokers, _ := strings.Cut(where, "@")
	return &kafkaRun{topic: topic, brokers: strings.Split(brokers, ","), group: kafkad.Unique("bench"), done: newCounter(n),
		made: time.Now()}
}

func (r *kafkaRun) saw() {
	r.once.Do(func() { r.meter = begin() })
	r.done.add()
}

func (r *kafkaRun) result(n int) sample {
	<-r.done.done
	return r.meter.stop(n)
}

// kafkaLongshore is the whole framework; with its defaults where workers is 0.
func kafkaLongshore(where string, n, workers int, do func(int)) sample {
	return kafkaConsumer(where, n, workers, consumer.OrderNone, do)
}

func kafkaConsumer(where string, n, workers int, order consumer.Order, do func(int)) sample {
	r := newKafkaRun(where, n)
	source := must(kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: r.brokers}, Group: r.group,
		Topics: []string{r.topic}}))
	c := must(consumer.New(consumer.Config{Source: source, Order: order, Pool: consumer.Pool{Min: workers, Max: workers},
		Handler: func(context.Context, *consumer.Message) error { do(0); r.saw(); return nil }}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { check(c.Run(ctx)) }()
	return r.result(n)
}

// kafkaReader is kafka-go's own, bare: one loop, and a commit each second.
func kafkaReader(where string, n int) sample {
	r := newKafkaRun(where, n)
	rd := kafka.NewReader(kafka.ReaderConfig{Brokers: r.brokers, GroupID: r.group, Topic: r.topic, StartOffset: kafka.FirstOffset})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		var latest [kafkaPartitions]kafka.Message
		last := time.Now()
		for i := 0; ; i++ {
			m, err := rd.FetchMessage(ctx)
			if ctx.Err() != nil { // all is measured; the broker goes next
				return
			}
			check(err)
			latest[m.Partition] = m
			if i%256 == 0 && time.Since(last) > time.Second {
				last = time.Now()
				for _, m := range latest {
					if m.Topic != "" {
						if err := rd.CommitMessages(ctx, m); ctx.Err() == nil {
							check(err)
						}
					}
				}
			}
			r.saw()
		}
	}()
	return r.result(n)
}

// kafkaFranz is franz-go, bare: one loop, and its own commits of what earlier polls returned.
func kafkaFranz(where string, n int) sample {
	r := newKafkaRun(where, n)
	c := must(kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go poll(ctx, c, func(*kgo.Record) { r.saw() })
	return r.result(n)
}

// poll hands out c's records until ctx ends.
func poll(ctx context.Context, c *kgo.Client, do func(*kgo.Record)) {
	for {
		fs := c.PollFetches(ctx)
		if ctx.Err() != nil { // all is measured; the broker goes next
			return
		}
		check(fs.Err())
		fs.EachRecord(do)
	}
}

// kafkaFranzByKey is how one keeps the order of keys by hand: a goroutine and a channel for each of 64 hashes. It commits what no
// goroutine has handled yet.
func kafkaFranzByKey(where string, n int) sample {
	r := newKafkaRun(where, n)
	c := must(kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second)))
	var hands [workers]chan *kgo.Record
	for i := range hands {
		hands[i] = make(chan *kgo.Record, 256)
		go func() {
			for range hands[i] {
				r.saw()
			}
		}()
	}
	seed := maphash.MakeSeed()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go poll(ctx, c, func(m *kgo.Record) { hands[maphash.Bytes(seed, m.Key)%workers] <- m })
	return r.result(n)
}

// kafkaWatermill is watermill's documented consumer: a Router with one handler; a nil return acks the message.
func kafkaWatermill(where string, n int) sample {
	r := newKafkaRun(where, n)
	cfg := wmkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub := must(wmkafka.NewSubscriber(wmkafka.SubscriberConfig{Brokers: r.brokers, Unmarshaler: wmkafka.DefaultMarshaler{},
		ConsumerGroup:         r.group,
		OverwriteSaramaConfig: cfg}, watermill.NopLogger{}))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddConsumerHandler("bench", r.topic, sub, func(*message.Message) error { r.saw(); return nil })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { check(router.Run(ctx)) }()
	return r.result(n)
}

// bare is as many goroutines that only call the handler: what sleeping handlers can reach on this machine, without a broker.
func bare(n, workers int, do func(int)) sample {
	each := max(1, n/workers)
	var wg sync.WaitGroup
	m := start()
	for range workers {
		wg.Go(func() {
			for range each {
				do(0)
			}
		})
	}
	wg.Wait()
	return m.stop(each * workers)
}
