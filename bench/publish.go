package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/integration/kafkad"
)

var errBad = errors.New("it failed")

// letterHeaders is how many headers a dead letter has of longshore's own; those of the anchors are as many and about as long.
const letterHeaders = 11

// A target is where a system publishes to, and when all that is measured has arrived.
type target struct {
	once  sync.Once
	meter *meter
	left  atomic.Int64
	done  chan struct{}
}

func newTarget(n int) *target {
	t := &target{done: make(chan struct{})}
	t.left.Store(int64(n))
	return t
}

func (t *target) begin() { t.once.Do(func() { t.meter = begin() }) }

func (t *target) confirmed() {
	if t.left.Add(-1) == 0 {
		close(t.done)
	}
}

func (t *target) result(n int) sample {
	<-t.done
	return t.meter.stop(n)
}

// kafkaTarget makes a topic.
func kafkaTarget(brokers []string) string {
	topic := kafkad.Unique("target")
	check(fillTopic(brokers, topic, 0, manyKeys, zeros()))
	return topic
}

func kafkaPublisher(brokers []string) broker.Publisher {
	return must(kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: kafkabroker.Connection{Brokers: brokers}}))
}

// kafkaLetters lets each message fail for good: from the first failure until all are confirmed, with the defaults.
func kafkaLetters(where string, n int) sample {
	r, t := newKafkaRun(where, n), newTarget(n)
	topic := kafkaTarget(r.brokers)
	source := must(kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: r.brokers}, Group: r.group,
		Topics: []string{r.topic}}))
	t.runs(consumer.Config{Source: source, DeadLetter: &consumer.DeadLetter{Publisher: kafkaPublisher(r.brokers), Topic: topic}})
	return t.result(n)
}

// runs runs a consumer whose messages fail for good.
func (t *target) runs(cfg consumer.Config) {
	cfg.Logger = zerolog.Nop()
	cfg.Handler = func(context.Context, *consumer.Message) error { t.begin(); return consumer.Permanent(errBad) }
	cfg.Observers = []consumer.Observer{func(e consumer.Event) {
		if _, ok := e.(consumer.DeadLettered); ok {
			t.confirmed()
		}
	}}
	c := must(consumer.New(cfg))
	go func() { check(c.Run(context.Background())) }()
}

func franzProducer(where string, opts ...kgo.Opt) (c *kgo.Client, topic string) {
	r := newKafkaRun(where, 1)
	c = must(kgo.NewClient(append(opts, kgo.SeedBrokers(r.brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))...))
	check(c.Ping(context.Background()))
	return c, kafkaTarget(r.brokers)
}

// franzLetters produces as many records with as many headers as dead letters have, from one goroutine that does not wait.
func franzLetters(where string, n int) sample {
	c, topic := franzProducer(where)
	t := newTarget(n)
	body := make([]byte, 100)
	t.begin()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%orderKeys), Value: body}
		for h := range letterHeaders {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "Longshore-Original-" + string(rune('A'+h)),
				Value: []byte("2026-01-01T00:00:00Z")})
		}
		c.Produce(context.Background(), r, func(_ *kgo.Record, err error) { check(err); t.confirmed() })
	}
	return t.result(n)
}

// kafkaPublish is the publish handler with that many workers.
func kafkaPublish(where string, n, workers int) sample {
	r, t := newKafkaRun(where, n), newTarget(n)
	h := must(handlers.Publish(kafkaPublisher(r.brokers), []string{r.topic}, handlers.PublishConfig{To: kafkaTarget(r.brokers)}))
	source := must(kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: r.brokers}, Group: r.group,
		Topics: []string{r.topic}}))
	c := must(consumer.New(consumer.Config{Source: source, Pool: consumer.Pool{Min: workers, Max: workers},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			t.begin()
			err := h(ctx, m)
			if err == nil {
				t.confirmed()
			}
			return err
		}}))
	go func() { check(c.Run(context.Background())) }()
	return t.result(n)
}

// franzSync is ProduceSync of one record each, by that many goroutines.
func franzSync(where string, n, workers int) sample {
	c, topic := franzProducer(where, kgo.ProducerLinger(0))
	t := newTarget(n)
	body := make([]byte, 100)
	var next atomic.Int64
	t.begin()
	for range workers {
		go func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%orderKeys), Value: body}
				check(c.ProduceSync(context.Background(), r).FirstErr())
				t.confirmed()
			}
		}()
	}
	return t.result(n)
}

