package tracing

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/longshoremq/longshore/consumer"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// systemKafka is broker.Description.System of Kafka, which has attributes of its own.
const systemKafka = "kafka"

// A destination is what is the same for all calls with messages of a topic and partition.
type destination struct {
	name string
	opts []trace.SpanStartOption
}

type place struct {
	topic     string
	partition int32
}

// destination is m's.
func (t *Tracing) destination(m *consumer.Message) *destination {
	at := place{m.Topic, m.Partition}
	if d, ok := t.destinations.Get(at); ok {
		return d
	}
	as := append(t.common("process", "process"), attribute.String("longshore.consumer", text(t.cfg.Name)),
		attribute.String("messaging.destination.name", text(m.Topic)))
	as = append(as, some("messaging.consumer.group.name", t.of.Group)...)
	if m.Partition >= 0 {
		as = append(as, attribute.String("messaging.destination.partition.id", strconv.Itoa(int(m.Partition))))
	}
	name := t.template(m.Topic)
	if name != m.Topic {
		as = append(as, attribute.String("messaging.destination.template", text(name)))
	}
	d := newDestination(name, as)
	t.destinations.Add(at, d)
	return d
}

// destinationOf is that of a batch: its messages' own, or where these are of several topics, that of them all.
func (t *Tracing) destinationOf(ms []*consumer.Message) *destination {
	first := ms[0]
	if !slices.ContainsFunc(ms, func(m *consumer.Message) bool { return m.Topic != first.Topic || m.Partition != first.Partition }) {
		return t.destination(first)
	}
	name := t.template(first.Topic)
	if slices.ContainsFunc(ms, func(m *consumer.Message) bool { return t.template(m.Topic) != name }) {
		name = t.of.Stream
	}
	as := append(t.common("process", "process"), attribute.String("longshore.consumer", text(t.cfg.Name)))
	as = append(append(as, some("messaging.consumer.group.name", t.of.Group)...), some("messaging.destination.template", name)...)
	return newDestination(name, as)
}

func newDestination(name string, as []attribute.KeyValue) *destination {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(as...)}
	return &destination{name: strings.TrimSpace("process " + text(name)), opts: opts}
}

// text is s as a span can have it. A subject may be no UTF-8, and whoever may publish chooses it; a span that has it as it is
// cannot be exported, and takes with it all that are exported together.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// common are the attributes of all spans.
func (t *Tracing) common(name, kind string) []attribute.KeyValue {
	as := []attribute.KeyValue{attribute.String("messaging.operation.name", name),
		attribute.String("messaging.operation.type", kind)}
	as = append(append(as, some("messaging.system", t.of.System)...), some("server.address", t.of.Server)...)
	if t.of.Port > 0 {
		as = append(as, attribute.Int("server.port", t.of.Port))
	}
	return as
}

// some is an attribute that has a value, or none.
func some(key, value string) []attribute.KeyValue {
	if value == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String(key, text(value))}
}

// template is what spans of a topic are named for: the topic itself on Kafka; elsewhere, where there may be any number of them,
// the pattern that takes it, or the stream.
func (t *Tracing) template(topic string) string {
	if t.of.Stream == "" && len(t.of.Patterns) == 0 {
		return topic
	}
	for _, p := range t.of.Patterns {
		if matches(p, topic) {
			return p
		}
	}
	if t.of.Stream != "" {
		return t.of.Stream
	}
	return ">"
}

// matches says whether a pattern of NATS takes a subject: * is one token, > is one or more at the end.
func matches(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, w := range want {
		switch {
		case i >= len(have):
			return false
		case w == ">" && i == len(want)-1:
			return true
		case w != "*" && w != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// describe are the attributes of one message.
func (t *Tracing) describe(m *consumer.Message) []attribute.KeyValue {
	as := make([]attribute.KeyValue, 0, 6)
	kafka := t.of.System == systemKafka
	switch {
	case m.Offset < 0:
		as = append(as, some("messaging.message.id", m.ID())...)
	case kafka:
		as = append(as, attribute.Int64("messaging.kafka.offset", m.Offset))
	case t.of.Stream != "":
		as = append(as, attribute.Int64("messaging.nats.stream.sequence", m.Offset))
	}
	if kafka && m.Value == nil {
		as = append(as, attribute.Bool("messaging.kafka.message.tombstone", true))
	}
	if kafka && t.cfg.Keys && m.Key != nil && utf8.Valid(m.Key) {
		as = append(as, attribute.String("messaging.kafka.message.key", string(m.Key)))
	}
	as = append(as, attribute.Int("messaging.message.body.size", len(m.Value)))
	return append(as, attribute.Int("longshore.attempt", int(max(m.Attempt, m.Runs+1))))
}

// maxStatus is the most of an error's text that a span shows.
const maxStatus = 1 << 10

// end says what became of a call's messages. Of a batch the first that failed speaks for it.
func (t *Tracing) end(span trace.Span, all []consumer.Outcome) {
	failed := slices.IndexFunc(all, func(o consumer.Outcome) bool { return o.Class != "" })
	o := all[max(0, failed)]
	span.SetAttributes(attribute.String("longshore.verdict", o.Verdict.String()))
	if failed >= 0 {
		text := o.Err.Error()
		span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), maxStatus)], ""))
		span.SetAttributes(attribute.String("error.type", o.Class))
	}
	for _, o := range all {
		switch {
		case o.Verdict == consumer.VerdictRetry:
			t.failed.Add(identityOf(o.Message), span.SpanContext())
		case o.Runs > 0:
			t.failed.Remove(identityOf(o.Message))
		}
	}
	span.End()
}
