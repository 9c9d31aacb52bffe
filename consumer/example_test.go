package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// runUntil runs a consumer on the topic "orders" until a handler or observer calls stop.
func runUntil(b *membroker.Broker, configure func(cfg *consumer.Config, stop func())) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cfg := consumer.Config{Name: "orders", Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}})}
	configure(&cfg, stop)
	c, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// What a handler returns decides what becomes of the message.
func ExampleHandler() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")})

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if m.Runs == 0 {
				return consumer.RetryAfter(errors.New("the warehouse is busy"), 10*time.Millisecond)
			}
			fmt.Printf("%s, handled after %d failed run\n", m.Value, m.Runs)
			stop()
			return nil
		}
	})
	// Output: tea, handled after 1 failed run
}

// A handler with a backoff of its own: twice as long after each failed run, up to a minute or so.
func ExampleRetryAfter() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")})

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if m.Runs < 2 {
				wait := time.Millisecond << min(m.Runs, 16)
				fmt.Printf("run %d failed, the next one in %v\n", m.Runs+1, wait)
				return consumer.RetryAfter(errors.New("the warehouse is busy"), wait)
			}
			fmt.Printf("%s, handled\n", m.Value)
			stop()
			return nil
		}
	})
	// Output:
	// run 1 failed, the next one in 1ms
	// run 2 failed, the next one in 2ms
	// tea, handled
}

// A message that no retry will cure goes to the dead letters, with its story in the headers.
func ExampleDeadLetter() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("{broken")})

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = func(context.Context, *consumer.Message) error {
			return consumer.Permanent(errors.New("not an order"))
		}
		cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "orders-dead"}
		cfg.Observers = []consumer.Observer{func(e consumer.Event) {
			if _, ok := e.(consumer.DeadLettered); ok {
				stop()
			}
		}}
	})
	for _, m := range b.Messages("orders-dead") {
		why, _ := m.Headers.Get(broker.HeaderError)
		fmt.Printf("%s: %s\n", m.Value, why)
	}
	// Output: {broken: not an order
}

// Middleware wraps the call of the handler; the first is the outermost.
func ExampleChain() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")})

	shout := func(word string) consumer.Middleware {
		return func(next consumer.Handler) consumer.Handler {
			return func(ctx context.Context, m *consumer.Message) error {
				fmt.Println(word, "begins")
				defer fmt.Println(word, "ends")
				return next(ctx, m)
			}
		}
	}
	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = consumer.Chain(shout("outer"), shout("inner"))(func(_ context.Context, m *consumer.Message) error {
			fmt.Printf("%s\n", m.Value)
			stop()
			return nil
		})
	})
	// Output:
	// outer begins
	// inner begins
	// tea
	// inner ends
	// outer ends
}

// An observer is told what happens, for metrics and tests; a type switch picks what matters.
func ExampleObserver() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")})

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = func(context.Context, *consumer.Message) error { stop(); return nil }
		cfg.Observers = []consumer.Observer{func(e consumer.Event) {
			switch e := e.(type) {
			case consumer.StateChanged:
				fmt.Println(e.State)
			case consumer.Handled:
				fmt.Println("handled", e.N)
			}
		}}
	})
	// Unordered output:
	// opening
	// running
	// handled 1
	// stopping
	// draining
	// closing
	// stopped
}

// The limits of the pool can be changed at any time.
func ExampleConsumer_SetLimits() {
	b := membroker.New(membroker.Config{})
	c, err := consumer.New(consumer.Config{
		Source:  b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil },
		Pool:    consumer.Pool{Min: 1, Max: 8},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.SetLimits(2, 16))
	fmt.Println(c.SetLimits(4, 2))
	// Output:
	// <nil>
	// consumer: limits 4..2, want 1 <= min <= max <= the budget of 4096 messages
}

