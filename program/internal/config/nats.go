package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policies are the names that pool.policy may have, Delivers those of source.nats.deliver.
var (
	Policies = []string{"report-status", "fixed", "classic", "queue-threshold", "aimd"}
	Delivers = []string{"all", "new", "last", "last_per_subject"}
)

// Embedded says whether a consumer reads from the server inside the process.
func (n *NATS) Embedded() bool { return n.URL == "" && len(n.URLs) == 0 }

// Servers are the URLs, however they were given.
func (n *NATS) Servers() []string {
	if n.URL != "" {
		return []string{n.URL}
	}
	return n.URLs
}

func (d *Document) checkNATS(consumer string, n *NATS, c *Consumer) {
	at := consumer + ".source.nats"
	for _, needed := range []struct{ name, value string }{{".stream", n.Stream}, {".durable", n.Durable}} {
		if needed.value == "" {
			d.Find(at+needed.name, "is missing")
		} else if strings.ContainsAny(needed.value, ".*> \t\r\n/\\") {
			d.Find(at+needed.name, "is %q: no dots, wildcards, blanks or slashes", needed.value)
		}
	}
	for i, s := range n.Subjects {
		if !validSubject(s) {
			d.Find(at+".subjects["+strconv.Itoa(i)+"]", "is %q, which is no subject", s)
		}
	}
	switch {
	case n.URL != "" && d.Has(at+".urls"):
		d.Find(at+".urls", "is set, and so is url: set one")
	case d.Has(at+".url") && n.URL == "":
		d.Find(at+".url", "is empty; leave it out for the embedded server")
	case d.Has(at+".urls") && len(n.URLs) == 0:
		d.Find(at+".urls", "is empty")
	}
	if !d.Has(at+".url") && !d.Has(at+".urls") {
		d.checkEmbedded(at, n)
	}
	if n.CreateStream && len(n.Subjects) == 0 {
		d.Find(at+".create_stream", "is set and subjects is not: a stream needs subjects")
	}
	d.oneOf(at+".deliver", n.Deliver, Delivers)
	d.duration(at+".ack_wait", n.AckWait)
	d.duration(at+".max_hold", n.MaxHold)
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

func (d *Document) checkDeadLetter(at string, l *DeadLetter, c *Consumer) {
	path := at + ".dead_letter.to"
	d.atLeast(at+".dead_letter.concurrency", int64(l.Concurrency), 1)
	switch {
	case l.To == "":
		d.Find(path, "is missing")
		return
	case !validSubject(l.To) || strings.ContainsAny(l.To, "*>"):
		d.Find(path, "is %q: want a subject without wildcards", l.To)
		return
	}
	if n := c.Source.NATS; n != nil {
		for i, s := range n.Subjects {
			if Matches(s, l.To) {
				d.Find(path, "is %q, which source.nats.subjects[%d], %q, takes: dead letters would be consumed again", l.To, i, s)
			}
		}
	}
}

// checkDurables: two consumers of one durable would take each other's messages.
func (d *Document) checkDurables() {
	first := map[string]string{}
	names := slices.SortedFunc(maps.Keys(d.File.Consumers), func(a, b string) int { return d.line("consumers."+a) - d.line("consumers."+b) })
	for _, name := range names {
		c := d.File.Consumers[name]
		if c == nil || c.Source.NATS == nil || c.Source.NATS.Durable == "" {
			continue
		}
		n := c.Source.NATS
		key := strings.Join(append(slices.Clone(n.Servers()), n.Domain, n.Stream, n.Durable), "\n")
		if other, ok := first[key]; ok {
			d.Find("consumers."+name+".source.nats.durable", "is %q on stream %q, as with consumers.%s: they would take each other's messages", n.Durable, n.Stream, other)
		}
		first[key] = name
	}
}

func validSubject(s string) bool {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		if t == "" || strings.ContainsAny(t, " \t\r\n") || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

// Matches says whether a subject with NATS's wildcards takes every message of another.
func Matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, t := range p {
		switch {
		case t == ">":
			return len(s) > i
		case i >= len(s) || t != s[i] && (t != "*" || s[i] == ">"):
			return false
		}
	}
	return len(p) == len(s)
}
