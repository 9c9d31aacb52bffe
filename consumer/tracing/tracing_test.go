package tracing_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// recorded makes a Tracing whose spans are kept.
func recorded(t *testing.T, cfg tracing.Config) (*tracing.Tracing, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	cfg.Provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	traces, err := tracing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return traces, spans
}

func traced(value, parent string) broker.Outgoing {
	o := broker.Outgoing{Topic: "in", Value: []byte(value)}
	if parent != "" {
		o.Headers = []broker.Header{{Key: "traceparent", Value: []byte(parent)}}
	}
	return o
}

func produce(t *testing.T, b *membroker.Broker, ms ...broker.Outgoing) {
	t.Helper()
	for _, m := range ms {
		if err := b.Produce(m); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a consumer for so long, and wants it to end well.
func run(t *testing.T, b *membroker.Broker, d time.Duration, cfg consumer.Config) {
	t.Helper()
	if cfg.Source == nil {
		cfg.Source = b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	}
	if cfg.Logger.GetLevel() == 0 && !cfg.Logger.Error().Enabled() {
		cfg.Logger = zerolog.Nop()
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// valueOf is an attribute as text; "" where there is none.
func valueOf(s sdk.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// producerOf is the number in the span that a call's span is linked to first: the producer's.
func producerOf(s sdk.ReadOnlySpan) int {
	if len(s.Links()) == 0 {
		return 0
	}
	id := s.Links()[0].SpanContext.SpanID()
	return int(binary.BigEndian.Uint64(id[:]))
}

// However a call ends, it has one span, which has ended, with the class of its failure and what becomes of its message.
func TestEachCallHasASpan(t *testing.T) {
	want := map[string]string{
		"ok": "ack//Unset/1", "skip": "ack//Unset/1", "error": "retry/error/Error/1 ack//Unset/2",
		"permanent": "dead_letter/permanent/Error/1",
		"panic":     "retry/panic/Error/1 ack//Unset/2", "goexit": "retry/goexit/Error/1 ack//Unset/2",
		"timeout": "retry/timeout/Error/1 ack//Unset/2",
		"stuck":   "retry/timeout/Error/1 ack//Unset/2", "defer": "defer//Unset/1 ack//Unset/1",
		"oversize": "dead_letter/oversize/Error/1",
	}
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		names := map[int]string{}
		for name := range want {
			names[len(names)+1] = name
			if name == "oversize" {
				name += strings.Repeat("!", 100)
			}
			produce(t, b, traced(name, fmt.Sprintf("%s%016x-01", sampled[:36], len(names))))
		}
		traces, spans := recorded(t, tracing.Config{Name: "orders"})
		deferred := false
		run(t, b, 2*time.Minute, consumer.Config{
			Around: traces.Around, MaxMessageBytes: 50, Timeout: time.Second, StuckAfter: time.Second, Pool: consumer.Pool{Min: 1, Max: 1},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if m.Runs > 0 {
					return nil
				}
				switch string(m.Value) {
				case "skip":
					return consumer.Skip("old")
				case "error":
					return errors.New("no tea")
				case "permanent":
					return consumer.Permanent(errors.New("no tea"))
				case "panic":
					panic("no tea")
				case "goexit":
					runtime.Goexit()
				case "timeout":
					<-ctx.Done()
					return ctx.Err()
				case "stuck":
					time.Sleep(time.Minute)
				case "defer":
					if !deferred {
						deferred = true
						return consumer.Defer(time.Second, nil)
					}
				}
				return nil
			}})
		if n, m := len(spans.Started()), len(spans.Ended()); n != m {
			t.Errorf("%d spans were started, %d ended", n, m)
		}
		got := map[string]string{}
		for _, s := range spans.Ended() {
			if s.Name() != "process in" || s.SpanKind() != trace.SpanKindConsumer || valueOf(s, "longshore.consumer") != "orders" {
				t.Errorf("%s %v %v", s.Name(), s.SpanKind(), s.Attributes())
			}
			name := names[producerOf(s)]
			got[name] = strings.TrimSpace(fmt.Sprintf("%s %s/%s/%v/%s", got[name], valueOf(s, "longshore.verdict"),
				valueOf(s, "error.type"), s.Status().Code,
				valueOf(s, "longshore.attempt")))
		}
		for name, w := range want {
			if got[name] != w {
				t.Errorf("%s: %q, want %q", name, got[name], w)
			}
		}
	})
}

// A batch that is not sampled hands on its producers' no, as a message does: what its handler calls is not sampled either.
func TestUnsampledBatchHandsItOn(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  tracing.Config
		from []string
		want bool // there is somebody's no
	}{
		"the producers' no": {tracing.Config{Sample: -1}, []string{"", unsampled}, true},
		"our own no":        {tracing.Config{Sample: -1, IgnoreProducer: true}, []string{sampled, sampled}, true},
		"nobody's":          {tracing.Config{Sample: -1}, []string{"", ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			traces, _ := recorded(t, c.cfg)
			var ms []*consumer.Message
			for _, from := range c.from {
				m := &consumer.Message{Topic: "in"}
				if from != "" {
					m.Headers = broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(from)})
				}
				ms = append(ms, m)
			}
			ctx, end := traces.Around(t.Context(), ms)
			got := trace.SpanContextFromContext(ctx)
			if end != nil || got.IsSampled() || got.IsValid() != c.want || got.IsRemote() != c.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A batch is one span, linked to the producer of each message, with their number.
func TestBatchIsOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		for i := range 3 {
			produce(t, b, traced("v", fmt.Sprintf("%s%016x-01", sampled[:36], i+1)))
		}
		traces, spans := recorded(t, tracing.Config{Sample: -1})
		first := true
		run(t, b, time.Minute, consumer.Config{Around: traces.Around,
			Batch: &consumer.Batch{Size: 3, Handler: func(_ context.Context, ms []*consumer.Message) error {
				if !first {
					return nil
				}
				first = false
				return &consumer.BatchError{Errs: []error{nil, errors.New("no tea"), nil}}
			}}})
		ended := spans.Ended()
		if len(ended) != 2 {
			t.Fatalf("%d spans", len(ended))
		}
		s := ended[0]
		if len(s.Links()) != 3 || valueOf(s, "messaging.batch.message_count") != "3" || s.Parent().IsValid() ||
			valueOf(s, "error.type") != "error" ||
			valueOf(s, "longshore.verdict") != "retry" {
			t.Errorf("links %v, attributes %v", s.Links(), s.Attributes())
		}
		if links := ended[1].Links(); len(links) != 2 || producerOf(ended[1]) != 2 ||
			links[1].SpanContext.SpanID() != s.SpanContext().SpanID() {
			t.Errorf("the one that failed comes again alone, linked to its producer and to the batch: %v", links)
		}
	})
}

