package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/internal/natssubject"
	"github.com/nats-io/nats.go/jetstream"
)

// Embedded says whether a consumer reads from the server inside the process.
func (n *NATS) Embedded() bool { return n.link().embedded() }

// Adapter is the adapter's Config; embedded is the URL of the server inside the process, or empty where nothing connects.
func (n *NATS) Adapter(embedded string) natsbroker.Config {
	c := n.Config
	switch c.Deliver = delivers[n.Deliver]; {
	case n.StartSequence != 0:
		c.Deliver = jetstream.DeliverByStartSequencePolicy
	case !n.StartTime.IsZero():
		c.Deliver = jetstream.DeliverByStartTimePolicy
	}
	if c.URLs = n.link().at(embedded); n.CreateStream && !n.Embedded() {
		c.CreateStream = &jetstream.StreamConfig{Subjects: n.Subjects}
	}
	return c
}

var delivers = map[string]jetstream.DeliverPolicy{
	"": jetstream.DeliverAllPolicy, "all": jetstream.DeliverAllPolicy, "new": jetstream.DeliverNewPolicy,
	"last": jetstream.DeliverLastPolicy, "last_per_subject": jetstream.DeliverLastPerSubjectPolicy,
}

// startsAlready is said of where a durable is to start that bind takes as it is.
const startsAlready = "is set, and so is bind: the durable is there, and where it starts cannot be changed"

// checkNATS: what the file says in its own way. The rest is the adapter's to find.
func (sc sectionCheck) checkNATS(n *NATS) {
	for _, rule := range []struct {
		wrong        bool
		key, problem string
	}{
		{sc.has(".url") && n.URL == "", ".url", "is empty; leave it out for the embedded server"},
		{sc.has(".url") && sc.has(".urls"), ".urls", "is set, and so is url: set one"},
		{n.CreateStream && len(n.Subjects) == 0, ".create_stream", "is set and subjects is not: a stream needs subjects"},
		{sc.has(".key_token") && n.KeyToken == 0, ".key_token", "is 0, want 1 for the first token of the subject, -1 for the last"},
		{sc.has(".start_sequence") && n.Deliver != "", ".start_sequence", "is set, and so is deliver: set one"},
		{sc.has(".start_time") && n.Deliver != "", ".start_time", "is set, and so is deliver: set one"},
		{sc.has(".start_time") && n.StartSequence != 0, ".start_time", "is set, and so is start_sequence: set one"},
		{n.Bind && n.Deliver != "", ".deliver", startsAlready},
		{n.Bind && sc.has(".start_sequence"), ".start_sequence", startsAlready},
		{n.Bind && sc.has(".start_time"), ".start_time", startsAlready},
		{n.Bind && n.CreateStream, ".create_stream", "is set, and so is bind: a stream that is made has no durable"},
		{sc.has(".max_ack_pending") && n.MaxAckPending == 0, ".max_ack_pending", "is 0, want at least 1, or -1 for no bound"},
	} {
		if rule.wrong {
			sc.find(rule.key, "%s", rule.problem)
		}
	}
	if n.CreateStream && n.Missing == "stop" {
		sc.warn(sc.at+".missing", "is stop, and create_stream is set: it is made, and never missing")
	}
	if len(n.Subjects) == 0 && n.Embedded() && !sc.has(".url") && !sc.has(".urls") {
		sc.find(".subjects", "is missing; without a url the stream is created on the embedded server, and needs subjects")
	}
	sc.checkKeyToken(n)
	sc.checkSubjects(n)
	sc.checkLink(n.link())
	sc.FindConfig(sc.at, n, n.Adapter("").Validate())
}

// checkKeyToken: some of the subjects have the token that is the key.
func (sc sectionCheck) checkKeyToken(n *NATS) {
	subjects := n.Subjects
	if len(subjects) > 0 && n.KeyToken != 0 && n.KeyHeader == "" &&
		!slices.ContainsFunc(subjects, func(s string) bool { return natssubject.HasToken(s, n.KeyToken) }) {
		sc.find(".key_token", "is %d, and no message of subjects, %q, has so many tokens: none would have a key", n.KeyToken,
			subjects)
	}
}

// checkSubjects: those of a stream that is made have no message in common. Of a durable that is fine, unless one takes all of
// another, which the adapter finds.
func (sc sectionCheck) checkSubjects(n *NATS) {
	if !n.CreateStream && !n.Embedded() {
		return
	}
	for i, s := range n.Subjects {
		partly := func(o string) bool {
			return natssubject.Overlap(o, s) && !natssubject.Matches(o, s) && !natssubject.Matches(s, o)
		}
		if j := slices.IndexFunc(n.Subjects[:i], partly); j >= 0 && natssubject.Valid(s) {
			sc.find(".subjects["+strconv.Itoa(i)+"]", "is %q, which overlaps with subjects[%d], %q: a stream cannot have both", s, j,
				n.Subjects[j])
		}
	}
}

// checkStreams: on one server, a subject belongs to one stream, and no two subjects of a stream may overlap unless one takes the
// other.
func (d *Document) checkStreams() {
	type owned struct{ at, consumer, stream, subject string }
	var before []owned
	for _, r := range d.reads() {
		n := r.NATS
		if n == nil || !n.Embedded() {
			continue
		}
		at := r.at()
		for i, s := range n.Subjects {
			path := at + ".nats.subjects[" + strconv.Itoa(i) + "]"
			for _, o := range before {
				switch {
				case o.at == at || !natssubject.Valid(s) || !natssubject.Overlap(o.subject, s):
				case o.stream != n.Stream:
					d.Find(path, "is %q, which overlaps with %q of stream %s (consumers.%s): a subject belongs to one stream. Read it from "+
						"there, stream: %s", s, o.subject, o.stream, o.consumer, o.stream)
				case !natssubject.Matches(o.subject, s) && !natssubject.Matches(s, o.subject):
					d.Find(path, "is %q, which overlaps with %q of the same stream (consumers.%s), and neither takes the other: the embedded "+
						"server cannot have both", s, o.subject, o.consumer)
				}
			}
			before = append(before, owned{at, r.consumer, n.Stream, s})
		}
	}
}

// inOrder are the consumers' names in the order of the file.
func (d *Document) inOrder() []string {
	return slices.SortedFunc(maps.Keys(d.File.Consumers),
		func(a, b string) int { return d.line("consumers."+a) - d.line("consumers."+b) })
}

// checkDurables: two sources of one durable would take each other's messages.
func (d *Document) checkDurables() {
	first := map[string]read{}
	for _, r := range d.reads() {
		n := r.NATS
		if n == nil || n.Consumer == "" {
			continue
		}
		key := strings.Join(append(slices.Clone(n.link().servers()), n.Domain, n.Stream, n.Consumer), "\n")
		if other, ok := first[key]; ok {
			d.Find(r.at()+".nats.durable", "is %q on stream %q, as with %s: they would take each other's messages", n.Consumer, n.Stream,
				other.as(r))
		}
		first[key] = r
	}
}
