package tracing

import (
	"context"
	"math/rand/v2"

	"github.com/hashicorp/golang-lru/v2"
	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/conftag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// SchemaURL is that of the semantic conventions that the spans follow.
const SchemaURL = "https://opentelemetry.io/schemas/1.44.0"

// scope is the instrumentation's name.
const scope = "github.com/longshoremq/longshore/consumer/tracing"

// A Tracing makes the spans of one consumer. Its methods are safe for concurrent use.
type Tracing struct {
	cfg    Config
	tracer trace.Tracer
	of     broker.Description
	// destinations are what is the same for all spans of a topic, failed the last runs of messages that failed here: both bounded,
	// for whoever may publish says how many there are.
	destinations *lru.Cache[place, *destination]
	failed       *lru.Cache[identity, trace.SpanContext]
}

const (
	maxDestinations = 1 << 10
	maxFailed       = 1 << 12
)

// New makes a Tracing. The error is *broker.Findings.
func New(cfg Config) (*Tracing, error) {
	f := &broker.Findings{Of: "tracing config"}
	conftag.Check(f, cfg)
	if err := f.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	t := &Tracing{cfg: cfg, of: cfg.describe(), tracer: cfg.Provider.Tracer(scope, trace.WithSchemaURL(SchemaURL))}
	t.destinations, _ = lru.New[place, *destination](maxDestinations) // it fails for sizes below 1 only
	t.failed, _ = lru.New[identity, trace.SpanContext](maxFailed)
	return t, nil
}

// Around is for consumer.Config.Around: it makes the span of a call.
func (t *Tracing) Around(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
	if len(ms) == 1 {
		return t.one(ctx, ms[0])
	}
	return t.batch(ctx, ms)
}

// one is the call of one message.
func (t *Tracing) one(ctx context.Context, m *consumer.Message) (context.Context, consumer.End) {
	from := Extract(m.Headers)
	if !t.samples(from, m) {
		return unsampled(ctx, from), nil
	}
	var links []trace.Link
	parent := t.cfg.Relation == Parent && from.IsValid()
	if parent {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	} else {
		links = linkTo(links, from)
	}
	d := t.destination(m)
	opts := append(d.opts[:len(d.opts):len(d.opts)], trace.WithLinks(linkTo(links, t.before(m))...))
	if !parent {
		opts = append(opts, trace.WithNewRoot())
	}
	ctx, span := t.tracer.Start(ctx, d.name, opts...)
	if span.IsRecording() {
		span.SetAttributes(t.describe(m)...)
	}
	return ctx, func(all []consumer.Outcome) { t.end(span, all) }
}

// batch is the call of several messages, which are of one claim.
func (t *Tracing) batch(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
	if !t.samplesAny(ms) {
		return unsampled(ctx, firstOf(ms)), nil
	}
	var links []trace.Link
	for _, m := range ms {
		links = linkTo(linkTo(links, Extract(m.Headers)), t.before(m))
	}
	d := t.destinationOf(ms)
	opts := append(d.opts[:len(d.opts):len(d.opts)], trace.WithNewRoot(), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(ms))))
	ctx, span := t.tracer.Start(ctx, d.name, opts...)
	return ctx, func(all []consumer.Outcome) { t.end(span, all) }
}

// firstOf is the first span there is of the producers of messages.
func firstOf(ms []*consumer.Message) (first trace.SpanContext) {
	for _, m := range ms {
		if first = Extract(m.Headers); first.IsValid() {
			break
		}
	}
	return first
}

// unsampled is ctx with a producer's span that is not sampled, so that what the handler calls is not sampled either.
func unsampled(ctx context.Context, from trace.SpanContext) context.Context {
	if !from.IsValid() {
		return ctx
	}
	from = from.WithTraceFlags(from.TraceFlags().WithSampled(false)) // the producer's yes may be none here (IgnoreProducer)
	return trace.ContextWithRemoteSpanContext(ctx, from)
}

func linkTo(links []trace.Link, sc trace.SpanContext) []trace.Link {
	if !sc.IsValid() {
		return links
	}
	return append(links, trace.Link{SpanContext: sc})
}

// samples says whether the call of a message is traced: as its producer decided, or since the call before was, or by chance.
func (t *Tracing) samples(from trace.SpanContext, m *consumer.Message) bool {
	decided, sampled := t.decided(from, m)
	if decided {
		return sampled
	}
	return t.chance()
}

// samplesAny is samples for a batch: chance has one say for all of them.
func (t *Tracing) samplesAny(ms []*consumer.Message) bool {
	open := t.cfg.Ask
	for _, m := range ms {
		decided, sampled := t.decided(Extract(m.Headers), m)
		if sampled {
			return true
		}
		open = open || !decided
	}
	return open && t.chance()
}

// decided says whether anybody has decided about a message, and how.
func (t *Tracing) decided(from trace.SpanContext, m *consumer.Message) (decided, sampled bool) {
	if t.cfg.Ask {
		return true, true
	}
	if from.IsValid() && !t.cfg.IgnoreProducer {
		return true, from.IsSampled()
	}
	again := (m.Runs > 0 || m.Attempt > 1) && t.before(m).IsSampled()
	return again, again
}

func (t *Tracing) chance() bool { return t.cfg.Sample > 0 && rand.Float64() < t.cfg.Sample } // #nosec G404 -- no secret

// An identity names a message.
type identity struct {
	topic     string
	partition int32
	offset    int64
	id        string
}

func identityOf(m *consumer.Message) identity {
	return identity{m.Topic, m.Partition, m.Offset, m.ID()}
}

// before is the call before in which a message failed, as far as it is known.
func (t *Tracing) before(m *consumer.Message) trace.SpanContext {
	if m.Runs > 0 || m.Attempt > 1 {
		if sc, ok := t.failed.Get(identityOf(m)); ok {
			return sc
		}
	}
	raw, ok := m.Headers.Get(broker.HeaderTrace)
	if !ok {
		return trace.SpanContext{}
	}
	c, ok := parse(raw)
	if !ok {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(c)
}
