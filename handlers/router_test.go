package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// named returns routes whose handlers write down their number.
func named(hit *string, routes ...handlers.Route) []handlers.Route {
	for i := range routes {
		routes[i].Handler = func(context.Context, *consumer.Message) error { *hit = fmt.Sprint(i); return nil }
	}
	return routes
}

// withHeaders gives m headers, by way of a broker.
func withHeaders(t testing.TB, topic string, hs ...broker.Header) *consumer.Message {
	t.Helper()
	b := membroker.New(membroker.Config{Topics: map[string]int{topic: 1}})
	if err := b.Produce(broker.Outgoing{Topic: topic, Headers: hs}); err != nil {
		t.Fatal(err)
	}
	return &b.Messages(topic)[0]
}

func TestRouter(t *testing.T) {
	var hit string
	r, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteSkip, Routes: named(&hit,
		handlers.Route{Match: "orders.eu.new"},                                              // 0
		handlers.Route{Match: "orders.*.new", Headers: map[string]string{"ce-type": "big"}}, // 1
		handlers.Route{Match: "orders.*.new"},                                               // 2
		handlers.Route{Match: "orders.>"},                                                   // 3
		handlers.Route{Headers: map[string]string{"ce-type": "ping", "v": "2"}},             // 4
		handlers.Route{Match: "*"},                                                          // 5
		handlers.Route{Match: "a.*.c.>"},                                                    // 6
	)})
	if err != nil {
		t.Fatal(err)
	}
	big := broker.Header{Key: "ce-type", Value: []byte("big")}
	ping := broker.Header{Key: "ce-type", Value: []byte("ping")}
	for _, c := range []struct {
		topic   string
		headers []broker.Header
		want    string
	}{
		{"orders.eu.new", nil, "0"},
		{"orders.eu.new", []broker.Header{big}, "0"},
		{"orders.us.new", []broker.Header{big}, "1"},
		{"orders.us.new", []broker.Header{big, ping}, "2"}, // the last value of a repeated header counts
		{"orders.us.new", nil, "2"},
		{"orders.us.new.x", nil, "3"},
		{"orders.us", nil, "3"},
		{"orders", nil, "5"}, // "orders.>" wants one more token
		{"ordersx.us", nil, ""},
		{"x.y", []broker.Header{ping, {Key: "v", Value: []byte("2")}}, "4"},
		{"x.y", []broker.Header{ping}, ""},
		{"x.y", []broker.Header{ping, {Key: "V", Value: []byte("2")}}, ""},
		{"a.b.c", nil, ""},
		{"a.b.c.d.e", nil, "6"},
		{"a.b.x.d", nil, ""},
		{"orders_eu-new", nil, "5"}, // a Kafka topic of one token
	} {
		for range 2 { // worked out, then remembered
			hit = ""
			err := r.Handle(t.Context(), withHeaders(t, c.topic, c.headers...))
			if hit != c.want || consumer.IsSkip(err) != (c.want == "") {
				t.Errorf("%s %v: route %q, want %q; error %v", c.topic, c.headers, hit, c.want, err)
			}
		}
	}
}

// The type of an event is that of CloudEvents, as Kafka, NATS and HTTP write it.
func TestRouterByType(t *testing.T) {
	var hit string
	r, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteSkip, Routes: named(&hit,
		handlers.Route{Type: "shop.order.created.v1"},                                       // 0
		handlers.Route{Type: "shop.order.*.v1", Headers: map[string]string{"region": "eu"}}, // 1
		handlers.Route{Match: "orders", Type: "shop.order.>"},                               // 2
		handlers.Route{Match: "orders"},                                                     // 3
		handlers.Route{Type: ">"},                                                           // 4: any that has one
	)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		topic, header, value, want string
	}{
		{"orders", "ce_type", "shop.order.created.v1", "0"},
		{"any", "ce-type", "shop.order.created.v1", "0"},
		{"any", "Ce-Type", "shop.order.created.v1", "0"},
		{"any", "ce_typ", "shop.order.created.v1", ""},
		{"any", "type", "shop.order.created.v1", ""},
		{"orders", "ce_type", "shop.order.paid.v1", "2"},
		{"orders", "ce_type", "shop.order", "3"},
		{"orders", "ce_type", "Shop.order.x", "3"},
		{"orders", "x", "", "3"},
		{"orders", "ce_type", "", "3"},
		{"any", "ce_type", "invoice", "4"},
		{"any", "ce_type", "", ""},
	} {
		for range 2 {
			hit = ""
			if err := r.Handle(t.Context(), withHeaders(t, c.topic, broker.Header{Key: c.header, Value: []byte(c.value)})); err != nil &&
				!consumer.IsSkip(err) {
				t.Fatal(err)
			}
			if hit != c.want {
				t.Errorf("%s %s=%q: route %q, want %q", c.topic, c.header, c.value, hit, c.want)
			}
		}
	}
	two := withHeaders(t, "any", broker.Header{Key: "region", Value: []byte("eu")},
		broker.Header{Key: "ce_type", Value: []byte("shop.order.paid.v1")})
	if err := r.Handle(t.Context(), two); err != nil || hit != "1" {
		t.Errorf("type and header: route %q, error %v", hit, err)
	}
}

