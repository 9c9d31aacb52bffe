package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// memory is an adapter from outside, for a broker that a test has.
func memory(b *membroker.Broker) Adapter {
	return func(_ AdapterSetup, o handlers.Options) (*Broker, error) {
		c := struct {
			Topics  []string      `yaml:"topics"`
			Group   string        `yaml:"group"`
			Wait    time.Duration `yaml:"revoke_wait"`
			Token   broker.Secret `yaml:"token"`
			Publish bool          `yaml:"publish"`
		}{Publish: true}
		if err := o.Decode(&c); err != nil {
			return nil, err
		}
		fs := broker.Findings{Of: "memory"} // as an adapter's own Config reports them
		fs.Check(len(c.Topics) > 0, "Topics", "is empty")
		fs.Check(c.Wait >= 0, "RevokeWait", "is %v, negative", c.Wait)
		var login error
		if c.Token.Reveal() == "wrong" {
			login = errors.New("memory: cannot log in with this")
		}
		if err := errors.Join(fs.Err(), login); err != nil {
			return nil, err
		}
		made := &Broker{Source: b.Source(membroker.SourceConfig{Topics: c.Topics, Group: c.Group, RevokeWait: c.Wait}),
			Topics: c.Topics}
		if c.Publish {
			made.Publisher = func() (broker.Publisher, error) { return b.Publisher(), nil }
		}
		return made, nil
	}
}

// inFile runs a configuration on the broker in memory until the test stops it. What it returns is what run says at its end, and
// its log.
func inFile(t *testing.T, p Parts, text string) (stop func() (log string, err error)) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", text)
	var log lockedBuffer // many write
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runFile(ctx, p.withDefaults(), filepath.Join(dir, "c.yaml"), &scalerFlags{}, nil, &log)
	}()
	return func() (string, error) {
		cancel()
		err := <-done
		return log.String(), err
	}
}

func produceIn(t *testing.T, b *membroker.Broker, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAdapterFromOutside: a broker that longshore does not know is read, published to, and observed, with handlers, middleware
// and codecs that it does not know either.
func TestAdapterFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		produceIn(t, b, "first=1", "second=2", "bad")
		var mu sync.Mutex
		var handled []string
		var wrapped, observed atomic.Int64
		r := handlers.NewRegistry()
		err := errors.Join(
			r.RegisterCodec("pair", pairCodec{}),
			r.Register("pairs", func(s *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
				return handlers.Typed(s.Decoder(), func(_ context.Context, p pair, _ *consumer.Message) error {
					mu.Lock()
					defer mu.Unlock()
					handled = append(handled, p.name+" is "+p.value)
					return nil
				}), o.Decode(&struct{}{})
			}),
			r.RegisterMiddleware("counting", func(_ *handlers.Setup, o handlers.Options) (consumer.Middleware, error) {
				c := struct {
					By int64 `yaml:"by"`
				}{By: 1}
				return func(next consumer.Handler) consumer.Handler {
					return func(ctx context.Context, m *consumer.Message) error {
						wrapped.Add(c.By)
						return next(ctx, m)
					}
				}, o.Decode(&c)
			}),
		)
		if err != nil {
			t.Fatal(err)
		}
		parts := Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(b)},
			Observers: func(name string) []consumer.Observer {
				return []consumer.Observer{func(e consumer.Event) {
					if _, ok := e.(consumer.Handled); ok && name == "orders" {
						observed.Add(1)
					}
				}}
			}}
		stop := inFile(t, parts, `consumers:
  orders:
    source: {memory: {topics: [in], group: workers}}
    dead_letter: {to: dead, headers: [spring]}
    middleware: [{use: counting, with: {by: 10}}]
    routes: [{handler: pairs, codec: pair}]
`)
		time.Sleep(5 * time.Second)
		if log, err := stop(); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		slices.Sort(handled)
		if !slices.Equal(handled, []string{"first is 1", "second is 2"}) || wrapped.Load() != 30 || observed.Load() != 2 {
			t.Errorf("handled %q, wrapped %d, observed %d", handled, wrapped.Load(), observed.Load())
		}
		if dead := b.Messages("dead"); len(dead) != 1 || string(dead[0].Value) != "bad" || b.Unsettled("workers") != 0 {
			t.Errorf("%d dead letters, %d unsettled", len(dead), b.Unsettled("workers"))
		}
	})
}

