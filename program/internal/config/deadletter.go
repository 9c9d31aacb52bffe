package config

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
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

// checkNoDeadLetter: without dead letters nothing is given up. What sounds as if it were is refused where the message would never
// be handled, and warned of where it may be.
func (cc *consumerCheck) checkNoDeadLetter() {
	const noPlace = "is set, and there is no dead_letter: what is larger has no place to go"
	if cc.MaxMessageBytes > 0 {
		cc.find(".max_message_bytes", noPlace)
	}
	if cc.MaxHeaderBytes > 0 {
		cc.find(".max_header_bytes", noPlace)
	}
	for _, key := range []string{".retry.max_attempts", ".retry.give_up_after"} {
		if cc.has(key) {
			cc.warn(cc.at+key, "is set, and there is no dead_letter: nothing is given up, it is retried for ever, each "+
				"retry.backoff.max")
		}
	}
	if (cc.NoRoute == "" || cc.NoRoute == string(handlers.NoRouteDeadLetter)) && len(cc.Routes) > 0 && !cc.routesTakeAll() {
		cc.warn(cc.at+".no_route", "is dead_letter, and there is no dead_letter: a message that no route takes is retried for ever. "+
			"Set dead_letter, or no_route to skip or stop")
	}
}

// routesTakeAll says whether no message of the sources is without a route, as far as is known what they read.
func (cc *consumerCheck) routesTakeAll() bool {
	takes := func(read string) bool {
		return slices.ContainsFunc(cc.Routes, func(r Route) bool {
			return r.Type == "" && len(r.Headers) == 0 && (read == "" || r.Match == "" || natssubject.Matches(r.Match, read))
		})
	}
	for _, in := range cc.Reads() {
		_, reads := in.subjects()
		if in.Kafka != nil {
			reads = in.Kafka.Topics
		}
		if len(reads) == 0 {
			reads = []string{""} // not known
		}
		if slices.ContainsFunc(reads, func(read string) bool { return !takes(read) }) {
			return false
		}
	}
	return true
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
