package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
)

// A letter that waits for a limit is not being handled: the consumer's timeout begins with its call, and a stop does not wait for
// its turn.
func TestLettersWaitForLimits(t *testing.T) {
	for name, with := range map[string]string{"its own": "per_second: 0.1", "shared": "per_second: 0.1, shared: true"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				handle := routesOf(t, ctx, "timeout: 1s", "routes: [{handler: log}]",
					"middleware: [{use: rate_limit, with: {"+with+"}}]")
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
		})
	}
}

// The calls that a replay may make are all its own, too.
func TestLettersHaveTheWholeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		handle := routesOf(t, ctx, "routes: [{handler: log, middleware: [{use: concurrency_limit, with: {limit: 1, shared: true}}]}]")
		if err := handle(context.Background(), &broker.Message{Topic: "orders", Value: []byte("x")}); err != nil {
			t.Error(err)
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

// A letter that is put off by anything but a limit has no place to wait here: it stays, and the others go on. Behind a circuit
// breaker the one that was its probe was called again for ever.
func TestLettersThatArePutOffStay(t *testing.T) {
	for name, c := range map[string]struct {
		settings []string
		letters  int // that fail; behind them are as many good ones
		want     time.Duration
	}{
		"a failed probe": {[]string{"routes: [{handler: picky}]", "middleware: [{use: circuit_breaker}]"}, 12, time.Minute},
		"a failed probe of a breaker that waits longer than a call may take": {[]string{"timeout: 3s", "routes: [{handler: picky}]",
			"middleware: [{use: circuit_breaker}]"}, 12, time.Minute},
		"a failed probe of a breaker that opens for a moment": {[]string{"routes: [{handler: picky}]",
			"middleware: [{use: circuit_breaker, with: {open_for: 10ms}}]"}, 12, 3 * time.Minute},
		"for 10 minutes": {[]string{"routes: [{handler: later, with: {wait: 10m}}]"}, 3, time.Second},
		"for 300 ms":     {[]string{"routes: [{handler: later, with: {wait: 300ms}}]"}, 3, 30 * time.Second},
		"for no time":    {[]string{"routes: [{handler: later, with: {wait: 0s}}]"}, 3, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				handle, begun := routesOf(t, ctx, c.settings...), time.Now()
				for n := range 2 * c.letters {
					value, good := "bad", n >= c.letters
					if good {
						value = "good"
					}
					err := handle(context.Background(), &broker.Message{Topic: "orders", Value: []byte(value)})
					if (err == nil) != good || ctx.Err() != nil {
						t.Fatalf("letter %d, %s, after %v: %v", n, value, time.Since(begun), err)
					}
				}
				if took := time.Since(begun); took > c.want {
					t.Errorf("it took %v, want at most %v", took, c.want)
				}
			})
		})
	}
}

// What asks for a moment, and not again and again, has it.
func TestLettersWaitForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle, begun := routesOf(t, t.Context(), "routes: [{handler: later, with: {wait: 300ms, times: 30}}]"), time.Now()
		err := handle(t.Context(), &broker.Message{Topic: "orders", Value: []byte("bad")})
		if took := time.Since(begun); err != nil || took != 9*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// What a handler emits is published when it has returned nil, before its letter counts as replayed, and at another try under the
// same ID. What it emits in a call that fails goes nowhere, and a letter whose output nobody stores stays.
func TestLettersEmit(t *testing.T) {
	for name, c := range map[string]struct {
		publish, again bool
		value, to      string
		stored         int // of two tries; the broker drops what has the ID of another one
		fails          bool
	}{
		"emitted":         {publish: true, value: "good", to: "out", stored: 1},
		"emitted again":   {publish: true, again: true, value: "good", to: "out", stored: 2},
		"of a failed one": {publish: true, value: "bad", to: "out", fails: true},
		"of a skipped":    {publish: true, value: "skip", to: "out"},
		"refused":         {publish: true, value: "good", fails: true},
		"no publisher":    {value: "good", to: "out", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, registry := membroker.New(membroker.Config{}), handlers.NewRegistry()
				err := registry.Register("emitting", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
					return func(ctx context.Context, m *consumer.Message) error {
						err := consumer.Emit(ctx, broker.Outgoing{Topic: c.to, Value: m.Value})
						switch string(m.Value) {
						case "bad":
							return errors.New("bad")
						case "skip":
							return consumer.Skip("x")
						}
						return err
					}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // processes
					d := &dlqReplay{parts: Parts{Handlers: registry, Adapters: map[string]Adapter{"memory": memory(b)}}}
					d.replay.Again = c.again
					handle := d.handleOf(t, t.Context(), fmt.Sprintf("source: {memory: {topics: [in], group: g, publish: %v}}\n    "+
						"routes: [{handler: emitting}]", c.publish))
					err := handle(t.Context(), &broker.Message{Topic: "in", Offset: 7, Value: []byte(c.value)})
					if (err != nil) != c.fails {
						t.Errorf("fails: %v: %v", c.fails, err)
					}
				}
				if n := len(b.Messages("out")); n != c.stored {
					t.Errorf("%d are stored, want %d", n, c.stored)
				}
			})
		})
	}
}

// routesOf is the handler of a consumer as a replay has it, with handlers that wait for the end of their context (waits), fail
// (picky) or put off (later) what is bad.
func routesOf(t *testing.T, ctx context.Context, settings ...string) func(context.Context, *broker.Message) error {
	t.Helper()
	registry := handlers.NewRegistry()
	err := errors.Join(registry.AddReadyMade(), registry.Register("waits", func(*handlers.Setup,
		handlers.Options) (consumer.Handler, error) {
		return func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return context.Cause(ctx) }, nil
	}), registry.Register("picky", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
		return func(_ context.Context, m *consumer.Message) error {
			if string(m.Value) == "bad" {
				return errors.New("bad")
			}
			return nil
		}, nil
	}), registry.Register("later", func(_ *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
		c := struct {
			Wait  time.Duration `yaml:"wait"`
			Times int           `yaml:"times"`
		}{Times: 1 << 30}
		err := o.Decode(&c)
		return func(_ context.Context, m *consumer.Message) error {
			if string(m.Value) == "bad" && c.Times > 0 {
				c.Times--
				return consumer.Defer(c.Wait, nil)
			}
			return nil
		}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	d := &dlqReplay{parts: Parts{Handlers: registry}, putOff: putOffMost}
	return d.handleOf(t, ctx, `source: {nats: {url: "nats://127.0.0.1:1", stream: ORDERS, subjects: [orders], durable: d}}
    `+strings.Join(settings, "\n    "))
}

// handleOf is the handler of a consumer of the section.
func (d *dlqReplay) handleOf(t *testing.T, ctx context.Context, section string) func(context.Context, *broker.Message) error {
	t.Helper()
	doc := config.Parse("c.yaml", []byte("consumers:\n  orders:\n    "+section+"\n"), os.LookupEnv, d.parts.adapters()...)
	if err := doc.Err(); err != nil {
		t.Fatal(err)
	}
	handle, end, err := d.routes(ctx, &deadBox{doc: doc, name: "orders", consumer: doc.File.Consumers["orders"]}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return handle
}
