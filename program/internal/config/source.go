package config

import (
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/internal/natssubject"
)

// A Read is one source of a consumer, and its name in the consumer's section: "source", or "sources[1]".
type Read struct {
	Name   string
	Weight int
	Source
}

func (in Input) source() Source {
	return Source{NATS: in.NATS, NATSCore: in.NATSCore, Kafka: in.Kafka, Other: in.Other}
}

// Reads are a consumer's sources, however they were given; one at least.
func (c *Consumer) Reads() []Read {
	if len(c.Sources) == 0 {
		return []Read{{Name: "source", Source: c.Source}}
	}
	all := make([]Read, len(c.Sources))
	for i, in := range c.Sources {
		all[i] = Read{"sources[" + strconv.Itoa(i) + "]", in.Weight, in.source()}
	}
	return all
}

// runOn has one of several sources on Kafka not wait for its topics, unless the file says so: the others would wait with it, in
// groups whose partitions nobody else has meanwhile. Where none of them has a topic, the consumer waits for the first one.
func (c *Consumer) runOn() {
	for _, in := range c.Sources {
		if in.Kafka != nil && in.Kafka.Missing == "" {
			in.Kafka.Missing = "run"
		}
	}
}

// broker is the source on whose broker dead letters and all else are published: the first.
func (c *Consumer) broker() Source { return c.Reads()[0].Source }

// A read is one source of a file.
type read struct {
	consumer string
	Read
}

func (r read) at() string { return "consumers." + r.consumer + "." + r.Name }

// as is how r is called in what is said of o.
func (r read) as(o read) string {
	if r.consumer == o.consumer {
		return r.Name
	}
	return "consumers." + r.consumer
}

// reads are all sources in the order of the file.
func (d *Document) reads() (all []read) {
	for _, name := range d.inOrder() {
		if c := d.File.Consumers[name]; c != nil {
			for _, in := range c.Reads() {
				all = append(all, read{name, in})
			}
		}
	}
	return all
}

// checkSources: several sources are of one broker, for dead letters go there and say where they came from, and no message comes
// by two of them.
func (cc *consumerCheck) checkSources() {
	switch {
	case !cc.has(".sources"):
		return
	case cc.has(".source"):
		cc.find(".sources", "is set, and so is source: set one")
		return
	case len(cc.Sources) == 0:
		cc.find(".sources", "is empty")
		return
	}
	all := cc.Reads()
	for i, in := range all {
		key := "." + in.Name
		if in.Source == (Source{}) {
			continue // was found
		}
		if !in.sameBroker(all[0].Source) && all[0].Source != (Source{}) {
			cc.find(key, "is on another broker than sources[0]: dead letters go to one, and come back from it. Make it a consumer of "+
				"its own")
			continue
		}
		for _, o := range all[:i] {
			if what, both := o.overlaps(in); both {
				cc.find(key, "reads %s, as %s does: each message would come by both", what, o.Name)
			}
		}
	}
}

// overlaps says whether some messages come by both of two sources on one broker, and which. Sources of one group or durable share
// them, which is found elsewhere.
func (r Read) overlaps(o Read) (what string, both bool) {
	switch {
	case r.Kafka != nil && o.Kafka != nil && r.Kafka.Group != o.Kafka.Group:
		return shared(r.Kafka, o.Kafka)
	case r.NATS != nil && o.NATS != nil && r.NATS.Stream == o.NATS.Stream && r.NATS.Domain == o.NATS.Domain &&
		r.NATS.Consumer != o.NATS.Consumer:
		if len(r.NATS.Subjects) == 0 || len(o.NATS.Subjects) == 0 {
			return "stream " + strconv.Quote(o.NATS.Stream), true
		}
		return sharedSubject(r.NATS.Subjects, o.NATS.Subjects)
	case r.NATSCore != nil && o.NATSCore != nil: // of one queue group, too: each of its subscriptions gets its own
		return sharedSubject(r.NATSCore.Subjects, o.NATSCore.Subjects)
	}
	return "", false
}

// sharedSubject is the first of other that takes messages which one of subjects takes.
func sharedSubject(subjects, other []string) (what string, both bool) {
	for _, s := range other {
		if slices.ContainsFunc(subjects, func(t string) bool { return natssubject.Overlap(s, t) }) {
			return "subject " + strconv.Quote(s), true
		}
	}
	return "", false
}

// checkPriority: there is something to choose from, and a header's value belongs to one level.
func (cc *consumerCheck) checkPriority() {
	p, here := cc.Priority, place{cc.report, cc.at + ".priority"}
	byHeader := here.has(".header") || here.has(".levels")
	if len(cc.Sources) < 2 && !byHeader {
		key := ""
		if p.Mode == "strict" {
			key = ".mode" // where the engine finds it, too
		}
		here.find(key, "is set, and there is neither a header with levels nor more than one of sources: nothing goes before anything")
	}
	if p.Mode == "strict" {
		cc.checkStrict()
	}
	if byHeader {
		here.checkLevels(p)
	}
}

// checkLevels: they are told apart by their values.
func (pl place) checkLevels(p *Priority) {
	if p.Header == "" {
		pl.find(".header", "is missing: which header tells the levels apart")
	}
	if len(p.Levels) < 2 {
		pl.find(".levels", "has %d, want at least 2", len(p.Levels))
	}
	first := map[string]int{}
	for i, l := range p.Levels {
		key := ".levels[" + strconv.Itoa(i) + "].values"
		if len(l.Values) == 0 && i < len(p.Levels)-1 {
			pl.find(key, "is missing or empty: only the last level may do without, which has all other messages")
		}
		for j, v := range l.Values {
			if other, ok := first[v]; ok {
				pl.find(key+"["+strconv.Itoa(j)+"]", "is %q, as in levels[%d]", v, other)
			} else {
				first[v] = i
			}
		}
	}
}

// checkStrict: where the order counts, weights do not.
func (cc *consumerCheck) checkStrict() {
	const problem = "is set, and priority.mode is strict: the order counts, not weights"
	for _, in := range cc.Reads() {
		if key := "." + in.Name + ".weight"; cc.has(key) {
			cc.find(key, problem)
		}
	}
	for i := range cc.Priority.Levels {
		if key := ".priority.levels[" + strconv.Itoa(i) + "].weight"; cc.has(key) {
			cc.find(key, problem)
		}
	}
}
