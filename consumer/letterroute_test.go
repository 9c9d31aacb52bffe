package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// The first route that takes a letter has it; what none takes goes to Topic.
func TestChoiceOfLetterRoute(t *testing.T) {
	d := &consumer.DeadLetter{Topic: "rest", Routes: []consumer.LetterRoute{
		{Class: "decode", Handler: "webhook", Topic: "both"},
		{Class: "decode", Topic: "class"},
		{Handler: "webhook", Topic: "handler"},
		{Class: "panic", Handler: "exec", Topic: "rest"},
		{Class: "panic", Topic: "panics"},
	}}
	for _, c := range []struct{ class, handler, want string }{
		{"decode", "webhook", "both"}, {"decode", "exec", "class"}, {"decode", "", "class"},
		{"error", "webhook", "handler"}, {"panic", "webhook", "handler"},
		{"panic", "exec", "rest"}, {"panic", "log", "panics"}, {"panic", "", "panics"},
		{"error", "exec", "rest"}, {"error", "", "rest"}, {"oversize", "web", "rest"},
	} {
		if got := d.TargetOf(c.class, c.handler); got != c.want {
			t.Errorf("class %q of handler %q goes to %s, want %s", c.class, c.handler, got, c.want)
		}
	}
}

// A route is reached where the routes before it leave anything that it would take.
func TestReachedLetterRoutes(t *testing.T) {
	class := func(c string) consumer.LetterRoute { return consumer.LetterRoute{Class: c} }
	handler := func(h string) consumer.LetterRoute { return consumer.LetterRoute{Handler: h} }
	both := func(c, h string) consumer.LetterRoute { return consumer.LetterRoute{Class: c, Handler: h} }
	var each []consumer.LetterRoute
	for _, c := range consumer.FailureClasses() {
		each = append(each, class(c))
	}
	for name, c := range map[string]struct {
		r      consumer.LetterRoute
		before []consumer.LetterRoute
		want   bool
	}{
		"first":                     {class("decode"), nil, true},
		"the same":                  {class("decode"), []consumer.LetterRoute{class("decode")}, false},
		"another class":             {class("decode"), []consumer.LetterRoute{class("panic")}, true},
		"a part of its class":       {class("decode"), []consumer.LetterRoute{both("decode", "a")}, true},
		"its class, whoever":        {both("decode", "a"), []consumer.LetterRoute{class("decode")}, false},
		"its handler, whatever":     {both("decode", "a"), []consumer.LetterRoute{handler("a")}, false},
		"another handler":           {handler("a"), []consumer.LetterRoute{handler("b"), both("decode", "a")}, true},
		"all classes, one by one":   {handler("a"), each, false},
		"all classes but the first": {handler("a"), each[1:], true},
	} {
		if got := c.r.Reached(c.before); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// deaf is a publisher one of whose topics takes nothing: its publishes end with their time.
type deaf struct {
	publisher
	topic string
}

func (p *deaf) Publish(ctx context.Context, ms []broker.Outgoing) error {
	p.mu.Lock()
	down := p.topic
	p.mu.Unlock()
	if ms[0].Topic == down {
		<-ctx.Done()
		return ctx.Err()
	}
	return p.publisher.Publish(ctx, ms)
}

// Of two topics of dead letters one is down, and does not even answer: its letters stay unacked, those for the other go on as
// if nothing was, and nothing is lost when it is back.
func TestOneOfTwoDeadLetterTopicsIsDown(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages = 100
		produce(t, b, messages)
		p := &deaf{publisher: publisher{Publisher: b.Publisher()}, topic: "unread"}
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead",
				Routes: []consumer.LetterRoute{{Class: "decode", Topic: "unread"}}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Value[len(m.Value)-1]%2 == 1 {
					return consumer.Undecodable(errors.New("odd"))
				}
				return consumer.Permanent(errors.New("even"))
			}})
		time.Sleep(time.Second) // far below the 10 s that a publish is waited for
		if n := len(b.Messages("dead")); n != messages/2 {
			t.Errorf("%d dead letters while the other topic is down, want %d", n, messages/2)
		}
		if n := len(b.Messages("unread")); n != 0 {
			t.Errorf("%d dead letters where the topic is down", n)
		}
		wantUnsettled(t, b, messages/2)
		p.mu.Lock()
		p.topic = ""
		p.mu.Unlock()
		time.Sleep(5 * time.Minute)
		var odd []string
		for _, m := range b.Messages("unread") {
			odd = append(odd, string(m.Value))
		}
		slices.Sort(odd)
		if odd = slices.Compact(odd); len(odd) != messages/2 || len(b.Messages("dead")) != messages/2 {
			t.Errorf("%d of %d dead letters when it is back: %q", len(odd), messages/2, odd)
		}
		wantUnsettled(t, b, 0)
		topics := map[string]int{}
		for _, e := range eventsOf[consumer.DeadLettered](r.journal) {
			topics[e.Topic]++
		}
		if topics["dead"] != messages/2 || topics["unread"] != messages/2 {
			t.Errorf("told of %v", topics)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The handler is known of a message whose handler panicked, too, for the message alone says it.
func TestLettersOfAHandlerGoToItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		produce(t, b, 4)
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 1},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead",
				Routes:    []consumer.LetterRoute{{Handler: "three", Topic: "threes"}},
				HandlerOf: func(m *consumer.Message) string { return map[string]string{"3": "three"}[string(m.Value)] }},
			Handler: func(context.Context, *consumer.Message) error { panic("no") },
		})
		time.Sleep(time.Minute)
		if dead, threes := b.Messages("dead"), b.Messages("threes"); len(dead) != 3 || len(threes) != 1 ||
			string(threes[0].Value) != "3" {
			t.Errorf("%d dead letters, %d of the handler", len(dead), len(threes))
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// What is wrong with routes is named, each with its field.
func TestLetterRoutesAreChecked(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
	for want, routes := range map[string][]consumer.LetterRoute{
		"DeadLetter.Routes[0].Topic is required":                                             {{Class: "decode"}},
		`DeadLetter.Routes[0].Topic is "in", which the consumer itself reads`:                {{Class: "decode", Topic: "in"}},
		"DeadLetter.Routes[0].Topic is refused: broker: the destination is the broker's own": {{Class: "decode", Topic: "$JS.API.X"}},
		`DeadLetter.Routes[0].Class is "decoding", want one of [error permanent`:             {{Class: "decoding", Topic: "x"}},
		"DeadLetter.Routes[0] has neither a class nor a handler":                             {{Topic: "x"}},
		"DeadLetter.Routes[1] is never taken: the routes before it take all that it would": {{Class: "decode", Topic: "x"},
			{Class: "decode", Topic: "y"}},
		`DeadLetter.Routes[0].Handler is "web", and DeadLetter.HandlerOf is not set`: {{Handler: "web", Topic: "x"}},
	} {
		_, err := consumer.New(consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: func(context.Context,
				*consumer.Message) error {
				return nil
			},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead", Routes: routes},
		})
		if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", routes, err, want)
		}
	}
}