// Who decides what is sampled.
func TestSampling(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		cfg  tracing.Config
		head string
		want bool
	}{
		"the producer's yes":         {tracing.Config{Sample: -1}, sampled, true},
		"the producer's no":          {tracing.Config{Sample: 1}, unsampled, false},
		"nobody has decided: all":    {tracing.Config{Sample: 1}, "", true},
		"nobody has decided: none":   {tracing.Config{Sample: -1}, "", false},
		"malformed is not decided":   {tracing.Config{Sample: 1}, "00-no", true},
		"whatever the producer says": {tracing.Config{Sample: 1, IgnoreProducer: true}, unsampled, true},
		"and none":                   {tracing.Config{Sample: -1, IgnoreProducer: true}, sampled, false},
		"the SDK is asked":           {tracing.Config{Sample: -1, Ask: true}, unsampled, true},
	} {
		traces, spans := recorded(t, c.cfg)
		m := &consumer.Message{Topic: "in", Attempt: 1}
		if c.head != "" {
			m.Headers = broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(c.head)})
		}
		got, end := traces.Around(ctx, []*consumer.Message{m})
		if (end != nil) != c.want || len(spans.Started()) != map[bool]int{true: 1}[c.want] {
			t.Errorf("%s: %d spans", name, len(spans.Started()))
		}
		if sc := trace.SpanContextFromContext(got); !c.want && c.head == unsampled &&
			(sc.IsSampled() || sc.TraceID().String() != sampled[3:35]) {
			t.Errorf("%s: the handler's context has %+v", name, sc)
		}
		if end != nil {
			end([]consumer.Outcome{{Message: m}})
		}
	}
	traces, spans := recorded(t, tracing.Config{Sample: 0.25})
	for range 4000 {
		if _, end := traces.Around(ctx, []*consumer.Message{{Topic: "in", Attempt: 1}}); end != nil {
			end([]consumer.Outcome{{Message: &consumer.Message{}}})
		}
	}
	if n := len(spans.Ended()); n < 800 || n > 1200 { // more than seven deviations away
		t.Errorf("%d of 4000 at a quarter", n)
	}
}

