package config

import (
	"cmp"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/natssubject"
)

// brokersOwn is what is wrong with a destination that broker.CheckDestination refuses.
const brokersOwn = "is %q, which is the broker's own: what is published there is a command to it, or an answer that somebody " +
	"waits for"

func (cc *consumerCheck) checkDeadLetter() {
	l := cc.DeadLetter
	for i, h := range l.Headers {
		if h == consumer.SpringHeaders && cc.broker().Kafka == nil && cc.broker().Other == nil {
			cc.find(".dead_letter.headers["+strconv.Itoa(i)+"]",
				"is %q and source.kafka is not set: these headers are binary, which other brokers do not take", h)
		}
	}
	cc.checkLetterTarget(".dead_letter.to", l.Topic)
	cc.checkLetterRoutes()
	if k := cc.broker().Kafka; k != nil {
		if most := cmp.Or(k.MaxPublishBytes, defaultPublish); cc.MaxMessageBytes > most {
			cc.find(".max_message_bytes", "is %d, above %s.kafka.max_publish_bytes, %d: a message between could never become a dead "+
				"letter", cc.MaxMessageBytes, cc.Reads()[0].Name, most)
		}
	}
}

// checkLetterTarget: a target of dead letters can be published to, and is not read by the consumer.
func (cc *consumerCheck) checkLetterTarget(key, to string) {
	if to == "" {
		cc.find(key, "is missing")
		return
	}
	if broker.CheckDestination(to) != nil {
		cc.find(key, brokersOwn, to)
		return
	}
	for _, in := range cc.Reads() {
		switch {
		case in.Kafka != nil:
			cc.checkDeadTopic(key, to, in)
		case in.Other == nil: // else only the adapter knows what a name may be
			cc.checkDeadSubject(key, to, in)
		}
	}
}

func (cc *consumerCheck) checkDeadSubject(key, to string, in Read) {
	if !natssubject.Publishable(to) {
		cc.find(key, "is %q: want a subject without wildcards", to)
		return
	}
	section, subjects := in.subjects()
	for i, s := range subjects {
		if natssubject.Matches(s, to) {
			cc.find(key, "is %q, which %s.%s.subjects[%d], %q, takes: dead letters would be consumed again", to, in.Name, section, i, s)
		}
	}
}

func (cc *consumerCheck) checkDeadTopic(key, to string, in Read) {
	if !kafkabroker.ValidTopic(to) {
		cc.find(key, "is %q: want a topic's name", to)
		return
	}
	if where, reads := in.Kafka.reads(to); reads {
		cc.find(key, "is %q, which %s.kafka.%s takes: dead letters would be consumed again", to, in.Name, where)
	}
}