// franzHandOn takes records from a topic, and hands them by a channel to that many goroutines, each of which sends one on by
// ProduceSync, under an identity in a header. It commits what nobody has sent: the publish handler's work without its promises.
func franzHandOn(where string, n, workers int) sample {
	r := newKafkaRun(where, n)
	from, t := must(r.franz()), newTarget(n)
	to, topic := franzProducer(where, kgo.ProducerLinger(0))
	records := make(chan *kgo.Record, workers)
	for range workers {
		go func() {
			for m := range records {
				id := fmt.Appendf(nil, "%s/%d/%d/%d", m.Topic, m.Partition, m.Offset, m.Timestamp.UnixNano())
				check(to.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Key: m.Key, Value: m.Value,
					Headers: append(m.Headers, kgo.RecordHeader{Key: "id", Value: id})}).FirstErr())
				t.confirmed()
			}
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go poll(ctx, from, func(m *kgo.Record) { t.begin(); records <- m })
	return t.result(n)
}

// natsTarget makes a stream in memory, and tells one of its subjects.
func natsTarget(js jetstream.JetStream) string {
	name := fmt.Sprintf("T%d", time.Now().UnixNano())
	_ = must(js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"},
		Storage: jetstream.MemoryStorage, Duplicates: time.Second}))
	return name + ".letters"
}

// natsLetters is kafkaLetters on JetStream.
func natsLetters(url string, n int) sample {
	r, t := newRun(url, n), newTarget(n)
	r.durable()
	subject := natsTarget(r.js)
	source := must(natsbroker.NewSource(natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{url}},
		Stream: benchStream, Consumer: r.name, Bind: true}))
	p := must(natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: natsbroker.Connection{URLs: []string{url}}}))
	t.runs(consumer.Config{Source: source, DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: subject}})
	return t.result(n)
}

// natsAsync is PublishAsync with as many headers, from one goroutine.
func natsAsync(url string, n int) sample {
	r, t := newRun(url, n), newTarget(n)
	subject := natsTarget(r.js)
	body := make([]byte, 100)
	t.begin()
	for i := range n {
		m := &nats.Msg{Subject: subject, Data: body, Header: make(nats.Header, letterHeaders+1)}
		for h := range letterHeaders {
			m.Header["Longshore-Original-"+string(rune('A'+h))] = []string{"2026-01-01T00:00:00Z"}
		}
		_ = must(r.js.PublishMsgAsync(m, jetstream.WithMsgID(fmt.Sprintf("letter/%d/%d", i, time.Now().UnixNano()))))
	}
	<-r.js.PublishAsyncComplete()
	return t.meter.stop(n)
}

func letterFigures(name string) func(m map[string]sample) []figure {
	return func(m map[string]sample) []figure {
		l, a := m["longshore"], m["async"]
		return []figure{
			atLeast(name+"_rate_vs_async", a.WallNS/l.WallNS, 0.5),
			show(name+"_cpu_vs_async", l.CPUNS/a.CPUNS),
			show(name+"_per_second_longshore", 1e9/l.WallNS), show(name+"_per_second_async", 1e9/a.WallNS),
			show(name+"_cpu_us_longshore", l.CPUNS/1e3), show(name+"_cpu_us_async", a.CPUNS/1e3), show(name+"_allocs", l.Allocs),
		}
	}
}

func kafkaPublishFigures(m map[string]sample) (fs []figure) {
	least := map[string]float64{"64": 1, "1000": 0.8}
	for _, w := range []string{"64", "1000"} {
		l, s, f := m["longshore_"+w], m["sync_"+w], m["franz_"+w]
		fs = append(fs, atLeast("kafka_publish_"+w+"_rate_vs_produce_sync", s.WallNS/l.WallNS, least[w]),
			show("kafka_publish_"+w+"_cpu_vs_produce_sync", l.CPUNS/s.CPUNS),
			show("kafka_publish_"+w+"_rate_vs_franz", f.WallNS/l.WallNS), show("kafka_publish_"+w+"_cpu_vs_franz", l.CPUNS/f.CPUNS),
			show("kafka_publish_"+w+"_per_second", 1e9/l.WallNS), show("kafka_publish_"+w+"_cpu_us", l.CPUNS/1e3),
			show("produce_sync_"+w+"_per_second", 1e9/s.WallNS), show("produce_sync_"+w+"_cpu_us", s.CPUNS/1e3))
	}
	return fs
}
