//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// runByHand consumes as one would without a framework: nats.go's Consume, a channel, a pool of goroutines.
func runByHand(ctx context.Context, c consumerConfig, w *work) error {
	nc, err := nats.Connect(c.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cons, err := js.CreateOrUpdateConsumer(ctx, loadStream, jetstream.ConsumerConfig{Durable: c.Group,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: c.Lease, MaxDeliver: -1})
	if err != nil {
		return err
	}
	queue := make(chan jetstream.Msg, c.Workers)
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for m := range queue {
				handleByHand(c, w, m)
			}
		})
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		if c.Discipline == ackBefore {
			_ = m.Ack()
		}
		queue <- m
	})
	if err != nil {
		return err
	}
	say("up")
	<-ctx.Done()
	cc.Drain()
	<-cc.Closed()
	close(queue)
	workers.Wait()
	return nc.FlushTimeout(5 * time.Second)
}

func handleByHand(c consumerConfig, w *work, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err == nil {
		err = w.do(context.Background(), int64(meta.Sequence.Stream), m.Data())
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "handler:", err)
	case c.Discipline == ackAfter:
		if err := m.Ack(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			fmt.Fprintln(os.Stderr, "ack:", err)
		}
	}
}
