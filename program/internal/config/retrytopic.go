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
func (d *Document) checkRetryTopics(at string, c *Consumer) {
	path := at + ".retry.topics"
	switch {
	case !d.Has(path):
		return
	case len(c.Retry.Topics) == 0:
		d.Find(path, "is empty")
	case c.broker().Kafka == nil && c.broker().Other == nil:
		d.Find(path, "is set and source.kafka is not: JetStream keeps delays itself")
		return
	}
	names := c.Retry.Names()
	for i, t := range c.Retry.Topics {
		at := path + "[" + strconv.Itoa(i) + "]"
		where, reads := c.reads(t.Topic)
		switch j := slices.Index(names, t.Topic); {
		case !kafkabroker.ValidTopic(t.Topic):
			d.Find(at+".topic", "is %q: want a topic's name", t.Topic)
		case broker.CheckDestination(t.Topic) != nil:
			d.Find(at+".topic", brokersOwn, t.Topic)
		case j < i:
			d.Find(at+".topic", "is %q, and so is topics[%d]: messages of a topic wait equally long", t.Topic, j)
		case reads:
			d.Find(at+".topic", "is %q, which %s takes: its messages would not wait", t.Topic, where)
		case c.DeadLetter != nil && c.DeadLetter.Topic == t.Topic:
			d.Find(at+".topic", "is %q, and so is dead_letter.to: dead letters would be consumed again", t.Topic)
		case c.DeadLetter != nil && slices.Contains(c.DeadLetter.Targets(), t.Topic):
			d.Find(at+".topic", "is %q, to which dead_letter.routes lead, too: dead letters would be consumed again", t.Topic)
		}
	}
}
