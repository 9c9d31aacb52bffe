package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/absence"
)

// ErrLoop says that a message would be published to where it comes from.
var ErrLoop = errors.New("handlers: publishing to the message's own source")

// PublishConfig says where Publish hands messages on to.
type PublishConfig struct {
	// To is the topic or subject. Required; none of the broker's own (broker.CheckDestination).
	To string `yaml:"to"`
	// DropHeaders names headers that are not copied, beside those that longshore and the broker write themselves (Longshore-…,
	// Nats-…). Defaults to none.
	DropHeaders []string `yaml:"drop_headers"`
	// Group names who hands on, among all that may hand on the same messages: a consumer and its group, for example. It is in the
	// IDs: where two groups publish to one stream of JetStream under one ID, what the second publishes is dropped as a repeat. By
	// name it is the Setup's Consumer and Group. Defaults to none.
	Group string `yaml:"-"`
}

func (c PublishConfig) validate(sources []string) (errs OptionErrors) {
	p, err := parsePattern(c.To)
	switch {
	case c.To == "":
		errs.add("to", "is required")
		return errs
	case err != nil:
		errs.add("to", "%v", err)
		return errs
	case strings.ContainsAny(c.To, "*>"):
		errs.add("to", "has a wildcard: want the name of one topic or subject")
		return errs
	}
	if err := broker.CheckDestination(c.To); err != nil {
		errs.add("to", "%v", err)
		return errs
	}
	for _, s := range sources {
		if q, err := parsePattern(s); s == c.To || (err == nil && q.covers(p)) {
			errs.add("to", "%q is read by this consumer (%q): messages would go round for ever", c.To, s)
		}
	}
	return errs
}

// Publish returns a handler that hands each message on: payload and key untouched, headers copied. Where the source is atomic
// and p publishes to its cluster, the copy goes with the ack (consumer.EmitBy). Otherwise it acks after the broker has
// confirmed. A repeat (a crash between the two) has the same ID, by which the broker or a reader can drop it. What the broker
// refuses for good is Permanent; any other failure is retried, a topic that does not exist among them; while that is so, one
// message in 10 s looks for it, and the others fail at once, to be retried then. sources are the topics
// that the consumer reads: To among them is refused, as is, with ErrLoop, a message that comes from To. The caller closes p,
// after Run.
func Publish(p broker.Publisher, sources []string, c PublishConfig) (consumer.Handler, error) {
	if p == nil {
		return nil, errors.New("publish: the publisher is nil")
	}
	if err := c.validate(sources).err(); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	// The target is in the ID because two targets may lie in one stream, which drops the second message with an ID.
	ids := "publish/" + escape(c.To) + "/"
	if c.Group != "" {
		ids += string(appendPart(nil, c.Group)) + "/"
	}
	var absent absence.Topics
	return func(ctx context.Context, m *consumer.Message) error {
		if m.Topic == c.To {
			return consumer.Permanent(fmt.Errorf("%w: %s", ErrLoop, m.Topic))
		}
		if wait, err := absent.Of(c.To); err != nil {
			return consumer.RetryAfter(fmt.Errorf("publishing to %s: %w", c.To, err), wait)
		}
		err := consumer.EmitBy(ctx, p, c.outgoing(m, ids))
		absent.Learn(c.To, err)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("publishing to %s: %w", c.To, err)
		if errors.Is(err, broker.ErrRefused) && !errors.Is(err, broker.ErrNoTopic) {
			return consumer.Permanent(err)
		}
		return err
	}, nil
}

// PublishFactory makes Publish from options, with the Setup's publisher and topics.
func PublishFactory(s *Setup, o Options) (consumer.Handler, error) {
	c := PublishConfig{Group: strings.TrimSuffix(s.Consumer+"/"+s.Group, "/")}
	if err := decodeChecked(o, &c, func() OptionErrors { return c.validate(s.Topics) }); err != nil {
		return nil, err
	}
	if s.Publisher == nil {
		return nil, errors.New("needs a publisher, and this consumer has none")
	}
	return Publish(s.Publisher, s.Topics, c)
}

// outgoing is what m is handed on as. ids begins the IDs.
func (c *PublishConfig) outgoing(m *consumer.Message, ids string) broker.Outgoing {
	o := broker.Outgoing{Topic: c.To, Key: m.Key, Value: m.Value}
	if identified(m) {
		b := make([]byte, 0, 128)
		o.ID = string(appendIdentity(append(b, ids...), m))
	}
	if m.Headers.Codec != nil {
		o.Headers = c.headers(m)
	}
	return o
}

// headers are those of m that are copied.
func (c *PublishConfig) headers(m *consumer.Message) (hs []broker.Header) {
	for k, v := range m.Headers.All() {
		if !c.dropped(k) {
			hs = append(hs, broker.Header{Key: k, Value: v})
		}
	}
	return hs
}

// systemPrefixes begin headers that mean something to longshore or to the NATS server, which acts on them: Nats-Rollup deletes
// what is in a stream, Nats-Msg-Id and Nats-Expected-… say whether a message is stored. A producer's must not be carried over to
// another stream.
var systemPrefixes = []string{strings.ToLower(broker.ReservedPrefix), "nats-"}

func (c *PublishConfig) dropped(name string) bool {
	lower := strings.ToLower(name)
	for _, p := range systemPrefixes {
		if strings.HasPrefix(lower, p) {
			return true
		}
	}
	for _, d := range c.DropHeaders {
		if strings.EqualFold(name, d) {
			return true
		}
	}
	return false
}
