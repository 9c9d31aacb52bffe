package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// Observers are told of the requests to the broker.
func TestOperated(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		r := start(t, b, consumer.Config{Handler: func(context.Context, *consumer.Message) error { return nil }})
		for range 10 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		r.stop()
		<-r.done
		count := map[broker.OperationKind]int{}
		for _, e := range eventsOf[consumer.Operated](r.journal) {
			if e.Err != nil || e.Took < 0 || e.Retries {
				t.Errorf("told %+v", e)
			}
			count[e.Kind]++
		}
		if count[broker.Fetch] == 0 || count[broker.Settle] < 10 {
			t.Errorf("told %v, want fetches, and a settle for each of 10 messages that came alone", count)
		}
	})
}

// opened is a source that keeps the options it was opened with.
type opened struct {
	broker.Source
	options broker.Options
}

func (s *opened) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.options = o
	return s.Source.Open(ctx, o)
}

// Where nobody observes, no source measures: a log is no observer of requests.
func TestNothingIsMeasuredForNobody(t *testing.T) {
	for name, observers := range map[string][]consumer.Observer{"nobody": nil, "somebody": {func(consumer.Event) {}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				s := &opened{Source: b.Source(membroker.SourceConfig{})}
				c, err := consumer.New(consumer.Config{Source: s, Observers: observers,
					Logger:  zerolog.New(t.Output()).Level(zerolog.InfoLevel),
					Handler: func(context.Context, *consumer.Message) error { return nil }})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				synctest.Wait()
				stop()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if measures := s.options.Operated != nil; measures != (observers != nil) {
					t.Errorf("Operated is set: %v", measures)
				}
			})
		})
	}
}
