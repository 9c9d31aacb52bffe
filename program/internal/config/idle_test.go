package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestSettingsThatDoNothing: what could never have an effect beside the others is named: as a mistake, or as a warning where
// another environment may well make use of it.
func TestSettingsThatDoNothing(t *testing.T) {
	nats := func(more string) string { return strings.Replace(least, "durable:", more+", durable:", 1) }
	for _, c := range []struct{ text, want string }{
		{least + "    pool: {policy: fixed, min: 5}\n",
			"warning: 5: consumers.orders.pool.min: is 5, and policy is fixed: there are always max workers, 64"},
		{least + "    pool: {policy: fixed, min: 5, max: 5}\n", ""},
		{least + "    pool: {policy: fixed, max: 5}\n", ""},
		{least + "    pool: {policy: aimd, min: 5}\n", ""},

		{nats("revoke_wait: 3s"),
			"warning: 3: consumers.orders.source.nats.revoke_wait: is set and order is not: nothing is ever revoked"},
		{nats("revoke_wait: 3s") + "    order: none\n",
			"warning: 3: consumers.orders.source.nats.revoke_wait: is set and order is not"},
		{nats("revoke_wait: 3s") + "    order: key\n", ""},

		{nats("plaintext_auth: true"),
			"warning: 3: consumers.orders.source.nats.plaintext_auth: is set, and there is neither a password nor a token"},
		{nats("plaintext_auth: false"), ""},
		{nats("plaintext_auth: true, token: x"), ""},
		{nats("plaintext_auth: true, user: u, password: p"), ""},
		{strings.Replace(nats("plaintext_auth: true"), "nats://", "nats://u:p@", 1), ""},

		{nats("bind: true, deliver: new"),
			"3: consumers.orders.source.nats.deliver: is set, and so is bind: the durable is there, and where it starts"},
		{nats("bind: true, start_sequence: 3"), "3: consumers.orders.source.nats.start_sequence: is set, and so is bind"},
		{nats("bind: true, start_time: 2026-11-21T15:04:05Z"),
			"3: consumers.orders.source.nats.start_time: is set, and so is bind"},
		{nats("bind: true, create_stream: true, subjects: [a]"),
			"3: consumers.orders.source.nats.create_stream: is set, and so is bind: a stream that is made has no durable"},
		{nats("missing: stop, create_stream: true, subjects: [a]"),
			"warning: 3: consumers.orders.source.nats.missing: is stop, and create_stream is set: it is made, and never missing"},
		{nats("missing: wait, create_stream: true, subjects: [a]"), ""},
	} {
		d, want := parse(c.text, nil), []string{c.want}
		if harmless := strings.TrimPrefix(c.want, "warning: "); c.want == "" || harmless != c.want {
			if want = nil; (harmless == "") != (len(d.Warnings) == 0) ||
				harmless != "" && !strings.HasPrefix(fmt.Sprintf("%d: %s: %s", d.Warnings[0].Line, d.Warnings[0].Path,
					d.Warnings[0].Problem), harmless) {
				t.Errorf("warned of %v, want %q", d.Warnings, harmless)
			}
		}
		wantFindings(t, d, want...)
	}
}

// TestSessionOfTheBroker: how long a session is says the broker in the consumer protocol; heartbeat_interval counts.
func TestSessionOfTheBroker(t *testing.T) {
	for text, want := range map[string]int{
		"membership: consumer, session_timeout: 20s":   1,
		"membership: auto, session_timeout: 20s":       0, // where it takes classic, it counts
		"session_timeout: 20s":                         0,
		"membership: consumer, heartbeat_interval: 2s": 0,
	} {
		d := parse("consumers:\n  o:\n    routes: [{handler: log}]\n    source: {kafka: {brokers: ['h:1'], group: g, topics: [a], "+
			text+"}}\n", nil)
		wantFindings(t, d)
		if len(d.Warnings) != want || want > 0 && d.Warnings[0].Path != "consumers.o.source.kafka.session_timeout" {
			t.Errorf("%s: %+v", text, d.Warnings)
		}
	}
}

// TestNoEmbeddedServer: what is said of it is warned of where each source has a server of its own.
func TestNoEmbeddedServer(t *testing.T) {
	inside := strings.Replace(least, `url: "nats://127.0.0.1:4222"`, `subjects: [a]`, 1)
	for _, c := range []struct{ text, warned string }{
		{least + "embedded: {port: 4333}\n", "embedded.port"},
		{least + "embedded: {dir: data}\n", "embedded.dir"},
		{least + "embedded: {}\n", ""},
		{inside + "embedded: {port: 4333}\n", ""},
	} {
		d := parse(c.text, nil)
		wantFindings(t, d)
		if len(d.Warnings) > 1 || (len(d.Warnings) == 1) != (c.warned != "") || c.warned != "" && d.Warnings[0].Path != c.warned {
			t.Errorf("%s: %+v, want %q", c.text, d.Warnings, c.warned)
		}
	}
}