// pairCodec reads name=value.
type pairCodec struct{}

type pair struct{ name, value string }

func (pairCodec) Decode(m *consumer.Message, v any) error {
	p, ok := v.(*pair)
	if !ok {
		return errors.New("no pair")
	}
	if p.name, p.value, ok = strings.Cut(string(m.Value), "="); !ok {
		return errors.New("no =")
	}
	return nil
}

// TestBatchInAFile: batches are as large as the file says, each message has its own outcome, and what is left waits no longer
// than linger.
func TestBatchInAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		for i := range 25 {
			produceIn(t, b, fmt.Sprint(i))
		}
		var mu sync.Mutex
		var sizes []int
		r := handlers.NewRegistry()
		err := r.RegisterBatch("refuse", func(_ *handlers.Setup, o handlers.Options) (consumer.BatchHandler, error) {
			var c struct {
				Value string `yaml:"value"`
			}
			return func(_ context.Context, ms []*consumer.Message) error {
				errs := make([]error, len(ms))
				for i, m := range ms {
					if string(m.Value) == c.Value {
						errs[i] = consumer.Permanent(errors.New("refused"))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(ms))
				return &consumer.BatchError{Errs: errs}
			}, o.Decode(&c)
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := inFile(t, Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(b)}}, `consumers:
  orders:
    source: {memory: {topics: [in], group: workers}}
    dead_letter: {to: dead}
    batch: {handler: refuse, size: 10, bytes: 100000, linger: 2s, with: {value: "${NOT_SET:-13}"}}
    middleware: [{use: logging, with: {level: info}}, {use: timeout, with: {after: 10s}}]
`)
		time.Sleep(10 * time.Second)
		log, err := stop()
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		for outcome, want := range map[string]int{"ok": 2, "permanent": 1} { // of the calls, by the middleware
			if n := strings.Count(log, `outcome=`+outcome) + strings.Count(log, `"outcome":"`+outcome+`"`); n != want {
				t.Errorf("%d calls %s, want %d\n%s", n, outcome, want, log)
			}
		}
		if !slices.Equal(sizes, []int{10, 10, 5}) {
			t.Errorf("batches of %v", sizes)
		}
		if dead := b.Messages("dead"); len(dead) != 1 || string(dead[0].Value) != "13" || b.Unsettled("workers") != 0 {
			t.Errorf("%d dead letters, %d unsettled", len(dead), b.Unsettled("workers"))
		}
	})
}

// TestHandlerEmits: a handler of a file emits by its consumer's own publisher; what a run that failed emitted is dropped.
func TestHandlerEmits(t *testing.T) {
	for name, cfg := range map[string]membroker.Config{"leased": {Leased: true}, "atomic": {Atomic: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(cfg)
				produceIn(t, b, "tea")
				r := handlers.NewRegistry()
				err := r.Register("emitting", func(_ *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
					return func(ctx context.Context, m *consumer.Message) error {
						if err := consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: m.Value}); err != nil || m.Runs == 0 {
							return cmp.Or(err, errors.New("the first run fails"))
						}
						return nil
					}, o.Decode(&struct{}{})
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := inFile(t, Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(b)}}, `consumers:
  orders:
    source: {memory: {topics: [in], group: workers}}
    routes: [{handler: emitting}]
`)
				time.Sleep(time.Minute)
				if log, err := stop(); err != nil {
					t.Fatalf("%v\n%s", err, log)
				}
				if out := b.Messages("out"); len(out) != 1 || string(out[0].Value) != "tea" {
					t.Errorf("%d outputs, want one", len(out))
				}
			})
		})
	}
}