func TestRouterRefuses(t *testing.T) {
	h := func(context.Context, *consumer.Message) error { return nil }
	for name, c := range map[string]struct {
		cfg  handlers.RouterConfig
		want []string
	}{
		"no routes": {handlers.RouterConfig{}, []string{"routes: is empty"}},
		"all at once": {handlers.RouterConfig{NoRoute: "drop", Routes: []handlers.Route{
			{Match: "a..b", Handler: h}, {Match: "a.>.b", Handler: h}, {Match: "a*", Handler: h}, {Match: "a b",
				Handler: h}, {Match: "ok"},
			{Match: "h", Handler: h, Headers: map[string]string{"": "x"}}}},
			[]string{`routes[0].match: "a..b" has an empty token`, `routes[1].match: "a.>.b" has ">" before its end`, "routes[2].match",
				"wildcard inside a token",
				"routes[3].match", "has a blank", "routes[4].handler: is required", "routes[5].headers: has an empty name",
				`no_route: is "drop"`}},
		"behind the default": {handlers.RouterConfig{Routes: []handlers.Route{{Handler: h}, {Match: "a", Handler: h}}},
			[]string{"routes[1]: is never reached: routes[0] comes first"}},
		"behind a wildcard": {handlers.RouterConfig{Routes: []handlers.Route{{Match: "a.>", Handler: h}, {Match: "b", Handler: h},
			{Match: "a.*.c", Handler: h}}},
			[]string{"routes[2]: is never reached: routes[0]"}},
		"behind fewer headers": {handlers.RouterConfig{Routes: []handlers.Route{{Match: "a", Headers: map[string]string{"x": "1"},
			Handler: h},
			{Match: "a", Headers: map[string]string{"x": "1", "y": "2"}, Handler: h}}}, []string{"routes[1]: is never reached"}},
		"types": {handlers.RouterConfig{Routes: []handlers.Route{{Match: "a..b", Type: "x.>.y", Handler: h},
			{Type: "a b", Handler: h}}},
			[]string{`routes[0].match: "a..b" has an empty token`, `routes[0].type: "x.>.y" has ">" before its end`,
				`routes[1].type: "a b" has a blank`}},
		"behind a type": {handlers.RouterConfig{Routes: []handlers.Route{{Type: "a.*", Handler: h},
			{Match: "x", Type: "a.b", Handler: h}}},
			[]string{"routes[1]: is never reached: routes[0]"}},
		"stop without Stop": {handlers.RouterConfig{NoRoute: handlers.NoRouteStop, Routes: []handlers.Route{{Handler: h}}},
			[]string{"no_route", "needs Stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := handlers.NewRouter(c.cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
		})
	}
}

// A message without a route is dead-lettered at once, skipped, or stops the consumer, which loses nothing.
func TestNoRoute(t *testing.T) {
	routes := []handlers.Route{{Match: "other", Handler: func(context.Context, *consumer.Message) error { return nil }}}
	t.Run("dead_letter", func(t *testing.T) {
		r, err := handlers.NewRouter(handlers.RouterConfig{Routes: routes})
		if err != nil {
			t.Fatal(err)
		}
		o := handled(t, r.Handle, broker.Outgoing{Topic: "in"})
		if !o.permanent() || !errors.Is(o.failed.Err, handlers.ErrNoRoute) || !strings.Contains(o.failed.Err.Error(), `"in"`) {
			t.Errorf("outcome %+v", o.failed)
		}
	})
	t.Run("skip", func(t *testing.T) {
		r, err := handlers.NewRouter(handlers.RouterConfig{Routes: routes, NoRoute: handlers.NoRouteSkip})
		if err != nil {
			t.Fatal(err)
		}
		if o := handled(t, r.Handle, broker.Outgoing{Topic: "in"}); o.skipped != "no route" {
			t.Errorf("outcome %+v", o)
		}
	})
	t.Run("stop", noRouteStops)
}

func noRouteStops(t *testing.T) {
	// The last: the consumer's timeout is over long before its drain is.
	for _, drain := range []time.Duration{-1, 2 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) { noRouteStopsWithin(t, drain) })
	}
}

