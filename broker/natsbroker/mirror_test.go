package natsbroker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// A mirror has its origin's messages with their subjects, sequences and times. What a service makes of a message there, and
// another one here, with a durable of the same name, are two things: none is dropped as a repeat of the other.
func TestMirrorBesideItsOrigin(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	must(a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "M", Mirror: &jetstream.StreamSource{Name: "S"}}))
	must(a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out"}}))
	must(a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead"}}))
	a.publish(1, 20)
	p := must(natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: config(ts.url()).Connection}))
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	for _, stream := range []string{"S", "M"} {
		cfg := config(ts.url())
		cfg.Stream = stream
		c := must(consumer.New(consumer.Config{
			Source: must(natsbroker.NewSource(cfg)), Output: p, Logger: zerolog.Nop(),
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if m.Offset%2 == 0 {
					return consumer.Permanent(errors.New("bad for " + stream))
				}
				return consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: []byte(stream)})
			}}))
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- c.Run(ctx) }()
		eventually(t, "all are acked", func() bool {
			d, err := a.js.Consumer(t.Context(), stream, "c")
			return err == nil && d.CachedInfo().AckFloor.Stream == 20
		})
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
	for _, stream := range []string{"OUT", "DEAD"} {
		if n := must(a.js.Stream(t.Context(), stream)).CachedInfo().State.Msgs; n != 20 {
			t.Errorf("%s has %d messages, want 10 of each", stream, n)
		}
	}
}
