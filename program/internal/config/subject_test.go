package config_test

import (
	"strings"
	"testing"
)

// TestRoutesAreReached: a route that no subject of the source can lead to is refused, in its line.
func TestRoutesAreReached(t *testing.T) {
	for match, reached := range map[string]bool{
		"order.>": false, "orders.created": true, "orders.created.eu": true, "*.created": true, "mails": false, "mails.*": true,
		"mails.a.b": false, ">": true,
	} {
		d := parse("consumers:\n  orders:\n    source: {nats: {stream: S, durable: d, subjects: [\"orders.>\", \"mails.*\"]}}\n    "+
			"routes:\n      - {match: mails.x, handler: log}\n      - {match: \""+match+"\", handler: log}\n", nil)
		if reached {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, `6: consumers.orders.routes[1].match: is "`+match+
				`", and no message of source.nats.subjects, ["orders.>" "mails.*"], can match it`)
		}
	}
	// the whole stream is read
	wantFindings(t, parse(strings.Replace(least, "{handler: log}", "{match: anything, handler: log}", 1), nil))
}

// TestStreamsDoNotOverlap: on the embedded server.
func TestStreamsDoNotOverlap(t *testing.T) {
	two := func(one, other string) string {
		return "consumers:\n  a:\n    source: {nats: {" + one +
			", durable: a}}\n    routes: [{handler: log}]\n  b:\n    source: {nats: {" + other +
			", durable: b}}\n    routes: [{handler: log}]\n"
	}
	for _, c := range []struct{ file, want string }{
		{two("stream: S, subjects: [x.>]", "stream: S, subjects: [x.a]"), ""},
		{two("stream: S, subjects: [x.>]", "stream: R, subjects: [y]"), ""},
		{two("stream: S, subjects: [x.>]", "stream: R, subjects: [y, x.a]"), `6: consumers.b.source.nats.subjects[1]: is ` +
			`"x.a", which overlaps with "x.>" of stream S (consumers.a): a subject belongs to one stream. Read it from there, stream: S`},
		{two("stream: S, subjects: [\"x.*\"]", "stream: S, subjects: [\"*.a\"]"),
			`6: consumers.b.source.nats.subjects[0]: is "*.a", which overlaps with "x.*" of the same stream (consumers.a)`},
		{two("stream: S, subjects: [x]", "stream: R, subjects: [x], url: 'nats://h'"), ""},
	} {
		d := parse(c.file, nil)
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

// TestKeyTokenOfSomeSubject: a key_token is found where no subject can have so many tokens, in its line, and only there.
func TestKeyTokenOfSomeSubject(t *testing.T) {
	for _, c := range []struct {
		subjects, token string
		found           bool
	}{
		{"[orders.*]", "2", false}, {"[orders.*]", "-2", false}, {"[orders.*]", "3", true}, {"[orders.*]", "-3", true}, {"[a, b.c.d]",
			"3", false},
		{"[a, b.>]", "9", false}, {"['>']", "-9", false}, {"[a]", "1", false},
	} {
		d := parse("consumers:\n  o:\n    order: key\n    routes: [{handler: log}]\n    source:\n      nats:\n        stream: S\n    "+
			"    durable: d\n        subjects: "+
			c.subjects+"\n        key_token: "+c.token+"\n", nil)
		got := strings.Join(findings(d), "\n")
		if strings.Contains(got, "10: consumers.o.source.nats.key_token: is "+c.token+", and no message of subjects") != c.found ||
			!c.found && got != "" {
			t.Errorf("%s, %s: %s", c.subjects, c.token, got)
		}
	}
}