// TestLoggerFromOutside: a logger of the parts gets what the file's section log would write.
func TestLoggerFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{})
		var records lockedBuffer
		logger := consumer.SlogLogger(slog.NewTextHandler(&records, nil))
		stop := inFile(t, Parts{Adapters: map[string]Adapter{"memory": memory(b)}, Logger: &logger}, `log: {level: error}
consumers:
  orders:
    source: {memory: {topics: [in], group: workers}}
    routes: [{handler: log}]
`)
		produceIn(t, b, "tea")
		time.Sleep(time.Second)
		written, err := stop()
		if err != nil || written != "" {
			t.Errorf("%v; on standard error: %s", err, written)
		}
		for _, want := range []string{"msg=state", "state=running", "event=stopping", "msg=message"} {
			if !strings.Contains(records.String(), want) {
				t.Errorf("no %s in\n%s", want, records.String())
			}
		}
	})
}

// TestUnknownBroker: which brokers there are is said with those from outside, and of what may be one of theirs who knows it.
func TestUnknownBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  a: {source: {memorie: {topics: [in]}}, routes: [{handler: log}]}
  b: {sources: [{memory: {topics: [in]}, wait: 3}], routes: [{handler: log}]}
`)
	root := newRoot(Parts{Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))}}.withDefaults())
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	file := filepath.Join(dir, "c.yaml")
	want := file + ":2: consumers.a.source.memorie: unknown option; known: kafka, memory, nats, nats_core. A broker of your own " +
		"is known to the program that adds it\n" +
		file + ":3: consumers.b.sources[0].wait: unknown option; known: kafka, memory, nats, nats_core, weight"
	if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != want {
		t.Errorf("found\n%v\nwant\n%s", err, want)
	}
}

// TestTimeOfBatches: a file's batch handler is timed as a route is.
func TestTimeOfBatches(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    source: {memory: {topics: [in]}}
    batch: {handler: log}
`)
	parts := Parts{Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))}}.withDefaults()
	doc, err := config.Load(filepath.Join(dir, "c.yaml"), os.LookupEnv, parts.adapters()...)
	if err != nil {
		t.Fatal(err)
	}
	a := assemble(doc, parts, zerolog.Nop(), nil, func(error) {})
	if err := errors.Join(doc.Err(), a.close()); err != nil {
		t.Fatal(err)
	}
	if err := a.members[0].handler(t.Context(), &consumer.Message{}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.members[0].figures)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "longshore_route_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetHistogram().GetSampleCount() == 1 {
				if got := fmt.Sprint(m.GetLabel()); !strings.Contains(got, `"batch"`) || !strings.Contains(got, `"log"`) ||
					!strings.Contains(got, `"ok"`) {
					t.Errorf("counted as %s", got)
				}
				return
			}
		}
	}
	t.Error("the call was not counted")
}

