package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// An observer that panics takes no message with it: what it was told of becomes what was decided.
func TestObserverThatPanics(t *testing.T) {
	for _, of := range []consumer.Event{consumer.Failed{}, consumer.Handled{}, consumer.Skipped{}, consumer.DeadLettered{},
		consumer.StateChanged{}, consumer.SourceEvent{}} {
		t.Run(of.Name(), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) { observerPanics(t, b, of.Name()) })
		})
	}
}

func observerPanics(t *testing.T, b *membroker.Broker, at string) {
	const messages = 30
	produce(t, b, messages)
	r := start(t, b, consumer.Config{
		Pool:       consumer.Pool{Min: 2, Max: 2},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Observers: []consumer.Observer{func(e consumer.Event) {
			if e.Name() == at {
				panic("an observer")
			}
		}},
		Handler: func(_ context.Context, m *consumer.Message) error {
			switch {
			case m.Offset%3 == 0 && m.Runs == 0:
				return errors.New("the first time")
			case m.Offset%3 == 1:
				return consumer.Skip("of no interest")
			case m.Offset%5 == 0:
				return consumer.Permanent(errors.New("never"))
			}
			return nil
		}})
	time.Sleep(time.Minute)
	if s := r.Stats(); s.InFlight != 0 || s.Handled+s.Skipped+s.DeadLettered != messages {
		t.Errorf("of %d messages %d were handled, %d skipped and %d dead-lettered; %d are in nobody's hands", messages, s.Handled,
			s.Skipped, s.DeadLettered, s.InFlight)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	wantUnsettled(t, b, 0)
}

// Of several sources an event says which it is of.
func TestSourceEventsSayWhich(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "b": 1}})
		var seen sequence
		of := func(topic string) consumer.Input {
			return consumer.Input{Source: b.Source(membroker.SourceConfig{Group: topic, Topics: []string{topic}})}
		}
		r := start(t, b, consumer.Config{Sources: []consumer.Input{of("in"), of("b")}, Handler: handleAll,
			Observers: []consumer.Observer{func(e consumer.Event) {
				if e, ok := e.(consumer.SourceEvent); ok && e.Kind == broker.Assigned {
					seen.add(fmt.Sprintf("%d %s", e.Input, e.Claim.Topic))
				}
			}}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(seen.all); !slices.Equal(seen.all, []string{"0 in", "1 b"}) {
			t.Errorf("assigned: %q", seen.all)
		}
	})
}
