package config

import (
	"slices"
	"strconv"
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
func (d *Document) checkSources(at string, c *Consumer) {
	switch {
	case !d.Has(at + ".sources"):
		return
	case d.Has(at + ".source"):
		d.Find(at+".sources", "is set, and so is source: set one")
		return
	case len(c.Sources) == 0:
		d.Find(at+".sources", "is empty")
		return
	}
	all := c.Reads()
	for i, in := range all {
		path := at + "." + in.Name
		if in.Source == (Source{}) {
			continue // was found
		}
		if !in.sameBroker(all[0].Source) && all[0].Source != (Source{}) {
			d.Find(path, "is on another broker than sources[0]: dead letters go to one, and come back from it. Make it a consumer of "+
				"its own")
			continue
		}
		for _, o := range all[:i] {
			if what, both := o.overlaps(in); both {
				d.Find(path, "reads %s, as %s does: each message would come by both", what, o.Name)
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
		if slices.ContainsFunc(subjects, func(t string) bool { return Overlap(s, t) }) {
			return "subject " + strconv.Quote(s), true
		}
	}
	return "", false
}

// checkPriority: there is something to choose from, and a header's value belongs to one level.
func (d *Document) checkPriority(at string, c *Consumer) {
	p := c.Priority
	if p == nil {
		return
	}
	if len(c.Sources) < 2 && !d.Has(at+".header") && !d.Has(at+".levels") {
		path := at
		if p.Mode == "strict" {
			path += ".mode" // where the engine finds it, too
		}
		d.Find(path, "is set, and there is neither a header with levels nor more than one of sources: nothing goes before anything")
	}
	if p.Mode == "strict" {
		d.checkStrict(at, c)
	}
	if !d.Has(at+".header") && !d.Has(at+".levels") {
		return
	}
	if p.Header == "" {
		d.Find(at+".header", "is missing: which header tells the levels apart")
	}
	if len(p.Levels) < 2 {
		d.Find(at+".levels", "has %d, want at least 2", len(p.Levels))
	}
	first := map[string]int{}
	for i, l := range p.Levels {
		path := at + ".levels[" + strconv.Itoa(i) + "]"
		if len(l.Values) == 0 && i < len(p.Levels)-1 {
			d.Find(path+".values", "is missing or empty: only the last level may do without, which has all other messages")
		}
		for j, v := range l.Values {
			if other, ok := first[v]; ok {
				d.Find(path+".values["+strconv.Itoa(j)+"]", "is %q, as in levels[%d]", v, other)
			} else {
				first[v] = i
			}
		}
	}
}

// checkStrict: where the order counts, weights do not.
func (d *Document) checkStrict(at string, c *Consumer) {
	const problem = "is set, and priority.mode is strict: the order counts, not weights"
	for _, in := range c.Reads() {
		if path := at[:len(at)-len("priority")] + in.Name + ".weight"; d.Has(path) {
			d.Find(path, problem)
		}
	}
	for i := range c.Priority.Levels {
		if path := at + ".levels[" + strconv.Itoa(i) + "].weight"; d.Has(path) {
			d.Find(path, problem)
		}
	}
}
