package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/panjf2000/ants/v2"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/natsd"
)

const benchStream = "BENCH"

// withNATS runs nats-server in a process of its own, with n messages of 100 bytes in a stream in memory.
func withNATS(n int, do func(url string)) error { return withStream(100)(n, do) }

// withStream is withNATS with messages of another size.
func withStream(size int) func(n int, do func(url string)) error {
	return func(n int, do func(url string)) error { return onNATS(n, size, do) }
}

func onNATS(n, size int, do func(url string)) error {
	dir, err := os.MkdirTemp("", "longshore-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := natsd.Prepare(dir)
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	defer s.Kill()
	if err := fill(s.URL(), n, size); err != nil {
		return fmt.Errorf("filling the stream: %w", err)
	}
	do(s.URL())
	return nil
}

func fill(url string, n, size int) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(max(16, min(10_000, (64<<20)/size))))
	if err != nil {
		return err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: benchStream, Subjects: []string{"bench.>"},
		Storage: jetstream.MemoryStorage})
	if err != nil {
		return err
	}
	body := make([]byte, size)
	for i := range n {
		if _, err := js.PublishAsync(fmt.Sprintf("bench.%d", i%100), body); err != nil {
			return err
		}
	}
	<-js.PublishAsyncComplete()
	i, err := js.Stream(context.Background(), benchStream)
	if err != nil {
		return err
	}
	if got := i.CachedInfo().State.Msgs; got != uint64(n) {
		return fmt.Errorf("%d of %d stored", got, n)
	}
	return nil
}

// A jetstreamRun measures from the first message to the last ack that the server has seen.
type jetstreamRun struct {
	js    jetstream.JetStream
	name  string
	done  *counter
	once  sync.Once
	meter *meter
	end   func() // what uses the consumer, before it is deleted; nil: it does not mind
}

func newRun(url string, n int) *jetstreamRun {
	nc := must(nats.Connect(url))
	return &jetstreamRun{js: must(jetstream.New(nc)), name: fmt.Sprintf("c%d", os.Getpid()), done: newCounter(n)}
}

// durable makes the consumer; the same for every system.
func (r *jetstreamRun) durable() jetstream.Consumer {
	return must(r.js.CreateConsumer(context.Background(), benchStream, jetstream.ConsumerConfig{Durable: r.name,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1,
		MaxAckPending: natsbroker.DefaultMaxAckPending}))
}

func (r *jetstreamRun) saw() {
	r.once.Do(func() { r.meter = begin() })
	r.done.add()
}

func (r *jetstreamRun) result(n int) sample {
	<-r.done.done
	c := must(r.js.Consumer(context.Background(), benchStream, r.name))
	for must(c.Info(context.Background())).NumAckPending > 0 {
		time.Sleep(time.Millisecond)
	}
	s := r.meter.stop(n)
	if r.end != nil {
		r.end()
	}
	check(r.js.DeleteConsumer(context.Background(), benchStream, r.name))
	return s
}

// natsConsume is nats.go's own: Consume with its defaults, Ack in the callback.
func natsConsume(url string, n int) sample {
	r := newRun(url, n)
	_ = must(r.durable().Consume(func(m jetstream.Msg) {
		r.saw()
		check(m.Ack())
	}))
	return r.result(n)
}

// natsAnts is Consume with a pool of goroutines, which call do.
func natsAnts(url string, n int, do func(int)) sample {
	r := newRun(url, n)
	p := must(ants.NewPool(workers))
	defer p.Release()
	_ = must(r.durable().Consume(func(m jetstream.Msg) {
		check(p.Submit(func() {
			do(0)
			r.saw()
			check(m.Ack())
		}))
	}))
	return r.result(n)
}

// longshoreConsume is the whole framework, with its defaults.
func longshoreConsume(url string, n int) sample { return longshoreStream(url, n, 0, noop) }

// longshoreStream is the same, with its defaults where workers is 0.
func longshoreStream(url string, n, workers int, do func(int)) sample {
	r := newRun(url, n)
	r.durable()
	source := must(natsbroker.NewSource(natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{url}},
		Stream: benchStream, Consumer: r.name, Bind: true}))
	c := must(consumer.New(consumer.Config{Source: source, Pool: consumer.Pool{Min: workers, Max: workers},
		Handler: func(context.Context, *consumer.Message) error { do(0); r.saw(); return nil }}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check(c.Run(ctx))
	}()
	r.end = func() { cancel(); <-ended }
	return r.result(n)
}
