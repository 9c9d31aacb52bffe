package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// headerStyles are the names that dead_letter.headers may have.
var headerStyles = []string{"spring", "connect"}

func (d *Document) checkDeadLetter(at string, c *Consumer) {
	l, path := c.DeadLetter, at+".dead_letter.to"
	d.atLeast(at+".dead_letter.concurrency", int64(l.Concurrency), 1)
	for i, h := range l.Headers {
		path := at + ".dead_letter.headers[" + strconv.Itoa(i) + "]"
		switch {
		case !slices.Contains(headerStyles, h):
			d.Find(path, "is %q, want one of %v", h, headerStyles)
		case h == "spring" && c.Source.Kafka == nil:
			d.Find(path, "is %q and source.kafka is not set: these headers are binary, which other brokers do not take", h)
		}
	}
	switch {
	case l.To == "":
		d.Find(path, "is missing")
	case c.Source.Kafka != nil:
		d.checkDeadTopic(path, l.To, c.Source.Kafka)
		if most := cmp.Or(c.Source.Kafka.MaxPublishBytes, defaultPublish); c.MaxMessageBytes > most {
			d.Find(at+".max_message_bytes", "is %d, above source.kafka.max_publish_bytes, %d: a message between could never become a dead letter", c.MaxMessageBytes, most)
		}
	default:
		d.checkDeadSubject(path, l.To, c.Source.NATS)
	}
}

func (d *Document) checkDeadSubject(path, to string, n *NATS) {
	if !validSubject(to) || strings.ContainsAny(to, "*>") {
		d.Find(path, "is %q: want a subject without wildcards", to)
		return
	}
	if n == nil {
		return
	}
	for i, s := range n.Subjects {
		if Matches(s, to) {
			d.Find(path, "is %q, which source.nats.subjects[%d], %q, takes: dead letters would be consumed again", to, i, s)
		}
	}
}

func (d *Document) checkDeadTopic(path, to string, k *Kafka) {
	if !validTopic(to) {
		d.Find(path, "is %q: want a topic's name", to)
		return
	}
	if where, reads := k.reads(to); reads {
		d.Find(path, "is %q, which source.kafka.%s takes: dead letters would be consumed again", to, where)
	}
}