// What the handler of a message publishes has no span where its call has none, though the producer's span was sampled and counts
// for nothing here.
func TestIgnoredProducerIsIgnoredInWhatIsPublished(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"out": 1}})
	traces, spans := recorded(t, tracing.Config{Sample: -1, IgnoreProducer: true})
	m := &consumer.Message{Topic: "in", Headers: broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(sampled)})}
	ctx, _ := traces.Around(t.Context(), []*consumer.Message{m})
	if err := traces.Publisher(b.Publisher()).Publish(ctx, []broker.Outgoing{{Topic: "out"}}); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.Started()); n != 0 {
		t.Errorf("%d spans", n)
	}
	sc := tracing.Extract(b.Messages("out")[0].Headers)
	if sc.IsSampled() || sc.TraceID().String() != sampled[3:35] {
		t.Errorf("what it published carries %+v, want the producer's trace, not sampled", sc)
	}
}

// The producer's span is the parent where that was chosen; otherwise no span is, not even one around Run.
func TestRelation(t *testing.T) {
	m := &consumer.Message{Topic: "in", Headers: broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(sampled)})}
	for relation, want := range map[tracing.Relation]string{tracing.Link: "0000000000000000", tracing.Parent: sampled[36:52]} {
		traces, spans := recorded(t, tracing.Config{Relation: relation})
		ctx, around := sdk.NewTracerProvider().Tracer("test").Start(t.Context(), "the program")
		_, end := traces.Around(ctx, []*consumer.Message{m})
		end([]consumer.Outcome{{Message: m}})
		around.End()
		s := spans.Ended()[0]
		if s.Parent().SpanID().String() != want || (relation == tracing.Link) != (len(s.Links()) == 1) {
			t.Errorf("%s: parent %v, links %v", relation, s.Parent().SpanID(), s.Links())
		}
	}
}

// What is not sampled costs next to nothing: no allocation without a producer's span, and two with one, for the handler's
// context.
func TestUnsampledAllocations(t *testing.T) {
	traces, err := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider(), Sample: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := broker.NewHeaders(broker.Header{Key: "a", Value: []byte("1")}, broker.Header{Key: "traceparent", Value: []byte(unsampled)})
	for want, m := range map[float64]*consumer.Message{0: {Topic: "in", Attempt: 1}, 2: {Topic: "in", Attempt: 1, Headers: h}} {
		ms := []*consumer.Message{m}
		if n := testing.AllocsPerRun(1000, func() { _, _ = traces.Around(t.Context(), ms) }); n > want {
			t.Errorf("%v allocations, want %v", n, want)
		}
	}
}