// TestPartsFindings: what is wrong with the sections of parts from outside, and with batches, is named with its line as all else
// is.
func TestPartsFindings(t *testing.T) {
	r := handlers.NewRegistry()
	if err := r.AddReadyMade(); err != nil {
		t.Fatal(err)
	}
	parts := Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))}}
	const around = "want one of [circuit_breaker logging recover timeout]"
	for name, c := range map[string]struct{ text, want string }{
		"its own keys": {`
    source:
      memory:
        topic: [in]
        revoke_wait: soon
    routes: [{handler: log}]`,
			`c.yaml:5: consumers.orders.source.memory.topic: unknown option; known: group, publish, revoke_wait, token, topics
c.yaml:6: consumers.orders.source.memory.revoke_wait: wants a duration such as 10s or 1m30s, is none`},
		"its own checks": {`
    source:
      memory:
        token: wrong
        revoke_wait: -1s
    routes: [{handler: log}]`,
			`c.yaml:4: consumers.orders.source.memory: memory: cannot log in with this
c.yaml:4: consumers.orders.source.memory.topics: is empty
c.yaml:6: consumers.orders.source.memory.revoke_wait: is -1s, negative`},
		"no publisher": {`
    source: {memory: {topics: [in], publish: false}}
    dead_letter: {to: dead}
    routes: [{handler: log}]`,
			`c.yaml:4: consumers.orders.dead_letter: is set, and the adapter memory has no publisher`},
		"two brokers": {`
    source: {memory: {topics: [in]}, kafka: {brokers: ["127.0.0.1:1"], topics: [in], group: g}}
    routes: [{handler: log}]`,
			`c.yaml:3: consumers.orders.source: has kafka and memory: a source is one of them`},
		"none": {`
    source: {redis: {}}
    routes: [{handler: log}]`,
			`c.yaml:3: consumers.orders.source.redis: unknown option; known: kafka, memory, nats, nats_core. A broker of your own is ` +
				"known to the program that adds it"},
		"several": {`
    sources: [{memory: {topics: [in]}}, {memory: {topics: [in], topick: 1}, weight: 2}]
    routes: [{handler: log}]`,
			`c.yaml:3: consumers.orders.sources[1].memory.topick: unknown option; known: group, publish, revoke_wait, token, topics`},
		"no mapping": {`
    source: {memory: 17}
    routes: [{handler: log}]`,
			`c.yaml:3: consumers.orders.source.memory: wants a mapping`},
		"codec": {`
    source: {memory: {topics: [in]}}
    routes: [{handler: log, codec: avro}, {handler: exec, codec: json, with: {command: ["true"]}}]`,
			`c.yaml:4: consumers.orders.routes[0].codec: is "avro", want one of [json json_strict]
c.yaml:4: consumers.orders.routes[1].codec: is set, and the handler decodes nothing`},
		"batch beside routes": {`
    source: {memory: {topics: [in]}}
    batch: {size: 0, linger: 0s}
    routes: [{handler: log}]
    middleware: [{use: recover}]`,
			`c.yaml:4: consumers.orders.batch.handler: is missing
c.yaml:4: consumers.orders.batch.size: is 0, want 1 to 65536
c.yaml:4: consumers.orders.batch.linger: is 0s, want more
c.yaml:5: consumers.orders.routes: is set, and so is batch: a batch has all messages of the consumer, and one handler`},
		"middleware around batches": {`
    source: {memory: {topics: [in]}}
    batch: {handler: log}
    middleware: [{use: recover}, {use: dedup}, {use: rate_limit, with: {per_second: 5}}]`,
			`c.yaml:5: consumers.orders.middleware[1].use: is "dedup", which decides by the message; around batches ` + around + `
c.yaml:5: consumers.orders.middleware[2].use: is "rate_limit", which decides by the message; around batches ` + around},
		"middleware options": {`
    source: {memory: {topics: [in]}}
    routes: [{handler: log}]
    middleware:
      - {use: rate_limit}
      - {use: key_rate_limit, with: {per_second: -1, burst: 9000000000}}
      - {use: circuit_breaker, with: {failure_rate: 2, min_calls: 0, window: 0s, open_for: 0s, probes: 0}}
      - {use: dedup, with: {size: 0, header: ""}}
      - {use: timeout}
      - {use: logging, with: {level: loud}}
      - {use: concurrency_limit, with: {limit: 0}}
      - {use: recover, with: {after: 3s}}
      - {use: dedup, with: {size: 0, head: x}}`,
			`c.yaml:6: consumers.orders.middleware[0].with.per_second: is missing
c.yaml:7: consumers.orders.middleware[1].with.per_second: is -1, negative
c.yaml:7: consumers.orders.middleware[1].with.burst: is 9000000000, want 1 to 2147483647
c.yaml:8: consumers.orders.middleware[2].with.failure_rate: is 2, want more than 0, at most 1
c.yaml:8: consumers.orders.middleware[2].with.min_calls: is 0, want at least 1
c.yaml:8: consumers.orders.middleware[2].with.window: is 0s, want more
c.yaml:8: consumers.orders.middleware[2].with.open_for: is 0s, want more
c.yaml:8: consumers.orders.middleware[2].with.probes: is 0, want 1 to 65536
c.yaml:9: consumers.orders.middleware[3].with.size: is 0, want 1 to 10000000
c.yaml:9: consumers.orders.middleware[3].with.header: is empty
c.yaml:10: consumers.orders.middleware[4].with.after: is missing
c.yaml:11: consumers.orders.middleware[5].with.level: is "loud", want one of [trace debug info warn error]
c.yaml:12: consumers.orders.middleware[6].with.limit: is 0, want 1 to 2147483647
c.yaml:13: consumers.orders.middleware[7].with.after: unknown option; there is none
c.yaml:14: consumers.orders.middleware[8].with.head: unknown option; known: header, size
c.yaml:14: consumers.orders.middleware[8].with.size: is 0, want 1 to 10000000`},
		"timeouts that never come": {`
    source: {memory: {topics: [in]}}
    timeout: 10s
    routes: [{handler: log, middleware: [{use: timeout, with: {after: 9s}}, {use: timeout, with: {after: 11s}}]}]
    middleware: [{use: timeout, with: {after: 1m}}, {use: timeout, with: {after: 10s}}]`,
			`c.yaml:5: consumers.orders.routes[0].middleware[1].with.after: is 11s, above the consumer's timeout, 10s, which ends the ` +
				`call before
c.yaml:6: consumers.orders.middleware[0].with.after: is 1m0s, above the consumer's timeout, 10s, which ends the call before`},
		"batch handler": {`
    source: {memory: {topics: [in]}}
    batch: {handler: publish, with: {to: x}}`,
			`c.yaml:4: consumers.orders.batch.handler: is "publish", want one of [exec log webhook]. One of your own is ` +
				`known to the program that registers it: check it with that`},
		"batch options": {`
    source: {memory: {topics: [in]}}
    batch:
      handler: webhook
      size: 5000
      with: {url: "ftp://x", encoding: xml}`,
			`c.yaml:6: consumers.orders.batch.size: is 5000, above half of a source's budget, 2048: a batch might never be full
c.yaml:7: consumers.orders.batch.with.url: wants http:// or https:// at its start
c.yaml:7: consumers.orders.batch.with.encoding: wants json, text or base64`},
		"batch too large": {`
    source: {memory: {topics: [in]}}
    batch:
      handler: log
      size: 5000`,
			`c.yaml:6: consumers.orders.batch.size: is 5000, above half of a source's budget, 2048: a batch might never be full`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "c.yaml", "consumers:\n  orders:"+c.text+"\n")
			root := newRoot(parts)
			root.SetOut(t.Output())
			root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
			err := root.ExecuteContext(t.Context())
			var use usageError
			if got := strings.ReplaceAll(fmt.Sprint(err), dir+"/", ""); got != c.want || !errors.As(err, &use) {
				t.Errorf("found\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestFactoryThatPanics: it is found at its place in the file, with the line of Go, as are the others that do.
func TestFactoryThatPanics(t *testing.T) {
	t.Parallel()
	var none map[string]int
	r := handlers.NewRegistry()
	err := errors.Join(
		r.Register("hasty", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) { none["a"]++; return nil, nil }),
		r.Register("typo", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
			regexp.MustCompile(strings.Repeat("(", 2)) // a constant would be found by linters
			return nil, nil
		}),
		r.RegisterBatch("hasty", func(*handlers.Setup, handlers.Options) (consumer.BatchHandler, error) { panic("no pool") }),
		r.RegisterMiddleware("hasty", func(*handlers.Setup, handlers.Options) (consumer.Middleware, error) { panic("no cache") }))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    source: {memory: {topics: [in]}}
    routes: [{match: a, handler: hasty}, {handler: typo, middleware: [{use: hasty}]}]
  sums:
    source: {memory: {topics: [in]}}
    batch: {handler: hasty}
`)
	parts := Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))}}
	root := newRoot(parts.withDefaults())
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	said := strings.Split(fmt.Sprint(root.ExecuteContext(t.Context())), "\n")
	for i, want := range []string{
		`c.yaml:4: consumers.orders.routes[0].with: handler "hasty": its factory panicked: assignment to entry in nil map, at `,
		`c.yaml:4: consumers.orders.routes[1].with: handler "typo": its factory panicked: regexp: Compile(`,
		`c.yaml:4: consumers.orders.routes[1].middleware[0].with: middleware "hasty": its factory panicked: no cache, at `,
		`c.yaml:7: consumers.sums.batch.with: batch handler "hasty": its factory panicked: no pool, at `,
	} {
		if len(said) != 4 || !strings.Contains(said[i], want) || !strings.Contains(said[i], "parts_test.go:") {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(said, "\n"), want)
		}
	}
}

// TestAdapterThatPanics: so is one, and what it makes of its publisher.
func TestAdapterThatPanics(t *testing.T) {
	t.Parallel()
	good := memory(membroker.New(membroker.Config{}))
	adapters := map[string]Adapter{
		"hasty": func(AdapterSetup, handlers.Options) (*Broker, error) { panic("no hosts") },
		"late": func(s AdapterSetup, o handlers.Options) (*Broker, error) {
			b, err := good(s, o)
			b.Publisher = func() (broker.Publisher, error) { panic("no login") }
			return b, err
		},
	}
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  a: {source: {hasty: {topics: [in]}}, routes: [{handler: log}]}
  b: {source: {late: {topics: [in]}}, routes: [{handler: log}]}
`)
	root := newRoot(Parts{Adapters: adapters}.withDefaults())
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	said := strings.Split(fmt.Sprint(root.ExecuteContext(t.Context())), "\n")
	for i, want := range []string{
		`c.yaml:2: consumers.a.source.hasty: the adapter panicked: no hosts, at `,
		`c.yaml:3: consumers.b.source.late: the adapter panicked: no login, at `,
	} {
		if len(said) != 2 || !strings.Contains(said[i], want) || !strings.Contains(said[i], "parts_test.go:") {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(said, "\n"), want)
		}
	}
}