func noRouteStopsWithin(t *testing.T, drain time.Duration) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
	for range 10 {
		if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	r, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteStop, Stop: stop, Routes: []handlers.Route{
		{Match: "other", Handler: func(context.Context, *consumer.Message) error { return nil }}}})
	if err != nil {
		t.Fatal(err)
	}
	letters := b.Publisher()
	defer letters.Close(context.Background())
	c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: r.Handle,
		Retry: consumer.Retry{MaxAttempts: 1}, DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "dead"},
		Timeout: 5 * time.Second, DrainTimeout: drain})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, handlers.ErrNoRoute) {
		t.Errorf("stopped by %v", cause)
	}
	if n, dead := b.Unsettled("group"), len(b.Messages("dead")); n != 10 || dead != 0 {
		t.Errorf("drain %v: %d unsettled, %d dead letters; want 10 and 0", drain, n, dead)
	}
}

// A message's handler is named without running it.
func TestNameOfAHandler(t *testing.T) {
	never := func(context.Context, *consumer.Message) error { t.Error("it was run"); return nil }
	r, err := handlers.NewRouter(handlers.RouterConfig{Routes: []handlers.Route{
		{Match: "orders.*", Headers: map[string]string{"kind": "test"}, Name: "log", Handler: never},
		{Match: "orders.*", Name: "webhook", Handler: never},
		{Match: "refunds", Handler: never},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *consumer.Message
		want string
	}{
		{&consumer.Message{Topic: "orders.eu"}, "webhook"},
		{&consumer.Message{Topic: "orders.eu", Headers: broker.NewHeaders(broker.Header{Key: "kind", Value: []byte("test")})}, "log"},
		{&consumer.Message{Topic: "refunds"}, ""}, {&consumer.Message{Topic: "other"}, ""},
	} {
		if got := r.NameOf(c.m); got != c.want {
			t.Errorf("of %s: %q, want %q", c.m.Topic, got, c.want)
		}
	}
}

// reference is the plainest way to say what a pattern matches.
func reference(pattern, topic []string) bool {
	switch {
	case len(pattern) == 0:
		return len(topic) == 0
	case len(topic) == 0:
		return false
	case pattern[0] == ">":
		return true
	}
	return (pattern[0] == "*" || pattern[0] == topic[0]) && reference(pattern[1:], topic[1:])
}

func FuzzMatch(f *testing.F) {
	for _, p := range []string{"a", "*", ">", "a.*", "a.>", "*.b.>", "a.b.c"} {
		for _, topic := range []string{"a", "a.b", "a.b.c", ".", "a..b", "a.", "b.b.b.b"} {
			f.Add(p, "*.b", topic)
		}
	}
	f.Fuzz(func(t *testing.T, p, q, topic string) {
		var hit string
		one, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteSkip,
			Routes: named(&hit, handlers.Route{Match: p})})
		if err != nil || p == "" {
			return
		}
		m := &consumer.Message{Topic: topic}
		for range 2 {
			hit = ""
			_ = one.Handle(t.Context(), m)
			if want := reference(strings.Split(p, "."), strings.Split(topic, ".")); (hit == "0") != want {
				t.Fatalf("pattern %q, topic %q: matched %v, want %v", p, topic, hit == "0", want)
			}
		}
		// A route that is refused as never reached must never have been the first to match.
		_, err = handlers.NewRouter(handlers.RouterConfig{Routes: named(&hit, handlers.Route{Match: p}, handlers.Route{Match: q})})
		if err != nil && strings.Contains(err.Error(), "never reached") {
			if reference(strings.Split(q, "."), strings.Split(topic, ".")) &&
				!reference(strings.Split(p, "."), strings.Split(topic, ".")) {
				t.Fatalf("%q is called covered by %q, which does not match %q", q, p, topic)
			}
		}
	})
}

