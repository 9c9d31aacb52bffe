//go:build unix

package integration

import (
	"context"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// runLongshore is the product as a service would use it, with short times so that faults show soon.
func runLongshore(ctx context.Context, c consumerConfig, w *work) error {
	source, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{c.URL}, ReconnectWait: 50 * time.Millisecond, MaxReconnectWait: time.Second,
			PingInterval: c.Ping, DialTimeout: 2 * time.Second},
		Stream: loadStream, Consumer: c.Durable, AckWait: c.AckWait, Recreate: c.Recreate,
		CreateStream: &jetstream.StreamConfig{Subjects: []string{"load.>"}, Storage: jetstream.FileStorage},
		Heartbeat:    c.Heartbeat, Poll: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	cons, err := consumer.New(consumer.Config{
		Name: c.Durable, Source: source, Pool: consumer.Pool{Min: 1, Max: c.Workers},
		Handler: func(ctx context.Context, m *consumer.Message) error { return w.do(ctx, m.Offset, m.Value) },
		Retry:   consumer.Retry{MaxAttempts: 100, Backoff: consumer.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond}},

		DrainTimeout: c.Drain, OpenTimeout: c.Open,
		Logger:    zerolog.New(os.Stderr).Level(zerolog.InfoLevel),
		Observers: []consumer.Observer{tell},
	})
	if err != nil {
		return err
	}
	return cons.Run(ctx)
}

// tell passes on what the test waits for.
func tell(e consumer.Event) {
	said, ok := e.(consumer.SourceSaid)
	if !ok {
		return
	}
	switch said.Kind {
	case broker.Up:
		say("up")
	case broker.Gap:
		say("gap", said.N)
	}
}