// A message that has to wait long waits in a retry topic, and not in the way of others. It comes back as what it was, with its
// runs.
func ExampleRetryTopics() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")})

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Retry.Topics = &consumer.RetryTopics{
			Steps: []consumer.RetryStep{{Topic: "orders-retry-20ms", Delay: 20 * time.Millisecond},
				{Topic: "orders-retry-1h", Delay: time.Hour}},
			Publisher: b.Publisher(),
			Source:    b.Source(membroker.SourceConfig{Group: "orders-retry", Topics: []string{"orders-retry-20ms", "orders-retry-1h"}}),
		}
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if m.Runs == 0 {
				return consumer.RetryAfter(errors.New("the warehouse is closed"), 20*time.Millisecond)
			}
			fmt.Printf("%s of %s, handled after %d failed run\n", m.Value, m.Topic, m.Runs)
			stop()
			return nil
		}
		cfg.Observers = []consumer.Observer{func(e consumer.Event) {
			if s, ok := e.(consumer.RetryPublished); ok {
				fmt.Println("waits in", s.Topic)
			}
		}}
	})
	// Unordered output:
	// waits in orders-retry-20ms
	// tea of orders, handled after 1 failed run
}

// The messages of one key are handled one after the other, in the order in which they were written, also through retries; those
// of other keys beside them.
func ExampleOrder() {
	b := membroker.New(membroker.Config{})
	for _, step := range []string{"ordered", "paid", "shipped"} {
		_ = b.Produce(broker.Outgoing{Topic: "orders", Key: []byte("order 7"), Value: []byte(step)})
	}

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Order = consumer.OrderKey
		cfg.Retry.Backoff.Initial = 10 * time.Millisecond
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if string(m.Value) == "paid" && m.Runs == 0 {
				return errors.New("the bank does not answer")
			}
			fmt.Printf("%s: %s\n", m.Key, m.Value)
			if string(m.Value) == "shipped" {
				stop()
			}
			return nil
		}
	})
	// Output:
	// order 7: ordered
	// order 7: paid
	// order 7: shipped
}

// Dead letters go to different topics, by the class of the failure and the handler that it was of.
func ExampleLetterRoute() {
	b := membroker.New(membroker.Config{})
	for _, order := range []string{"{broken", "from a blocked customer", "of nothing"} {
		_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte(order)})
	}

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if m.Value[0] == '{' {
				return consumer.Undecodable(errors.New("not JSON"))
			}
			return consumer.Permanent(errors.New("not an order"))
		}
		cfg.DeadLetter = &consumer.DeadLetter{
			Publisher: b.Publisher(),
			Topic:     "orders-dead",
			Routes: []consumer.LetterRoute{
				{Class: "decode", Topic: "orders-unread"},
				{Handler: "customers", Topic: "customers-dead"},
			},
			HandlerOf: func(m *consumer.Message) string { // handlers.Router has a method for it
				if strings.Contains(string(m.Value), "customer") {
					return "customers"
				}
				return "orders"
			},
		}
		var stored atomic.Int32
		cfg.Observers = []consumer.Observer{func(e consumer.Event) {
			if _, ok := e.(consumer.DeadLettered); ok && stored.Add(1) == 3 {
				stop()
			}
		}}
	})
	for _, topic := range []string{"orders-unread", "customers-dead", "orders-dead"} {
		for _, m := range b.Messages(topic) {
			fmt.Printf("%s: %s\n", topic, m.Value)
		}
	}
	// Output:
	// orders-unread: {broken
	// customers-dead: from a blocked customer
	// orders-dead: of nothing
}

