package tracing

import (
	"cmp"

	"github.com/longshoremq/longshore/broker"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// A Relation says how a call's span stands to the producer's.
type Relation string

const (
	// Link: the call is in a trace of its own, linked to the producer's span.
	Link Relation = "link"
	// Parent: the call of a single message goes on in the producer's trace, below its span. A batch is linked all the same.
	Parent Relation = "parent"
)

// Config is what a Tracing is made of. The zero value is good.
type Config struct {
	// Provider makes the spans; its sampler should sample always (see the package comment). Defaults to the global one.
	Provider trace.TracerProvider
	// Name is the consumer's: longshore.consumer. Defaults to none.
	Name string
	// Source says what its broker, group and server are, where it is a broker.Describer. It is not used otherwise. Defaults to nil.
	Source broker.Source
	// Sample is the share, 0..1, that is traced of the messages whose producer has not decided that. Raise it where there are few.
	// Defaults to 0.01; negative means none.
	Sample float64 `want:"..1"`
	// IgnoreProducer traces Sample of all messages, whatever their producer decided. Defaults to false.
	IgnoreProducer bool
	// Ask leaves each decision to the provider's sampler, and makes Sample and IgnoreProducer void. It costs some microseconds a
	// message. Defaults to false.
	Ask bool
	// Relation of a call's span to the producer's. Defaults to Link.
	Relation Relation `want:"link|parent"`
	// Keys shows messages' keys, where they are text. They may be personal data. Defaults to false.
	Keys bool
}

// DefaultSample is one message of a hundred.
const DefaultSample = 0.01

func (c Config) withDefaults() Config {
	if c.Provider == nil {
		c.Provider = otel.GetTracerProvider()
	}
	c.Sample = max(0, cmp.Or(c.Sample, DefaultSample))
	c.Relation = cmp.Or(c.Relation, Link)
	return c
}

// describe is what the source says of itself.
func (c Config) describe() broker.Description {
	if d, ok := c.Source.(broker.Describer); ok {
		return d.Describe()
	}
	return broker.Description{}
}
