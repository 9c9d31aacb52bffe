package program

import (
	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// An adapter is what a consumer's section source stands for.
type adapter struct {
	section   string   // its path below the consumer
	prefix    string   // of the package's errors
	topics    []string // what it reads, as far as the file says
	publisher func() (broker.Publisher, error)
	source    func() (broker.Source, error) // nil: there is none, which was found
	// retries reads the topics of retry. nil: the broker keeps delays itself.
	retries func(topics []string) (broker.Source, error)
}

func adapterOf(s config.Source, e config.Embedded) adapter {
	switch {
	case s.NATS != nil:
		return natsAdapter(s.NATS, e)
	case s.Kafka != nil:
		return kafkaAdapter(s.Kafka)
	}
	none := natsAdapter(&config.NATS{}, e) // so that routes can be checked all the same
	none.source = nil
	return none
}

func natsAdapter(n *config.NATS, e config.Embedded) adapter {
	cfg := natsSource(n, e)
	return adapter{
		section: ".source.nats", prefix: "natsbroker: ", topics: n.Subjects,
		publisher: func() (broker.Publisher, error) {
			return natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: cfg.Connection})
		},
		source: func() (broker.Source, error) { return natsbroker.NewSource(cfg) },
	}
}

func kafkaAdapter(k *config.Kafka) adapter {
	cfg := kafkaSource(k)
	return adapter{
		section: ".source.kafka", prefix: "kafkabroker: ", topics: k.Topics,
		publisher: func() (broker.Publisher, error) {
			return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: cfg.Connection, MaxMessageBytes: k.MaxPublishBytes})
		},
		source: func() (broker.Source, error) { return kafkabroker.New(cfg) },
		retries: func(topics []string) (broker.Source, error) {
			r := cfg
			r.Group, r.Topics, r.Pattern, r.Start = k.RetryGroup(), topics, "", kafkabroker.Start{}
			return kafkabroker.New(r)
		},
	}
}