// A batch handler gets several messages at once, and says of each what became of it.
func ExampleBatch() {
	b := membroker.New(membroker.Config{})
	for _, item := range []string{"tea", "", "coffee"} {
		_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte(item)})
	}

	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "orders-dead"}
		cfg.Batch = &consumer.Batch{Size: 3, Handler: func(_ context.Context, ms []*consumer.Message) error {
			outcome := &consumer.BatchError{Errs: make([]error, len(ms))}
			for i, m := range ms {
				if len(m.Value) == 0 {
					outcome.Errs[i] = consumer.Permanent(errors.New("an order of nothing"))
				}
			}
			fmt.Println("one call for", len(ms), "orders")
			return outcome
		}}
		cfg.Observers = []consumer.Observer{func(e consumer.Event) {
			if _, ok := e.(consumer.DeadLettered); ok {
				stop()
			}
		}}
	})
	fmt.Println(b.Unsettled("group"), "left,", len(b.Messages("orders-dead")), "dead letter")
	// Output:
	// one call for 3 orders
	// 0 left, 1 dead letter
}

// Batches of one key, in the key's order: a customer's changes are written with one call, and no other of the customer's runs
// beside it.
func ExampleBatch_byKey() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
	for i, customer := range []string{"ann", "bob", "ann", "ann", "bob"} {
		_ = b.Produce(broker.Outgoing{Topic: "orders", Key: []byte(customer), Value: fmt.Append(nil, i)})
	}
	runUntil(b, func(cfg *consumer.Config, stop func()) {
		handled := 0
		cfg.Order = consumer.OrderKey
		cfg.Pool.Max = 1
		cfg.Batch = &consumer.Batch{ByKey: true, Size: 3, Handler: func(_ context.Context, ms []*consumer.Message) error {
			fmt.Print(string(ms[0].Key), ":")
			for _, m := range ms {
				fmt.Printf(" %s", m.Value)
			}
			fmt.Println()
			if handled += len(ms); handled == 5 {
				stop()
			}
			return nil
		}}
	})
	// Output:
	// ann: 0 2 3
	// bob: 1 4
}

// Several sources share the workers by weight, and messages of one source by their level.
func ExamplePriority() {
	b := membroker.New(membroker.Config{})
	for _, m := range []broker.Outgoing{{Topic: "orders", Key: []byte("retail")}, {Topic: "orders", Key: []byte("retail")},
		{Topic: "orders", Key: []byte("gold")}} {
		_ = b.Produce(m)
	}

	handled := 0
	runUntil(b, func(cfg *consumer.Config, stop func()) {
		cfg.Pool.Max = 1
		cfg.Priority = &consumer.Priority{Levels: []int{10, 1}, Of: func(m *consumer.Message) int {
			if string(m.Key) == "gold" {
				return 0
			}
			return 1
		}}
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			if handled++; handled == 3 {
				stop()
			}
			return nil
		}
	})
	fmt.Println(handled, "handled")
	// Output: 3 handled
}

// Programs that log with log/slog give the consumer their handler.
func ExampleSlogLogger() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("two crates of tea")})
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	h := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime})

	ctx, stop := context.WithCancel(context.Background())
	c, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Logger: consumer.SlogLogger(h), // slog.Default().Handler() in a program
		Handler: func(context.Context, *consumer.Message) error {
			defer stop()
			return consumer.RetryAfter(errors.New("no tea"), time.Hour)
		},
	})
	if err != nil {
		panic(err)
	}
	_ = c.Run(ctx)
	// Output: level=WARN msg=failed consumer=consumer event=failed topic=orders partition=0 offset=0 attempt=1 error="no tea" class=error runs=1 verdict=retry delay_ms=3600000
}

// A test of a handler that emits calls it, and looks at what it emitted.
func ExampleRecordEmits() {
	handle := func(ctx context.Context, m *consumer.Message) error {
		return consumer.Emit(ctx, broker.Outgoing{Topic: "bills", Key: m.Key, Value: append([]byte("a bill for "), m.Value...)})
	}

	ctx, emitted := consumer.RecordEmits(context.Background())
	err := handle(ctx, &consumer.Message{Value: []byte("tea")})
	for _, o := range emitted.Outs() {
		fmt.Printf("%s: %s, error: %v\n", o.Topic, o.Value, err)
	}
	// Output: bills: a bill for tea, error: <nil>
}
