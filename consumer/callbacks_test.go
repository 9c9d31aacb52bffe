package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// faulty are callbacks that panic, each in a consumer of its own, and what Panicked calls them; "": the message fails.
var faulty = map[string]func(*consumer.Config, broker.Publisher) (in string){
	"Priority.Of": func(c *consumer.Config, _ broker.Publisher) string {
		c.Priority = &consumer.Priority{Levels: []int{1, 1}, Of: func(m *consumer.Message) int {
			if m.Offset%2 == 0 {
				panic("no such level")
			}
			return 0
		}}
		return "Priority.Of"
	},
	"DeadLetter.HandlerOf": func(c *consumer.Config, _ broker.Publisher) string {
		c.DeadLetter.HandlerOf = func(*consumer.Message) string { panic("no such handler") }
		return "DeadLetter.HandlerOf"
	},
	"Around": func(c *consumer.Config, _ broker.Publisher) string {
		var once sync.Map
		c.Around = func(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
			if _, again := once.LoadOrStore(ms[0].Offset, true); !again {
				panic("no span")
			}
			return ctx, nil
		}
		return ""
	},
	"End": func(c *consumer.Config, _ broker.Publisher) string {
		c.Around = func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) {
			return ctx, func([]consumer.Outcome) { panic("no span") }
		}
		return "End"
	},
	"Defer": func(c *consumer.Config, _ broker.Publisher) string {
		handled, put := c.Handler, sync.Map{}
		c.Handler = func(ctx context.Context, m *consumer.Message) error {
			if _, again := put.LoadOrStore(m.Offset, true); !again {
				return consumer.Defer(time.Second, func(func() bool) { panic("no line") })
			}
			return handled(ctx, m)
		}
		return "Defer"
	},
	"DeadLetter.Publisher": func(c *consumer.Config, p broker.Publisher) string {
		var n atomic.Int32
		c.DeadLetter.Publisher = recorder{func(ms []broker.Outgoing) error {
			if n.Add(1) == 1 {
				panic("no connection")
			}
			return p.Publish(context.Background(), ms)
		}}
		return ""
	},
	"DeadLetter.Publisher, of destinations": func(c *consumer.Config, p broker.Publisher) string {
		c.DeadLetter.Publisher = lostDestinations{p}
		return ""
	},
	"Output": func(c *consumer.Config, p broker.Publisher) string {
		handled, n := c.Handler, atomic.Int32{}
		c.Output = recorder{func(ms []broker.Outgoing) error {
			if n.Add(1) == 1 {
				panic("no connection")
			}
			return p.Publish(context.Background(), ms)
		}}
		c.Handler = func(ctx context.Context, m *consumer.Message) error {
			return errors.Join(handled(ctx, m), consumer.Emit(ctx, broker.Outgoing{Topic: "out"}))
		}
		return ""
	},
}

// lostDestinations cannot look for one.
type lostDestinations struct{ broker.Publisher }

func (lostDestinations) Find(context.Context, string) error   { panic("no connection") }
func (lostDestinations) Create(context.Context, string) error { panic("no connection") }

// A callback that panics ends no process, and takes no message with it: each is handled, or a dead letter, and none is in
// nobody's hands. It is told of, with its stack.
func TestCallbacksThatPanic(t *testing.T) {
	for name, set := range faulty {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
			t.Run(name+", order "+string(order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { callbackPanics(t, order, set) })
			})
		}
	}
}

func callbackPanics(t *testing.T, order consumer.Order, set func(*consumer.Config, broker.Publisher) string) {
	const messages = 30
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}})
	c := consumer.Config{
		Pool: consumer.Pool{Min: 2, Max: 2}, Order: order,
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Offset%3 == 0 {
				return consumer.Permanent(errors.New("never"))
			}
			return nil
		}}
	in := set(&c, b.Publisher())
	var told atomic.Int32
	c.Observers = []consumer.Observer{func(e consumer.Event) {
		if p, ok := e.(consumer.Panicked); ok && p.In == in && strings.Contains(string(p.Err.Stack), "callbacks_test.go") {
			told.Add(1)
		}
	}}
	for i := range byte(messages) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{i % 5}, Value: []byte{i}}); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, b, c)
	time.Sleep(5 * time.Minute)
	if s := r.Stats(); s.InFlight != 0 || s.Handled+s.DeadLettered != messages {
		t.Errorf("of %d messages %d were handled, and %d dead-lettered; %d are in nobody's hands", messages, s.Handled,
			s.DeadLettered, s.InFlight)
	}
	if in != "" && told.Load() == 0 {
		t.Errorf("nobody was told of the panic in %s", in)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	wantUnsettled(t, b, 0)
}
