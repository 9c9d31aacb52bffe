package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// delivers are the names that source.nats.deliver may have.
var delivers = []string{"all", "new", "last", "last_per_subject"}

// Embedded says whether a consumer reads from the server inside the process.
func (n *NATS) Embedded() bool { return n.URL == "" && len(n.URLs) == 0 }

// Servers are the URLs, however they were given.
func (n *NATS) Servers() []string {
	if n.URL != "" {
		return []string{n.URL}
	}
	return n.URLs
}

func (d *Document) checkNATS(at string, n *NATS) {
	for _, needed := range []struct{ name, value string }{{".stream", n.Stream}, {".durable", n.Durable}} {
		if needed.value == "" {
			d.Find(at+needed.name, "is missing")
		} else if strings.ContainsAny(needed.value, ".*> \t\r\n/\\") {
			d.Find(at+needed.name, "is %q: no dots, wildcards, blanks or slashes", needed.value)
		}
	}
	d.checkSubjects(at, n.Subjects)
	switch {
	case n.URL != "" && d.Has(at+".urls"):
		d.Find(at+".urls", "is set, and so is url: set one")
	case d.Has(at+".url") && n.URL == "":
		d.Find(at+".url", "is empty; leave it out for the embedded server")
	case d.Has(at+".urls") && len(n.URLs) == 0:
		d.Find(at+".urls", "is empty")
	}
	for i, server := range n.Servers() {
		path := at + ".url"
		if n.URL == "" {
			path = at + ".urls[" + strconv.Itoa(i) + "]"
		}
		if strings.Contains(server, "@") {
			d.warnOpen(path)
		}
	}
	if !d.Has(at+".url") && !d.Has(at+".urls") {
		d.checkEmbedded(at, n)
	}
	switch {
	case d.Has(at+".key_header") && n.KeyHeader == "":
		d.Find(at+".key_header", "is empty")
	case d.Has(at+".key_token") && n.KeyToken == 0:
		d.Find(at+".key_token", "is 0, want 1 for the first token of the subject, -1 for the last")
	case n.KeyHeader != "" && n.KeyToken != 0:
		d.Find(at+".key_header", "is set, and so is key_token: set one") // where the adapter finds it, too
	case len(n.Subjects) > 0 && !slices.ContainsFunc(n.Subjects, func(s string) bool { return hasToken(s, n.KeyToken) }):
		d.Find(at+".key_token", "is %d, and no message of subjects, %q, has so many tokens: none would have a key", n.KeyToken, n.Subjects)
	}
	if n.CreateStream && len(n.Subjects) == 0 {
		d.Find(at+".create_stream", "is set and subjects is not: a stream needs subjects")
	}
	d.oneOf(at+".missing", n.Missing, missings)
	d.oneOf(at+".deliver", n.Deliver, delivers)
	d.duration(at+".ack_wait", n.AckWait)
	d.duration(at+".max_hold", n.MaxHold)
	d.duration(at+".revoke_wait", n.RevokeWait)
	if n.MaxAckPending < -1 || d.Has(at+".max_ack_pending") && n.MaxAckPending == 0 {
		d.Find(at+".max_ack_pending", "is %d, want at least 1, or -1 for no bound", n.MaxAckPending)
	}
	if n.NKeySeedFile != "" {
		d.readPrivate(at+".nkey_seed_file", n.NKeySeedFile)
	}
	if n.CredsFile != "" {
		d.readPrivate(at+".creds_file", n.CredsFile)
	}
	if n.TLS != nil {
		d.checkTLS(at+".tls", n.TLS, time.Now())
	}
}

// checkSubjects: a server refuses a durable whose subjects overlap.
func (d *Document) checkSubjects(at string, subjects []string) {
	for i, s := range subjects {
		path := at + ".subjects[" + strconv.Itoa(i) + "]"
		if !validSubject(s) {
			d.Find(path, "is %q, which is no subject", s)
		} else if j := slices.IndexFunc(subjects[:i], func(o string) bool { return Overlap(o, s) }); j >= 0 {
			d.Find(path, "is %q, which overlaps with subjects[%d], %q: a message would come by both", s, j, subjects[j])
		}
	}
}

// checkEmbedded: the server inside the process makes its streams from the subjects, and has neither users nor TLS.
func (d *Document) checkEmbedded(at string, n *NATS) {
	if len(n.Subjects) == 0 {
		d.Find(at+".subjects", "is missing; without a url the stream is created on the embedded server, and needs subjects")
	}
	for _, name := range []string{"user", "password", "password_file", "token", "token_file", "nkey_seed_file", "creds_file", "tls", "domain", "plaintext_auth"} {
		if d.Has(at + "." + name) {
			d.Find(at+"."+name, "is set and url is not: the embedded server has no such thing")
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
				case o.at == at || !validSubject(s) || !Overlap(o.subject, s):
				case o.stream != n.Stream:
					d.Find(path, "is %q, which overlaps with %q of stream %s (consumers.%s): a subject belongs to one stream. Read it from there, stream: %s", s, o.subject, o.stream, o.consumer, o.stream)
				case !Matches(o.subject, s) && !Matches(s, o.subject):
					d.Find(path, "is %q, which overlaps with %q of the same stream (consumers.%s), and neither takes the other: the embedded server cannot have both", s, o.subject, o.consumer)
				}
			}
			before = append(before, owned{at, r.consumer, n.Stream, s})
		}
	}
}

// inOrder are the consumers' names in the order of the file.
func (d *Document) inOrder() []string {
	return slices.SortedFunc(maps.Keys(d.File.Consumers), func(a, b string) int { return d.line("consumers."+a) - d.line("consumers."+b) })
}

// checkDurables: two sources of one durable would take each other's messages.
func (d *Document) checkDurables() {
	first := map[string]read{}
	for _, r := range d.reads() {
		n := r.NATS
		if n == nil || n.Durable == "" {
			continue
		}
		key := strings.Join(append(slices.Clone(n.Servers()), n.Domain, n.Stream, n.Durable), "\n")
		if other, ok := first[key]; ok {
			d.Find(r.at()+".nats.durable", "is %q on stream %q, as with %s: they would take each other's messages", n.Durable, n.Stream, other.as(r))
		}
		first[key] = r
	}
}
