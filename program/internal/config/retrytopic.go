package config

import (
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
)

// Names are the topics that hold failed messages.
func (r Retry) Names() (names []string) {
	for _, t := range r.Topics {
		names = append(names, t.Topic)
	}
	return names
}

// RetryGroup is the group that reads the topics of retry.
func (k *Kafka) RetryGroup() string { return k.Group + "-retry" }

// checkRetryTopics: each is written by nobody else, and read by the consumer only as what it is.
func (cc *consumerCheck) checkRetryTopics() {
	const topics = ".retry.topics"
	switch {
	case !cc.has(topics):
		return
	case len(cc.Retry.Topics) == 0:
		cc.find(topics, "is empty")
	case cc.broker().Kafka == nil && cc.broker().Other == nil:
		cc.find(topics, "is set and source.kafka is not: JetStream keeps delays itself")
		return
	}
	names := cc.Retry.Names()
	for i, t := range cc.Retry.Topics {
		key := topics + "[" + strconv.Itoa(i) + "].topic"
		where, reads := cc.reads(t.Topic)
		switch j := slices.Index(names, t.Topic); {
		case !kafkabroker.ValidTopic(t.Topic):
			cc.find(key, "is %q: want a topic's name", t.Topic)
		case broker.CheckDestination(t.Topic) != nil:
			cc.find(key, brokersOwn, t.Topic)
		case j < i: // the engine finds it
		case reads:
			cc.find(key, "is %q, which %s takes: its messages would not wait", t.Topic, where)
		case cc.DeadLetter != nil && cc.DeadLetter.Topic == t.Topic:
			cc.find(key, "is %q, and so is dead_letter.to: dead letters would be consumed again", t.Topic)
		case cc.DeadLetter != nil && slices.Contains(cc.DeadLetter.Targets(), t.Topic):
			cc.find(key, "is %q, to which dead_letter.routes lead, too: dead letters would be consumed again", t.Topic)
		}
	}
}
