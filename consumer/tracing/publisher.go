package tracing

import (
	"context"
	"slices"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Publisher is p with a span for each Publish whose context has one that is sampled, and with that span's context in the
// messages. Those that are themselves on their way again, as dead letters, replays, or to a retry topic, keep the context that
// they came with; a letter gets Longshore-Trace, the span of the call that failed. It is a broker.Destinations where p is one.
func (t *Tracing) Publisher(p broker.Publisher) broker.Publisher {
	own := &publisher{p, t}
	if where, ok := p.(broker.Destinations); ok {
		return &placedPublisher{own, where}
	}
	return own
}

type publisher struct {
	broker.Publisher
	t *Tracing
}

// placedPublisher has the ability of the one inside.
type placedPublisher struct {
	*publisher
	broker.Destinations
}

// Unwrap implements broker.Wrapper.
func (p *publisher) Unwrap() broker.Publisher { return p.Publisher }

// Prepare implements broker.Wrapper: the messages carry the span of the call itself, since there is none of a publish.
func (p *publisher) Prepare(ctx context.Context, ms []broker.Outgoing) []broker.Outgoing {
	call := trace.SpanContextFromContext(ctx)
	if !call.IsValid() {
		return ms
	}
	return carrying(ms, call, call)
}

// Publish implements broker.Publisher.
func (p *publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	call := trace.SpanContextFromContext(ctx)
	if !call.IsValid() || len(ms) == 0 {
		return p.Publisher.Publish(ctx, ms)
	}
	if !call.IsSampled() && !p.t.cfg.Ask {
		return p.Publisher.Publish(ctx, carrying(ms, call, call))
	}
	again := !slices.ContainsFunc(ms, func(o broker.Outgoing) bool { return !isAgain(o) })
	kind := trace.SpanKindProducer
	if again { // what it carries is not this span
		kind = trace.SpanKindClient
	}
	name, as := p.t.sending(ms)
	ctx, span := p.t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(as...))
	defer span.End()
	err := p.Publisher.Publish(ctx, carrying(ms, span.SpanContext(), call))
	if err != nil {
		text := err.Error()
		span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), maxStatus)], ""))
		span.SetAttributes(attribute.String("error.type", "publish"))
	}
	return err
}

// sending are the name and the attributes of a publish.
func (t *Tracing) sending(ms []broker.Outgoing) (string, []attribute.KeyValue) {
	as, topic := t.common("send", "send"), ms[0].Topic
	if len(ms) > 1 {
		as = append(as, attribute.Int("messaging.batch.message_count", len(ms)))
	}
	if slices.ContainsFunc(ms, func(o broker.Outgoing) bool { return o.Topic != topic }) {
		return "send", as
	}
	topic = text(topic)
	return "send " + topic, append(as, attribute.String("messaging.destination.name", topic))
}

// carrying is ms with the context of a trace in each; what is on its way again gets the call that it failed in.
func carrying(ms []broker.Outgoing, sc, call trace.SpanContext) []broker.Outgoing {
	out := slices.Clone(ms)
	for i, o := range out {
		switch {
		case !isAgain(o):
			out[i].Headers = put(o.Headers, headersOf(sc))
		case isLetter(o) && call.IsSampled():
			out[i].Headers = put(o.Headers, []broker.Header{{Key: broker.HeaderTrace, Value: format(call)}})
		}
	}
	return out
}

// isAgain says whether a message was published before, and is now a dead letter, a replay, or on its way to a retry topic.
func isAgain(o broker.Outgoing) bool {
	return isLetter(o) || has(o, broker.HeaderReplays)
}

func isLetter(o broker.Outgoing) bool { return has(o, broker.HeaderErrorClass) }

func has(o broker.Outgoing, key string) bool {
	return slices.ContainsFunc(o.Headers, func(h broker.Header) bool { return h.Key == key })
}
