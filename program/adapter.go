package program

import (
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/internal/panicked"
	"github.com/longshoremq/longshore/program/internal/config"
)

// An adapter is what a consumer's section source stands for, or one of its sources.
type adapter struct {
	at        string // its path below the consumer: source.nats
	read      config.Read
	section   any      // the file's
	topics    []string // what it reads, as far as the file says
	publisher func() (broker.Publisher, error)
	source    func() (broker.Source, error) // nil: there is none, which was found
	// retries reads the topics of retry. nil: the broker keeps delays itself.
	retries func(topics []string) (broker.Source, error)
}

// adapters are those of a consumer's sources; one at least. What is published goes to the first.
func (a *assembly) adapters(at, name string, c *config.Consumer) (all []adapter) {
	setup := AdapterSetup{Consumer: name, Order: consumer.Order(c.Order), Shares: shares(c)}
	for _, in := range c.Reads() {
		if in.Other != nil {
			all = append(all, a.otherAdapter(at, setup, in))
			continue
		}
		all = append(all, adapterOf(in, a.doc.File.Embedded, setup.Shares))
	}
	return all
}

// otherAdapter is one from outside. What it finds wrong is the file's.
func (a *assembly) otherAdapter(at string, s AdapterSetup, in config.Read) adapter {
	made := adapter{at: in.Name + "." + in.Other.Adapter, read: in, publisher: func() (broker.Publisher, error) { return nil, nil }}
	b, err := asked(func() (*Broker, error) {
		return a.parts.Adapters[in.Other.Adapter](s, a.doc.Options(at+"."+made.at, in.Other.With))
	})
	if err == nil && (b == nil || b.Source == nil) {
		err = handlers.OptionErrors{{Problem: "the adapter made no source"}}
	}
	if err != nil {
		a.findOther(at+"."+made.at, err)
		return made // its source is nil
	}
	made.topics, made.retries = b.Topics, b.Retries
	made.source = func() (broker.Source, error) { return b.Source, nil }
	if b.Publisher != nil {
		made.publisher = func() (broker.Publisher, error) {
			p, err := asked(b.Publisher)
			if err != nil {
				a.findOther(at+"."+made.at, err)
			}
			return p, err
		}
	}
	return made
}

// asked is what something from outside makes. With a panic it would have no place in the file.
func asked[T any](to func() (T, error)) (made T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the adapter panicked: %v, at %s", p, panicked.At("/program.asked["))
		}
	}()
	return to()
}

// findOther adds what an adapter from outside found: OptionErrors have paths, Findings have fields, and any other error is of the
// section as a whole.
func (a *assembly) findOther(at string, err error) {
	var list handlers.OptionErrors
	if !errors.As(err, &list) {
		err = config.AsOptions(config.SnakeCase, err)
	}
	a.doc.FindOptions(at, err)
}

// adapterOf is one of longshore's. shares: its source is to tell which part of the work is this process's.
func adapterOf(in config.Read, e config.Embedded, shares bool) (a adapter) {
	switch {
	case in.NATS != nil:
		a = natsAdapter(in.NATS, e, shares)
		a.at = in.Name + ".nats"
	case in.NATSCore != nil:
		a = coreAdapter(in.NATSCore, e)
		a.at = in.Name + ".nats_core"
	case in.Kafka != nil:
		a = kafkaAdapter(in.Kafka)
		a.at = in.Name + ".kafka"
	default:
		a = natsAdapter(&config.NATS{}, e, shares) // so that routes can be checked all the same
		a.source = nil
	}
	a.read = in
	return a
}

func natsAdapter(n *config.NATS, e config.Embedded, shares bool) adapter {
	cfg := n.Adapter(embeddedURL(e))
	cfg.Share = shares
	return adapter{
		section: n, topics: n.Subjects,
		publisher: func() (broker.Publisher, error) {
			return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: cfg.Connection, Domain: cfg.Domain})
		},
		source: func() (broker.Source, error) { return natsbroker.NewSource(cfg) },
	}
}

func coreAdapter(n *config.NATSCore, e config.Embedded) adapter {
	cfg := n.Adapter(embeddedURL(e))
	return adapter{
		section: n, topics: n.Subjects,
		publisher: func() (broker.Publisher, error) {
			return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: cfg.Connection})
		},
		source: func() (broker.Source, error) { return natsbroker.NewCoreSource(cfg) },
	}
}

func kafkaAdapter(k *config.Kafka) adapter {
	cfg := k.Adapter()
	return adapter{
		section: k, topics: k.Topics,
		publisher: func() (broker.Publisher, error) {
			return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{
				Connection: cfg.Connection, MaxMessageBytes: k.MaxPublishBytes, Partitioner: cfg.Partitioner})
		},
		source: func() (broker.Source, error) { return kafkabroker.NewSource(cfg) },
		retries: func(topics []string) (broker.Source, error) {
			r := cfg
			r.Group, r.Topics, r.Pattern, r.Start = k.RetryGroup(), topics, "", kafkabroker.Start{}
			if r.Missing != "stop" { // the consumer would not begin, and what is missing is told as a destination
				r.Missing = "run"
			}
			return kafkabroker.NewSource(r)
		},
	}
}
