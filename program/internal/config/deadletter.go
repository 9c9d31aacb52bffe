package config

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
)

// brokersOwn is what is wrong with a destination that broker.CheckDestination refuses.
const brokersOwn = "is %q, which is the broker's own: what is published there is a command to it, or an answer that somebody " +
	"waits for"

func (d *Document) checkDeadLetter(at string, c *Consumer) {
	l := c.DeadLetter
	for i, h := range l.Headers {
		if h == consumer.SpringHeaders && c.broker().Kafka == nil && c.broker().Other == nil {
			d.Find(at+".dead_letter.headers["+strconv.Itoa(i)+"]",
				"is %q and source.kafka is not set: these headers are binary, which other brokers do not take", h)
		}
	}
	d.checkLetterTarget(at+".dead_letter.to", l.Topic, c)
	d.checkLetterRoutes(at+".dead_letter.routes", c)
	if k := c.broker().Kafka; k != nil {
		if most := cmp.Or(k.MaxPublishBytes, defaultPublish); c.MaxMessageBytes > most {
			d.Find(at+".max_message_bytes", "is %d, above %s.kafka.max_publish_bytes, %d: a message between could never become a dead "+
				"letter", c.MaxMessageBytes, c.Reads()[0].Name, most)
		}
	}
}

// checkLetterTarget: a target of dead letters can be published to, and is not read by the consumer.
func (d *Document) checkLetterTarget(path, to string, c *Consumer) {
	if to == "" {
		d.Find(path, "is missing")
		return
	}
	if broker.CheckDestination(to) != nil {
		d.Find(path, brokersOwn, to)
		return
	}
	for _, in := range c.Reads() {
		switch {
		case in.Kafka != nil:
			d.checkDeadTopic(path, to, in)
		case in.Other == nil: // else only the adapter knows what a name may be
			d.checkDeadSubject(path, to, in)
		}
	}
}

func (d *Document) checkDeadSubject(path, to string, in Read) {
	if !validSubject(to) || strings.ContainsAny(to, "*>") {
		d.Find(path, "is %q: want a subject without wildcards", to)
		return
	}
	key, subjects := in.subjects()
	for i, s := range subjects {
		if Matches(s, to) {
			d.Find(path, "is %q, which %s.%s.subjects[%d], %q, takes: dead letters would be consumed again", to, in.Name, key, i, s)
		}
	}
}

func (d *Document) checkDeadTopic(path, to string, in Read) {
	if !kafkabroker.ValidTopic(to) {
		d.Find(path, "is %q: want a topic's name", to)
		return
	}
	if where, reads := in.Kafka.reads(to); reads {
		d.Find(path, "is %q, which %s.kafka.%s takes: dead letters would be consumed again", to, in.Name, where)
	}
}