// A publish from a sampled call has a span below it, and carries its own context; a dead letter keeps the one that its message
// has.
func TestPublisher(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"out": 1, "dead": 1}})
	traces, spans := recorded(t, tracing.Config{Sample: 1})
	p := traces.Publisher(b.Publisher())
	m := &consumer.Message{Topic: "in"}
	ctx, end := traces.Around(t.Context(), []*consumer.Message{m})
	call := trace.SpanContextFromContext(ctx)
	copied := []broker.Header{{Key: "traceparent", Value: []byte(sampled)}}
	letter := append(copied, broker.Header{Key: broker.HeaderErrorClass, Value: []byte("error")},
		broker.Header{Key: broker.HeaderTrace, Value: []byte("old")})
	replay := append(copied, broker.Header{Key: broker.HeaderReplays, Value: []byte("1")})
	for _, o := range []broker.Outgoing{{Topic: "out", Headers: copied}, {Topic: "dead", Headers: letter},
		{Topic: "out", Headers: replay}} {
		if err := p.Publish(ctx, []broker.Outgoing{o}); err != nil {
			t.Fatal(err)
		}
	}
	end([]consumer.Outcome{{Message: m}})
	out, dead := b.Messages("out"), b.Messages("dead")
	sent := tracing.Extract(out[0].Headers)
	ended := spans.Ended()
	if s := ended[0]; s.Name() != "send out" || s.SpanKind() != trace.SpanKindProducer || s.Parent().SpanID() != call.SpanID() ||
		sent.SpanID() != s.SpanContext().SpanID() {
		t.Errorf("%s %v below %v; the message has %v", s.Name(), s.SpanKind(), s.Parent().SpanID(), sent.SpanID())
	}
	if s := ended[1]; s.Name() != "send dead" || s.SpanKind() != trace.SpanKindClient || s.Parent().SpanID() != call.SpanID() {
		t.Errorf("%s %v below %v", s.Name(), s.SpanKind(), s.Parent().SpanID())
	}
	for _, m := range []broker.Message{dead[0], out[1]} {
		if v, _ := m.Headers.Get("traceparent"); string(v) != sampled {
			t.Errorf("what is on its way again has %q", v)
		}
	}
	if v, _ := dead[0].Headers.Get(broker.HeaderTrace); !strings.HasPrefix(string(v), "00-"+call.TraceID().String()+"-"+
		call.SpanID().String()) || dead[0].Headers.Len() != 3 {
		t.Errorf("the letter's %s is %q, of %d headers", broker.HeaderTrace, v, dead[0].Headers.Len())
	}
	if broker.Innermost(p) == p {
		t.Error("the publisher inside cannot be found")
	}
}

// refusing is a publisher that fails.
type refusing struct{ broker.Publisher }

func (refusing) Publish(context.Context, []broker.Outgoing) error { return broker.ErrRefused }

func TestPublishThatFails(t *testing.T) {
	traces, spans := recorded(t, tracing.Config{Sample: 1})
	ctx, end := traces.Around(t.Context(), []*consumer.Message{{}})
	if err := traces.Publisher(refusing{}).Publish(ctx, []broker.Outgoing{{Topic: "a"}, {Topic: "b"}}); !errors.Is(err,
		broker.ErrRefused) {
		t.Error(err)
	}
	end([]consumer.Outcome{{Message: &consumer.Message{}}})
	if s := spans.Ended()[0]; s.Name() != "send" || s.Status().Code != codes.Error ||
		valueOf(s, "messaging.batch.message_count") != "2" {
		t.Errorf("%s %v %v", s.Name(), s.Status(), s.Attributes())
	}
}

// What the engine logs of a failure, and of its dead letter, has the span of the call.
func TestLogHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
		produce(t, b, traced("v", sampled), traced("not", unsampled))
		traces, spans := recorded(t, tracing.Config{})
		var out bytes.Buffer
		run(t, b, time.Minute, consumer.Config{
			Around: traces.Around, Logger: zerolog.New(zerolog.SyncWriter(&out)).Hook(zerolog.HookFunc(tracing.LogHook)),
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no tea")) },
		})
		call := spans.Ended()[0].SpanContext()
		seen := map[string]int{}
		for line := range strings.Lines(out.String()) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e["offset"] == 0.0 && e["trace_id"] == call.TraceID().String() && e["span_id"] == call.SpanID().String() {
				seen[e["event"].(string)]++
			}
		}
		if seen["failed"] != 1 || seen["dead_lettered"] != 1 {
			t.Errorf("with the call's span: %v\n%s", seen, &out)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := tracing.New(tracing.Config{Sample: 2, Relation: "child"}); err == nil || !strings.Contains(err.Error(), "Sample") ||
		!strings.Contains(err.Error(), "Relation") {
		t.Error(err)
	}
}

