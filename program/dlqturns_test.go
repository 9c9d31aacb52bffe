package program

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
)

// A letter that waits for a limit is not being handled: the consumer's timeout begins with its call, and a stop does not wait for
// its turn.
func TestLettersWaitForLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		handle := routesOf(t, ctx, "timeout: 1s", "routes: [{handler: log}]",
			"middleware: [{use: rate_limit, with: {per_second: 0.1}}]")
		letter := &broker.Message{Topic: "orders", Value: []byte("x")}
		for n := range 2 { // the second one has its turn in 10 s
			if err := handle(context.Background(), letter); err != nil {
				t.Errorf("letter %d: %v", n, err)
			}
		}
		time.AfterFunc(100*time.Millisecond, stop)
		begun := time.Now()
		if err := handle(context.Background(), letter); !errors.Is(err, context.Canceled) || time.Since(begun) > time.Second {
			t.Errorf("%v after a stop: %v", time.Since(begun), err)
		}
	})
}

// A handler that waits for the end of its context has drain_timeout after a stop, as in a run, and its letter stays. Without a
// timeout it waited for ever, as a letter without a route did where no_route is stop.
func TestStopEndsLetters(t *testing.T) {
	for name, c := range map[string]struct {
		routes string
		after  time.Duration // of the stop
		want   time.Duration
	}{
		"a handler that waits":      {"routes: [{handler: waits}]", time.Minute, 65 * time.Second},
		"no route, which is a stop": {"no_route: stop\n    routes: [{headers: {x: y}, handler: waits}]", time.Hour, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), c.after)
			defer stop()
			handle := routesOf(t, ctx, "drain_timeout: 5s", c.routes)
			begun, result := time.Now(), make(chan error, 1)
			go func() { result <- handle(t.Context(), &broker.Message{Topic: "orders", Value: []byte("x")}) }()
			select {
			case err := <-result:
				if took := time.Since(begun); !errors.Is(err, consumer.ErrShutdown) || took != c.want {
					t.Errorf("%s: after %v, want %v: %v", name, took, c.want, err)
				}
			case <-time.After(2 * time.Hour):
				t.Errorf("%s: it does not end", name)
			}
		})
	}
}

// routesOf is the handler of a consumer as a replay has it, with a handler "waits", which waits for the end of its context.
func routesOf(t *testing.T, ctx context.Context, settings ...string) func(context.Context, *broker.Message) error {
	t.Helper()
	registry := handlers.NewRegistry()
	err := errors.Join(registry.AddReadyMade(), registry.Register("waits", func(*handlers.Setup,
		handlers.Options) (consumer.Handler, error) {
		return func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return context.Cause(ctx) }, nil
	}))
	doc := config.Parse("c.yaml", []byte(`consumers:
  orders:
    source: {nats: {url: "nats://127.0.0.1:1", stream: ORDERS, subjects: [orders], durable: d}}
    `+strings.Join(settings, "\n    ")+"\n"), os.LookupEnv)
	if err = errors.Join(err, doc.Err()); err != nil {
		t.Fatal(err)
	}
	d := &dlqReplay{parts: Parts{Handlers: registry}}
	handle, end, err := d.routes(ctx, &deadBox{doc: doc, name: "orders", consumer: doc.File.Consumers["orders"]}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return handle
}
