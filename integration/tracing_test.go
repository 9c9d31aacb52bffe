package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/deadletters"
)

var writeWays = flag.Bool("ways", false, "write testdata/tracing anew")

// A wayWorld is where the way of a message is traced.
type wayWorld struct {
	in, out, dead string
	source        func() broker.Source
	retries       func() broker.Source // nil: the broker keeps delays
	publisher     broker.Publisher
	store         deadletters.Store
	stored        func(t *testing.T, topic string) []broker.Message
}

const (
	madeIn    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	madeState = "vendor=1,other=2"
)

// TestWayOfATracedMessage: a message fails three times, waits here, at the broker or in a retry topic, becomes a dead letter, is
// replayed, and is handled, by a handler that publishes another one. The spans of all that are those of testdata, and what the
// producer wrote is there to the byte wherever the message went.
func TestWayOfATracedMessage(t *testing.T) {
	for name, world := range map[string]func(*testing.T) wayWorld{"membroker": wayInMemory, "kafka": wayOnKafka, "nats": wayOnNATS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world(t)
			spans := tracetest.NewSpanRecorder()
			traces, err := tracing.New(tracing.Config{
				Name: "orders", Source: w.source(), Provider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), Sample: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			p := traces.Publisher(w.publisher)
			t.Cleanup(func() { _ = p.Close(context.Background()) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			hs := []broker.Header{{Key: "traceparent", Value: []byte(madeIn)}, {Key: "tracestate", Value: []byte(madeState)}}
			if err := w.publisher.Publish(ctx, []broker.Outgoing{{Topic: w.in, Value: []byte("v"), Headers: hs}}); err != nil {
				t.Fatal(err)
			}
			w.consume(ctx, t, traces, p, func(context.Context, *consumer.Message) error { return errors.New("no tea") })
			letters, err := deadletters.New(deadletters.Config{Topic: w.dead, Store: w.store, Publisher: p})
			if err != nil {
				t.Fatal(err)
			}
			if sum, err := letters.Replay(ctx, deadletters.Replay{Allow: func(to string) bool { return to == w.in }}); err != nil ||
				sum.Replayed != 1 {
				t.Fatalf("%+v %v", sum, err)
			}
			w.consume(ctx, t, traces, p, func(ctx context.Context, m *consumer.Message) error {
				return p.Publish(ctx, []broker.Outgoing{{Topic: w.out, Value: m.Value}})
			})
			for _, topic := range []string{w.dead, w.in} {
				all := w.stored(t, topic)
				if len(all) != map[string]int{w.dead: 1, w.in: 2}[topic] {
					t.Errorf("%d messages in %s", len(all), topic)
				}
				for _, m := range all {
					wantHeaders(t, topic, m, madeIn, madeState)
				}
			}
			got := story(spans.Ended())
			ended := spans.Ended()
			last := ended[len(ended)-1].SpanContext() // the call that published
			sent := w.stored(t, w.out)
			if sc := tracing.Extract(sent[0].Headers); sc.TraceID() != last.TraceID() || sc.SpanID() == last.SpanID() || !sc.IsSampled() {
				t.Errorf("what the handler published has %v, its call %v", sc, last)
			}
			golden(t, filepath.Join("testdata", "tracing", name+".txt"), got)
		})
	}
}

func wantHeaders(t *testing.T, topic string, m broker.Message, parent, state string) {
	t.Helper()
	n := 0
	for k, v := range m.Headers.All() {
		switch strings.ToLower(k) {
		case "traceparent":
			if n++; k != "traceparent" || string(v) != parent {
				t.Errorf("%s: %s is %q", topic, k, v)
			}
		case "tracestate":
			if n++; k != "tracestate" || string(v) != state {
				t.Errorf("%s: %s is %q", topic, k, v)
			}
		}
	}
	if n != 2 {
		t.Errorf("%s: %d headers of a trace, want 2", topic, n)
	}
}

// consume runs a consumer until a message was handled or dead-lettered.
func (w wayWorld) consume(ctx context.Context, t *testing.T, traces *tracing.Tracing, p broker.Publisher, h consumer.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := false
	cfg := consumer.Config{
		Name: "orders", Source: w.source(), Handler: h, Around: traces.Around, Pool: consumer.Pool{Min: 1,
			Max: 1}, Logger: zerolog.Nop(),
		Retry: consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: 20 * time.Millisecond, Factor: 10, Jitter: -1}},
		DeadLetter: &consumer.DeadLetter{
			Publisher: p, Topic: w.dead,
		},
		Observers: []consumer.Observer{func(e consumer.Event) {
			switch e.(type) {
			case consumer.Handled, consumer.DeadLettered:
				done = true
				stop()
			}
		}},
	}
	if w.retries != nil {
		cfg.Retry.Topics = &consumer.RetryTopics{Publisher: p, Source: w.retries(), Steps: []consumer.RetryStep{
			{Topic: w.in + "-1", Delay: 100 * time.Millisecond}, {Topic: w.in + "-2", Delay: 300 * time.Millisecond},
		}}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil || !done {
		t.Fatalf("done: %v, %v", done, err)
	}
}

