package config

import (
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/internal/natssubject"
)

// checkCircles warns where a consumer hands dead letters back to the one that they came from: a message that always fails would
// go round for ever.
func (d *Document) checkCircles() {
	names := d.inOrder()
	for _, name := range names {
		c := d.File.Consumers[name]
		if c == nil {
			continue
		}
		for i, r := range c.Routes {
			to := r.publishesTo()
			if to == "" {
				continue
			}
			for _, other := range names {
				o := d.File.Consumers[other]
				if o == nil || o.DeadLetter == nil || !c.broker().sameBroker(o.broker()) {
					continue
				}
				if dead := slices.IndexFunc(o.DeadLetter.Targets(), c.takes); dead >= 0 && o.takes(to) {
					d.warn("consumers."+name+".routes["+strconv.Itoa(i)+"].with.to",
						"is %q, which consumers.%s reads, whose dead letters, %q, are read here: a message that always fails goes round for ever",
						to, other, o.DeadLetter.Targets()[dead])
				}
			}
		}
	}
}

// publishesTo is where a route hands messages on to; "": nowhere.
func (r Route) publishesTo() string {
	if r.Handler != "publish" {
		return ""
	}
	switch to := r.With["to"].(type) {
	case string:
		return to
	case handlers.Text:
		return string(to)
	}
	return ""
}

// takes says whether messages of a topic or subject are read, as far as the file tells.
func (c *Consumer) takes(topic string) bool {
	_, ok := c.reads(topic)
	return ok
}

// reads says whether messages of a topic or subject are read, and by which key.
func (c *Consumer) reads(topic string) (by string, ok bool) {
	for _, in := range c.Reads() {
		if in.Kafka != nil {
			if by, ok := in.Kafka.reads(topic); ok {
				return in.Name + ".kafka." + by, true
			}
		}
		key, subjects := in.subjects()
		if i := slices.IndexFunc(subjects, func(subject string) bool { return natssubject.Matches(subject, topic) }); i >= 0 {
			return in.Name + "." + key + ".subjects[" + strconv.Itoa(i) + "]", true
		}
	}
	return "", false
}

// sameBroker says whether two sources name the same servers.
func (s Source) sameBroker(o Source) bool {
	var one, other []string
	_, n, onNATS := s.nats()
	_, on, otherOnNATS := o.nats()
	switch {
	case s.Kafka != nil && o.Kafka != nil:
		one, other = s.Kafka.Brokers, o.Kafka.Brokers
	case onNATS && otherOnNATS:
		one, other = n.servers(), on.servers()
	case s.Other != nil && o.Other != nil: // only the adapter knows its servers
		return s.Other.Adapter == o.Other.Adapter
	default:
		return false
	}
	return slices.Equal(slices.Sorted(slices.Values(one)), slices.Sorted(slices.Values(other)))
}