// A hastyCodec panics where it is asked.
type hastyCodec struct{ handlers.JSONCodec }

func (hastyCodec) Accepts(any) error { panic("no schema") }

// TestMiddlewareThatPanics: what a middleware's factory returned, and a codec, are found at their place, too, and a middleware
// that returns no handler.
func TestMiddlewareThatPanics(t *testing.T) {
	t.Parallel()
	r := handlers.NewRegistry()
	returns := func(w consumer.Middleware) handlers.MiddlewareFactory {
		return func(*handlers.Setup, handlers.Options) (consumer.Middleware, error) { return w, nil }
	}
	err := errors.Join(r.AddReadyMade(), r.RegisterCodec("hasty", hastyCodec{}),
		r.Register("typed", func(s *handlers.Setup, _ handlers.Options) (consumer.Handler, error) {
			return handlers.Typed(s.Decoder(), func(context.Context, int, *consumer.Message) error { return nil }), nil
		}),
		r.RegisterMiddleware("hasty", returns(func(consumer.Handler) consumer.Handler { panic("no cache") })),
		r.RegisterMiddleware("none", returns(func(consumer.Handler) consumer.Handler { return nil })),
		r.RegisterMiddleware("good", returns(func(h consumer.Handler) consumer.Handler { return h })))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    source: {memory: {topics: [in]}}
    routes: [{match: a, handler: log, middleware: [{use: good}, {use: hasty}, {use: good}]}, {handler: typed, codec: hasty}]
  sums:
    source: {memory: {topics: [in]}}
    routes: [{handler: log}]
    middleware: [{use: none}]
`)
	parts := Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))}}
	root := newRoot(parts.withDefaults())
	root.SetArgs([]string{"config", "check", filepath.Join(dir, "c.yaml")})
	said := strings.Split(fmt.Sprint(root.ExecuteContext(t.Context())), "\n")
	for i, want := range []string{
		`c.yaml:4: consumers.orders.routes[0].middleware[1].with: middleware "hasty": it panicked: no cache, at `,
		`c.yaml:4: consumers.orders.routes[1].with: handler "typed": its factory panicked: no schema, at `,
		`c.yaml:8: consumers.sums.middleware[0].with: middleware "none": it returned no handler`,
	} {
		if len(said) != 3 || !strings.Contains(said[i], want) || i < 2 && !strings.Contains(said[i], "parts_test.go:") {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(said, "\n"), want)
		}
	}
}

// TestCollectorsFromOutside: /metrics has them beside longshore's own.
func TestCollectorsFromOutside(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_orders_total", Help: "Orders."})
	own.Add(7)
	port := freePort(t)
	stop := inFile(t, Parts{Collectors: []prometheus.Collector{own}, Adapters: map[string]Adapter{"memory": memory(b)}},
		`admin: {listen: "127.0.0.1:`+port+`"}
consumers:
  orders:
    source: {memory: {topics: [in]}}
    routes: [{handler: log}]
`)
	page := ""
	for end := time.Now().Add(patience); page == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		page = fetch("http://127.0.0.1:" + port + "/metrics")
	}
	if !strings.Contains(page, "\nshop_orders_total 7\n") || !strings.Contains(page, "\nlongshore_workers{") {
		t.Errorf("metrics:\n%s", page)
	}
	if log, err := stop(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

func TestPartsAreChecked(t *testing.T) {
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_orders_total", Help: "Orders."})
	make := memory(nil)
	err := Parts{
		Adapters:   map[string]Adapter{"kafka": make, "nats_core": make, "Redis": make, "none": nil, "redis": make},
		Collectors: []prometheus.Collector{counter, counter, nil},
	}.validate()
	for _, want := range []string{`Adapters has "kafka", which is longshore's own`,
		`Adapters has "nats_core", which is longshore's own`, `Adapters has "Redis": a name`,
		`Adapters has "none", and it is nil`, "Collectors[1], of shop_orders_total: duplicate", "Collectors[2] is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err := (Parts{}).validate(); err != nil {
		t.Error(err)
	}
}