// story tells of spans in the order in which they began, with names for their ids.
func story(ended []sdk.ReadOnlySpan) string {
	ended = slices.Clone(ended)
	slices.SortStableFunc(ended, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	names := map[string]string{"0af7651916cd43dd8448eb211c80319c": "producer's", "b7ad6b7169203331": "producer",
		"0000000000000000": "-"}
	name := func(id fmt.Stringer, kind string) string {
		if names[id.String()] == "" {
			names[id.String()] = fmt.Sprint(kind, len(names)-2)
		}
		return names[id.String()]
	}
	var b strings.Builder
	for _, s := range ended {
		fmt.Fprintf(&b, "%s (%v)\n  trace %s, span %s, parent %s\n", s.Name(), s.SpanKind(), name(s.SpanContext().TraceID(), "t"),
			name(s.SpanContext().SpanID(), "s"),
			name(s.Parent().SpanID(), "s"))
		for _, l := range s.Links() {
			fmt.Fprintf(&b, "  link to trace %s, span %s\n", name(l.SpanContext.TraceID(), "t"), name(l.SpanContext.SpanID(), "s"))
		}
		attributes := map[string]string{}
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
			if a.Key == "server.port" {
				attributes[string(a.Key)] = "PORT"
			}
		}
		for _, k := range slices.Sorted(maps.Keys(attributes)) {
			fmt.Fprintf(&b, "  %s: %s\n", k, attributes[k])
		}
		if st := s.Status(); st.Description != "" {
			fmt.Fprintf(&b, "  %v: %s\n", st.Code, st.Description)
		}
	}
	return b.String()
}

// golden compares with a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *writeWays {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, file); got != want {
		t.Errorf("%s has\n%s\nbut this was traced (go test -run WayOf -ways writes it):\n%s", file, want, got)
	}
}

func wayInMemory(*testing.T) wayWorld {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "in-1": 1, "in-2": 1, "out": 1, "dead": 1}})
	source := func(group string, topics ...string) func() broker.Source {
		return func() broker.Source { return b.Source(membroker.SourceConfig{Group: group, Topics: topics}) }
	}
	return wayWorld{
		in: "in", out: "out", dead: "dead", source: source("g", "in"), retries: source("g-retries", "in-1", "in-2"),
		publisher: b.Publisher(), store: b.LogView(),
		stored: func(_ *testing.T, topic string) []broker.Message { return b.Messages(topic) },
	}
}

func wayOnKafka(t *testing.T) wayWorld {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "in", "in-1", "in-2", "out", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	conn := kafkabroker.Connection{Brokers: cluster.ListenAddrs()}
	source := func(group string, topics ...string) func() broker.Source {
		return func() broker.Source {
			s, err := kafkabroker.NewSource(kafkabroker.Config{Connection: conn, Group: group, Topics: topics})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: conn})
	if err != nil {
		t.Fatal(err)
	}
	view, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: conn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Close)
	return wayWorld{in: "in", out: "out", dead: "dead", source: source("g", "in"), retries: source("g-retries", "in-1", "in-2"),
		publisher: p, store: view, stored: scanned(view)}
}

func wayOnNATS(t *testing.T) wayWorld {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true,
		NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"ORDERS": "orders.>", "OUT": "out", "DEAD": "dead.>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	conn := natsbroker.Connection{URLs: []string{s.ClientURL()}}
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: conn})
	if err != nil {
		t.Fatal(err)
	}
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: conn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Close)
	source := func() broker.Source {
		s, err := natsbroker.NewSource(natsbroker.Config{Connection: conn, Stream: "ORDERS", Consumer: "workers",
			Subjects: []string{"orders.*"}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return wayWorld{in: "orders.new", out: "out", dead: "dead.orders", source: source, publisher: p, store: view,
		stored: scanned(view)}
}

// scanned reads what a topic has.
func scanned(view interface {
	Scan(context.Context, broker.Scan, func(*broker.Message) error) (broker.Scanned, error)
}) func(t *testing.T, topic string) []broker.Message {
	return func(t *testing.T, topic string) (all []broker.Message) {
		t.Helper()
		var mu sync.Mutex
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := view.Scan(ctx, broker.Scan{Topic: topic}, func(m *broker.Message) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, *m.Clone())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
}