// More topics than are remembered, by many goroutines: the same routes all the same.
func TestRouterManyTopics(t *testing.T) {
	r, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteSkip, Routes: []handlers.Route{
		{Match: "even.*", Handler: func(_ context.Context, m *consumer.Message) error {
			if !strings.HasPrefix(m.Topic, "even.") {
				t.Errorf("%s came by the route of even.*", m.Topic)
			}
			return nil
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				kind := []string{"even", "odd"}[i%2]
				err := r.Handle(t.Context(), &consumer.Message{Topic: fmt.Sprintf("%s.%d", kind, i%5000)})
				if consumer.IsSkip(err) != (kind == "odd") {
					t.Errorf("%s.%d: %v", kind, i%5000, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRouterDoesNotAllocate(t *testing.T) {
	r, m := routerOf(t, 32)
	var hit string
	byType, err := handlers.NewRouter(handlers.RouterConfig{Routes: named(&hit, handlers.Route{Type: "a.b"},
		handlers.Route{Type: "shop.order.*"})})
	if err != nil {
		t.Fatal(err)
	}
	event := withHeaders(t, "in", broker.Header{Key: "ce_type", Value: []byte("shop.order.created")})
	_ = r.Handle(t.Context(), m)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _ = r.Handle(ctx, m) }); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = byType.Handle(ctx, event) }); n != 0 {
		t.Errorf("%v allocations per message by type", n)
	}
}

func routerOf(t testing.TB, routes int) (*handlers.Router, *consumer.Message) {
	t.Helper()
	var c handlers.RouterConfig
	for i := range routes {
		c.Routes = append(c.Routes, handlers.Route{Match: fmt.Sprintf("orders.*.region%d.>", i),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
	}
	r, err := handlers.NewRouter(c)
	if err != nil {
		t.Fatal(err)
	}
	return r, &consumer.Message{Topic: fmt.Sprintf("orders.new.region%d.shop.7", routes-1)}
}

func BenchmarkRouter(b *testing.B) {
	for _, n := range []int{1, 4, 32} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			r, m := routerOf(b, n)
			b.ReportAllocs()
			for b.Loop() {
				_ = r.Handle(b.Context(), m)
			}
		})
	}
}

// FuzzType: a type finds the route that the plainest way to say it finds, and a route is refused as never reached only where it
// is.
func FuzzType(f *testing.F) {
	for _, p := range []string{"a", "*", ">", "a.*", "*.b.>"} {
		for _, typ := range []string{"a", "a.b", ".", "", "a..b", "a.b.c"} {
			f.Add(p, "*.b", typ)
		}
	}
	f.Fuzz(func(t *testing.T, p, q, typ string) {
		var hit string
		one, err := handlers.NewRouter(handlers.RouterConfig{NoRoute: handlers.NoRouteSkip,
			Routes: named(&hit, handlers.Route{Type: p})})
		if err != nil || p == "" {
			return
		}
		_ = one.Handle(t.Context(), &consumer.Message{Topic: "in",
			Headers: broker.NewHeaders(broker.Header{Key: "ce_type", Value: []byte(typ)})})
		if want := typ != "" && reference(strings.Split(p, "."), strings.Split(typ, ".")); (hit == "0") != want {
			t.Fatalf("pattern %q, type %q: matched %v, want %v", p, typ, hit == "0", want)
		}
		_, err = handlers.NewRouter(handlers.RouterConfig{Routes: named(&hit, handlers.Route{Type: p},
			handlers.Route{Match: "in", Type: q})})
		if err != nil && strings.Contains(err.Error(), "never reached") {
			if reference(strings.Split(q, "."), strings.Split(typ, ".")) && !reference(strings.Split(p, "."), strings.Split(typ, ".")) {
				t.Fatalf("%q is called covered by %q, which does not match %q", q, p, typ)
			}
		}
	})
}

// Events of different types come by one topic, and each finds its handler.
func ExampleRoute_byType() {
	type Order struct{ ID string }
	show := func(what string) consumer.Handler {
		return handlers.JSON(func(_ context.Context, o Order, _ *consumer.Message) error {
			fmt.Println(what, o.ID)
			return nil
		})
	}
	r, err := handlers.NewRouter(handlers.RouterConfig{Routes: []handlers.Route{
		{Type: "shop.order.created", Handler: show("created")},
		{Type: "shop.order.*", Handler: show("changed")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, typ := range []string{"shop.order.created", "shop.order.paid", "shop.mail.sent"} {
		m := &consumer.Message{Topic: "events", Value: []byte(`{"id": "o-1"}`),
			Headers: broker.NewHeaders(broker.Header{Key: "ce_type", Value: []byte(typ)})}
		if err := r.Handle(context.Background(), m); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// created o-1
	// changed o-1
	// handlers: no route for topic "events"
}

func ExampleRouter() {
	show := func(name string) consumer.Handler {
		return func(_ context.Context, m *consumer.Message) error {
			fmt.Println(name, "got", m.Topic)
			return nil
		}
	}
	r, err := handlers.NewRouter(handlers.RouterConfig{Routes: []handlers.Route{
		{Match: "orders.*.cancelled", Handler: show("refunds")},
		{Match: "orders.>", Handler: show("orders")},
		{Handler: show("the default")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, topic := range []string{"orders.eu.cancelled", "orders.eu.new", "audit"} {
		if err := r.Handle(context.Background(), &consumer.Message{Topic: topic}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// refunds got orders.eu.cancelled
	// orders got orders.eu.new
	// the default got audit
}