func BenchmarkAround(b *testing.B) {
	for name, head := range map[string]string{"no header": "", "unsampled": unsampled} {
		b.Run(name, func(b *testing.B) {
			traces, err := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider()})
			if err != nil {
				b.Fatal(err)
			}
			m := &consumer.Message{Topic: "in", Attempt: 1}
			if head != "" {
				m.Headers = broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(head)})
			}
			ms, ctx := []*consumer.Message{m}, context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, end := traces.Around(ctx, ms); end != nil {
					end([]consumer.Outcome{{Message: m}})
				}
			}
		})
	}
}

// What goes with the ack, where the broker can have it so, carries the same as what is published: an output the span of its
// call, a dead letter that of the call that failed.
func TestEmittedCarriesTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}, Atomic: true})
		produce(t, b, traced("good", sampled), traced("bad", sampled))
		traces, spans := recorded(t, tracing.Config{})
		p := traces.Publisher(b.Publisher())
		run(t, b, time.Minute, consumer.Config{
			Around: traces.Around, DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if string(m.Value) == "bad" {
					return consumer.Permanent(errors.New("no tea"))
				}
				return consumer.EmitBy(ctx, p, broker.Outgoing{Topic: "out", Value: m.Value})
			}})
		calls := map[string]string{}
		for _, s := range spans.Ended() {
			if s.Name() != "process in" {
				t.Errorf("a span %s", s.Name())
			}
			calls[valueOf(s, "longshore.verdict")] = fmt.Sprintf("00-%s-%s-", s.SpanContext().TraceID(), s.SpanContext().SpanID())
		}
		out, dead := b.Messages("out"), b.Messages("dead")
		if len(out) != 1 || len(dead) != 1 {
			t.Fatalf("%d outputs, %d letters", len(out), len(dead))
		}
		if v, _ := out[0].Headers.Get("traceparent"); !strings.HasPrefix(string(v), calls["ack"]) {
			t.Errorf("the output has %s, its call %s", v, calls["ack"])
		}
		if v, _ := dead[0].Headers.Get("traceparent"); string(v) != sampled {
			t.Errorf("the letter has %s", v)
		}
		if v, _ := dead[0].Headers.Get(broker.HeaderTrace); !strings.HasPrefix(string(v), calls["dead_letter"]) {
			t.Errorf("the letter's %s is %s, its call %s", broker.HeaderTrace, v, calls["dead_letter"])
		}
	})
}

// TestOddNamesInSpans: a subject, an ID and a group may be no text, for whoever may publish chooses the subject. A span that says
// so cannot be exported, and takes all with it that are exported together.
func TestOddNamesInSpans(t *testing.T) {
	traces, spans := recorded(t, tracing.Config{Sample: 1})
	for _, ms := range [][]*consumer.Message{
		{{Topic: "in.\xff", Partition: -1, Offset: -1, Name: "id\xff"}},
		{{Topic: "in.\xff", Offset: 1}, {Topic: "in.\xff", Offset: 2}},
	} {
		_, end := traces.Around(t.Context(), ms)
		end(make([]consumer.Outcome, len(ms)))
	}
	ctx, _ := traces.Around(t.Context(), []*consumer.Message{{Topic: "in"}})
	b := membroker.New(membroker.Config{})
	if err := traces.Publisher(b.Publisher()).Publish(ctx, []broker.Outgoing{{Topic: "out.\xff"}}); err != nil {
		t.Log(err) // perhaps nobody takes it
	}
	if len(spans.Ended()) != 3 {
		t.Errorf("%d spans, want 3", len(spans.Ended()))
	}
	for _, s := range spans.Ended() {
		if !utf8.ValidString(s.Name()) {
			t.Errorf("the name is %q", s.Name())
		}
		for _, a := range s.Attributes() {
			if !utf8.ValidString(a.Value.String()) {
				t.Errorf("%s of %q is %q", a.Key, s.Name(), a.Value.String())
			}
		}
	}
}