// TestBeside: what a handler's factory gives to Setup.Beside runs while the consumer does, and sees its last commits: an inbox is
// pruned by it. An error of it drains the consumer, and is that of the run.
func TestBeside(t *testing.T) {
	const text = "consumers:\n  orders:\n    source: {memory: {topics: [in], group: workers}}\n    routes: [{handler: books}]\n"
	for name, wrong := range map[string]error{"to the end": nil, "an error": errors.New("no such table")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produceIn(t, b, "1", "2", "3")
				var order []string
				var floors []broker.Floor
				r := handlers.NewRegistry()
				err := r.Register("books", func(s *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
					s.OnClose(func() error { order = append(order, "closed"); return nil })
					s.Beside(func(ctx context.Context, c *consumer.Consumer) error {
						if wrong != nil {
							return wrong
						}
						<-ctx.Done()
						floors = c.Floors()
						order = append(order, "pruned")
						return nil
					})
					return func(context.Context, *consumer.Message) error { return nil }, o.Decode(&struct{}{})
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := inFile(t, Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(b)}}, text)
				time.Sleep(time.Second)
				log, err := stop()
				if !errors.Is(err, wrong) {
					t.Fatalf("run returned %v, want %v\n%s", err, wrong, log)
				}
				if wrong != nil {
					if slices.Contains(order, "pruned") || !strings.Contains(log, wrong.Error()) {
						t.Errorf("%v, and the log\n%s", order, log)
					}
					return
				}
				if len(floors) != 1 || floors[0].Offset != 3 || !slices.Equal(order, []string{"pruned", "closed"}) {
					t.Errorf("the floors are %v after 3 messages, and the order %v", floors, order)
				}
			})
		})
	}
}

