package program

import (
	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// An adapter is what a consumer's section source stands for, or one of its sources.
type adapter struct {
	at        string // its path below the consumer: source.nats
	read      config.Read
	prefix    string   // of the package's errors
	topics    []string // what it reads, as far as the file says
	publisher func() (broker.Publisher, error)
	source    func() (broker.Source, error) // nil: there is none, which was found
	// retries reads the topics of retry. nil: the broker keeps delays itself.
	retries func(topics []string) (broker.Source, error)
}

// adaptersOf are those of a consumer's sources; one at least. What is published goes to the first.
func adaptersOf(c *config.Consumer, e config.Embedded) (all []adapter) {
	for _, in := range c.Reads() {
		all = append(all, adapterOf(in, e))
	}
	return all
}

func adapterOf(in config.Read, e config.Embedded) (a adapter) {
	switch {
	case in.NATS != nil:
		a = natsAdapter(in.NATS, e)
		a.at = in.Name + ".nats"
	case in.Kafka != nil:
		a = kafkaAdapter(in.Kafka)
		a.at = in.Name + ".kafka"
	default:
		a = natsAdapter(&config.NATS{}, e) // so that routes can be checked all the same
		a.source = nil
	}
	a.read = in
	return a
}

func natsAdapter(n *config.NATS, e config.Embedded) adapter {
	cfg := natsSource(n, e)
	return adapter{
		prefix: "natsbroker: ", topics: n.Subjects,
		publisher: func() (broker.Publisher, error) {
			return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: cfg.Connection})
		},
		source: func() (broker.Source, error) { return natsbroker.NewSource(cfg) },
	}
}

func kafkaAdapter(k *config.Kafka) adapter {
	cfg := kafkaSource(k)
	return adapter{
		prefix: "kafkabroker: ", topics: k.Topics,
		publisher: func() (broker.Publisher, error) {
			return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: cfg.Connection, MaxMessageBytes: k.MaxPublishBytes})
		},
		source: func() (broker.Source, error) { return kafkabroker.NewSource(cfg) },
		retries: func(topics []string) (broker.Source, error) {
			r := cfg
			r.Group, r.Topics, r.Pattern, r.Start = k.RetryGroup(), topics, "", kafkabroker.Start{}
			return kafkabroker.NewSource(r)
		},
	}
}