// TestHandlersKnowHowManyWorkersThereAre: of a webhook it is how many connections are kept, so it is what the engine has, also
// where only pool.min is set.
func TestHandlersKnowHowManyWorkersThereAre(t *testing.T) {
	told := map[string]int{}
	r := handlers.Default()
	if err := r.Register("told", func(s *handlers.Setup, _ handlers.Options) (consumer.Handler, error) {
		told[s.Consumer] = s.MaxWorkers
		return func(context.Context, *consumer.Message) error { return nil }, nil
	}); err != nil {
		t.Fatal(err)
	}
	b := membroker.New(membroker.Config{})
	root := newRoot(Parts{Handlers: r, Adapters: map[string]Adapter{"memory": memory(b)}}.withDefaults())
	root.SetOut(io.Discard)
	root.SetIn(strings.NewReader(`consumers:
  neither: {source: {memory: {topics: [a], group: a}}, routes: [{handler: told}]}
  least: {source: {memory: {topics: [b], group: b}}, pool: {min: 200}, routes: [{handler: told}]}
  most: {source: {memory: {topics: [c], group: c}}, pool: {max: 7}, routes: [{handler: told}]}
`))
	root.SetArgs([]string{"config", "check", "-"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"neither": 64, "least": 200, "most": 7}; !maps.Equal(told, want) {
		t.Errorf("handlers were told of %v workers, want %v", told, want)
	}
}

// TestLogThatWritesNothing: the handler log acks what its level keeps out of the log, so that is said.
func TestLogThatWritesNothing(t *testing.T) {
	t.Setenv("LOG_TEST_LEVEL", "debug")
	errorsOnly := zerolog.New(io.Discard).Level(zerolog.ErrorLevel)
	for text, want := range map[string]struct {
		file, routes string
		own          *zerolog.Logger
		warned       string
	}{
		"as is": {"", "routes: [{handler: log}]", nil, ""},
		"below": {"", "routes: [{handler: log, with: {level: debug}}]", nil,
			"routes[0].with.level: warning: is debug, and the log has info"},
		"of a variable": {"", "routes: [{handler: log, with: {level: \"${LOG_TEST_LEVEL}\"}}]", nil,
			"routes[0].with.level: warning: is debug, and the log has info"},
		"of a bare variable": {"", "routes:\n    - handler: log\n      with:\n        level: ${LOG_TEST_LEVEL}", nil,
			"routes[0].with.level: warning: is debug, and the log has info"},
		"the default": {"log: {level: warn}\n", "routes: [{handler: log}]", nil,
			"routes[0].with.level: warning: is info, and the log has warn"},
		"of a batch": {"log: {level: warn}\n", "batch: {handler: log}", nil,
			"batch.with.level: warning: is info, and the log has warn"},
		"the same": {"log: {level: debug}\n", "routes: [{handler: log, with: {level: debug}}]", nil, ""},
		"another's logger": {"", "routes: [{handler: log}]", &errorsOnly,
			"routes[0].with.level: warning: is info, and the log has error"},
		"another's, not ours": {"log: {level: error}\n", "routes: [{handler: log, with: {level: error}}]", &errorsOnly, ""},
	} {
		root := newRoot(Parts{Adapters: map[string]Adapter{"memory": memory(membroker.New(membroker.Config{}))},
			Logger: want.own}.withDefaults())
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader(want.file + "consumers:\n  o:\n    source: {memory: {topics: [a], group: a}}\n    " +
			want.routes + "\n"))
		root.SetArgs([]string{"config", "check", "-"})
		err := root.ExecuteContext(t.Context())
		got := out.String()
		if err != nil || !strings.Contains(got, want.warned) || strings.Contains(got, "the log has") != (want.warned != "") {
			t.Errorf("%s: %v, want %q in\n%s", text, err, want.warned, got)
		}
	}
}
