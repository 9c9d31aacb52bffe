package config_test

import (
	"strings"
	"testing"
	"time"
)

// leastKafka is a file with nothing wrong, into whose source a test puts something.
const leastKafka = `consumers:
  orders:
    routes: [{handler: log}]
    source:
      kafka: {brokers: ["127.0.0.1:9092"], topics: [orders], group: workers}
`

func TestLeastKafkaFile(t *testing.T) {
	d := parse(leastKafka, nil)
	wantFindings(t, d)
	k := d.File.Consumers["orders"].Source.Kafka
	if k == nil || k.Brokers[0] != "127.0.0.1:9092" || k.Topics[0] != "orders" || k.Group != "workers" {
		t.Errorf("%+v", k)
	}
}

// TestContradictionsOfKafka is bad input b02 and b03: each with the value and what it contradicts.
func TestContradictionsOfKafka(t *testing.T) {
	for _, c := range []struct{ kafka, want string }{
		{"{topics: [a], group: g}", "brokers: is missing or empty"},
		{"{brokers: [], topics: [a], group: g}", "brokers: is missing or empty"},
		{"{brokers: [h], topics: [a], group: g}", `brokers[0]: is "h", want host:port`},
		{"{brokers: ['h:1', ':9092'], topics: [a], group: g}", `brokers[1]: is ":9092", want host:port`},
		{"{brokers: ['h:kafka'], topics: [a], group: g}", `brokers[0]: is "h:kafka", want host:port`},
		{"{brokers: ['u:pw@h:1'], topics: [a], group: g}", `brokers[0]: has a user or a password in it: want host:port`},
		{"{brokers: ['kafka://h:1'], topics: [a], group: g}", `brokers[0]: is "kafka://h:1", want host:port`},
		{"{brokers: ['h:1'], group: g}", "topics: is missing: want topics, or topics_pattern"},
		{"{brokers: ['h:1'], group: g, topics: []}", "topics: is empty"},
		{"{brokers: ['h:1'], group: g, topics_pattern: ''}", "topics_pattern: is empty"},
		{"{brokers: ['h:1'], group: g, topics: [a], topics_pattern: b}", "topics_pattern: is set, and so is topics: set one"},
		{"{brokers: ['h:1'], group: g, topics_pattern: 'a('}", `topics_pattern: is "a(": error parsing regexp`},
		{"{brokers: ['h:1'], group: g, topics: [a, 'b c']}", `topics[1]: is "b c", which is no topic`},
		{"{brokers: ['h:1'], group: g, topics: ['a.>']}", `topics[0]: is "a.>", which is no topic`},
		{"{brokers: ['h:1'], group: g, topics: ['..']}", `topics[0]: is "..", which is no topic`},
		{"{brokers: ['h:1'], group: g, topics: [a, b, a]}", `topics[2]: is "a", and so is topics[0]`},
		{"{brokers: ['h:1'], topics: [a]}", "group: is missing"},
		{"{brokers: ['h:1'], topics: [a], group: g, instance_id: ''}", "instance_id: is empty"},
		{"{brokers: ['h:1'], topics: [a], group: g, client_id: ''}", "client_id: is empty"},
		{"{brokers: ['h:1'], topics: [a], group: g, rack: ''}", "rack: is empty"},
		{"{brokers: ['h:1'], topics: [a], group: g, out_of_range: oldest}",
			`out_of_range: is "oldest", want one of [earliest latest stop]`},
		{"{brokers: ['h:1'], topics: [a], group: g, balancer: best}", `balancer: is "best", want one of [sticky range roundrobin]`},
		{"{brokers: ['h:1'], topics: [a], group: g, start: now}", `start: is "now", want earliest, latest, none, or a time`},
		{"{brokers: ['h:1'], topics: [a], group: g, start: 2026-11-21}",
			`start: is "2026-11-21", want earliest, latest, none, or a time`},
		{"{brokers: ['h:1'], topics: [a], group: g, start: '1969-12-31T23:59:59.999Z'}",
			`start: is "1969-12-31T23:59:59.999Z", want a time from 1970 on`},
		{"{brokers: ['h:1'], topics: [a], group: g, isolation: serializable}",
			`isolation: is "serializable", want one of [read_committed`},
		{"{brokers: ['h:1'], topics: [a], group: g, on_bad_batch: ignore}", `on_bad_batch: is "ignore", want one of [stop skip]`},
		{"{brokers: ['h:1'], topics: [a], group: g, heartbeat_interval: 5s}",
			"heartbeat_interval: is 5s, more than a third of session_timeout, 10s"},
		{"{brokers: ['h:1'], topics: [a], group: g, session_timeout: 2s}",
			"session_timeout: is 2s, less than three times heartbeat_interval, 1s"},
		{"{brokers: ['h:1'], topics: [a], group: g, session_timeout: 0s}", "session_timeout: is 0s, want more"},
		{"{brokers: ['h:1'], topics: [a], group: g, session_timeout: 900h}", "session_timeout: is 900h0m0s, more than 596h"},
		{"{brokers: ['h:1'], topics: [a], group: g, revoke_wait: 1m}", "revoke_wait: is 1m0s, not below rebalance_timeout, 1m0s"},
		{"{brokers: ['h:1'], topics: [a], group: g, rebalance_timeout: 10s}", "rebalance_timeout: is 10s, not above revoke_wait, 15s"},
		{"{brokers: ['h:1'], topics: [a], group: g, commit_interval: -1s}", "commit_interval: is -1s, negative"},
		{"{brokers: ['h:1'], topics: [a], group: g, crash_limit: 0}", "crash_limit: is 0, want at least 1"},
		{"{brokers: ['h:1'], topics: [a], group: g, transaction_timeout: 5s}", "transaction_timeout: is set and transactional is not"},
		{"{brokers: ['h:1'], topics: [a], group: g, compression: none, transactional: false}",
			"compression: is set and transactional is not"},
		{"{brokers: ['h:1'], topics: [a], group: g, crash_limit: 3}", "crash_limit: is set, and there is no dead_letter"},
		{"{brokers: ['h:1'], topics: [a], group: g, commit_messages: 0}", "commit_messages: is 0, want 1 to 1073741823"},
		{"{brokers: ['h:1'], topics: [a], group: g, max_batch_bytes: -1}", "max_batch_bytes: is -1, want 1 to 1073741823"},
		{"{brokers: ['h:1'], topics: [a], group: g, max_publish_bytes: 0}", "max_publish_bytes: is 0, want 1 to 1073741823"},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {key_file: x}}", "tls.key_file: is set and tls.cert_file is not"},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {handshake_first: true}}", "tls.handshake_first: unknown option"},
		{"{brokers: ['h:1'], topics: [a], group: g, sasl: {user: u, password: p}, tls: {}}",
			"sasl.mechanism: is missing, want one of [PLAIN"},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {}, sasl: {mechanism: GSSAPI, user: u, password: p}}",
			`sasl.mechanism: is "GSSAPI", want one of [PLAIN`},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {}, sasl: {mechanism: PLAIN, password: p}}", "sasl.user: is missing"},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u}}",
			"sasl.password: is missing: want password, or password_file"},
		{"{brokers: ['127.0.0.1:1', 'h:1'], topics: [a], group: g, sasl: {mechanism: PLAIN, user: u, password: p}}",
			`brokers[1]: is "h:1": a login would go there without TLS; set tls: {}, or sasl.plaintext_auth`},
		{"{brokers: ['h:1'], topics: [a], group: g, sasl: {mechanism: SCRAM-SHA-512, user: u, password: p}}",
			`brokers[0]: is "h:1": a login would go there without TLS`},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u, password_file: /no/such}}",
			"sasl.password_file: stat /no/such"},
		{"{brokers: ['h:1'], topics: [a], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u, password: p, password_file: /no/such}}",
			"sasl.password_file: is set, and so is"},
	} {
		got := findings(parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source:\n      kafka: "+c.kafka+"\n", nil))
		if len(got) != 1 || !strings.Contains(strings.ReplaceAll(got[0], "open /no", "stat /no"),
			"c.yaml:5: consumers.orders.source.kafka."+c.want) {
			t.Errorf("%s: found %q, want %q", c.kafka, got, c.want)
		}
	}
}

// TestKafkaLoginsWithoutTLS: to this machine, or where the file says that it knows.
func TestKafkaLoginsWithoutTLS(t *testing.T) {
	for _, kafka := range []string{
		"brokers: ['127.0.0.1:9092', 'localhost:1', '[::1]:2'], sasl: {mechanism: PLAIN, user: u, password: p}",
		"brokers: ['h:1'], sasl: {mechanism: SCRAM-SHA-256, user: u, password: p, plaintext_auth: true}",
		"brokers: ['h:1'], tls: {}, sasl: {mechanism: PLAIN, user: u, password: p}",
	} {
		wantFindings(t, parse("consumers:\n  o:\n    routes: [{handler: log}]\n    source: {kafka: {topics: [a], group: g, "+kafka+
			"}}\n", nil))
	}
}

// TestContradictionsOfKafkaWithOthers: between the source and the rest of the file.
func TestContradictionsOfKafkaWithOthers(t *testing.T) {
	source := func(more string) string {
		return "source: {kafka: {brokers: ['127.0.0.1:9092'], group: g, " + more + "}}"
	}
	for _, c := range []struct{ consumer, want string }{
		{"source: {}", "4: consumers.o.source: is missing: want source: {nats: …} or source: {nats_core: …} or source: {kafka: …}"},
		{"source: {kafka: {brokers: ['h:1'], group: g, topics: [a]}, nats: {url: 'nats://h', stream: S, durable: d}}",
			"4: consumers.o.source: has nats and kafka"},
		{source("topics: [a]") + "\n    dead_letter: {to: a}",
			`5: consumers.o.dead_letter.to: is "a", which source.kafka.topics[0] takes`},
		{source("topics_pattern: 'a.*'") + "\n    dead_letter: {to: a-dead}",
			`5: consumers.o.dead_letter.to: is "a-dead", which source.kafka.topics_pattern, "a.*", takes`},
		{source("topics: [a]") + "\n    dead_letter: {to: 'a b'}", `5: consumers.o.dead_letter.to: is "a b": want a topic's name`},
		{source("topics: [a]") + "\n    dead_letter: {to: __dead}",
			`5: consumers.o.dead_letter.to: is "__dead", which is the broker's own`},
		{source("topics: [a]") + "\n    dead_letter: {to: 'dead.>'}",
			`5: consumers.o.dead_letter.to: is "dead.>": want a topic's name`},
		{source("topics: [a]") + "\n    dead_letter: {to: b}\n    max_message_bytes: 1000001",
			`6: consumers.o.max_message_bytes: is 1000001, above source.kafka.max_publish_bytes, 1000000: a message between could never ` +
				`become a dead letter`},
		{source("topics: [a], max_publish_bytes: 500") + "\n    dead_letter: {to: b}\n    max_message_bytes: 501",
			`6: consumers.o.max_message_bytes: is 501, above source.kafka.max_publish_bytes, 500`},
		{source("topics: [a], max_publish_bytes: 500") + "\n    dead_letter: {to: b}\n    max_message_bytes: 500", ""},
		{source("topics_pattern: 'a.*'") + "\n    dead_letter: {to: dead-a}", ""}, // the whole name must match
		{source("topics: [orders.eu, orders.us]") + "\n    routes: [{match: 'orders.*', handler: log}]", ""},
		{source("topics: [orders.eu]") + "\n    routes: [{match: 'order.>', handler: log}]",
			`5: consumers.o.routes[0].match: is "order.>", and no message of source.kafka.topics, ["orders.eu"], can match it`},
		{source("topics_pattern: 'a.*'") + "\n    routes: [{handler: publish, with: {to: ab}}]",
			`5: consumers.o.routes[0].with.to: is "ab", which source.kafka.topics_pattern, "a.*", takes: messages would go round for ` +
				`ever`},
		{source("topics_pattern: 'a.*'") + "\n    routes: [{handler: publish, with: {to: '${TO}'}}]",
			`5: consumers.o.routes[0].with.to: is "ab"`},
		{source("topics_pattern: 'a.*'") + "\n    routes: [{handler: publish, with: {to: ba}}]", ""},
		{source("topics: [a]") + "\n    routes: [{handler: publish, with: {to: b/c}}]",
			`5: consumers.o.routes[0].with.to: is "b/c": want a topic's name`},
	} {
		routes := "    routes: [{handler: log}]\n"
		if strings.Contains(c.consumer, "routes:") {
			routes = "    timeout: 1s\n"
		}
		d := parse("consumers:\n  o:\n"+routes+"    "+c.consumer+"\n", map[string]string{"TO": "ab"})
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

// TestContradictionsOfRetryTopics: where failed messages wait.
func TestContradictionsOfRetryTopics(t *testing.T) {
	const kafka, nats = "kafka: {brokers: ['127.0.0.1:9092'], group: g, topics: [a]}",
		"nats: {url: 'nats://h', stream: S, durable: d}"
	for _, c := range []struct{ source, topics, want string }{
		{kafka, "[{topic: b, delay: 1m}, {topic: c, delay: 10m}]", ""},
		{kafka, "[]", "4: consumers.o.retry.topics: is empty"},
		{nats, "[{topic: b, delay: 1m}]", "4: consumers.o.retry.topics: is set and source.kafka is not"},
		{kafka, "[{delay: 1m}]", `4: consumers.o.retry.topics[0].topic: is "": want a topic's name`},
		{kafka, "[{topic: b}]", "4: consumers.o.retry.topics[0].delay: is 0s, want more than 0s"},
		{kafka, "[{topic: b, delay: -1m}]", "4: consumers.o.retry.topics[0].delay: is -1m0s, want more than 0s"},
		{kafka, "[{topic: b, delay: 1m}, {topic: c, delay: 1m}]", "4: consumers.o.retry.topics[1].delay: is 1m0s, want more than 1m0s"},
		{kafka, "[{topic: b, delay: 1m}, {topic: b, delay: 2m}]",
			`4: consumers.o.retry.topics[1].topic: is "b", and so is retry.topics[0].topic`},
		{kafka, "[{topic: a, delay: 1m}]", `4: consumers.o.retry.topics[0].topic: is "a", which source.kafka.topics[0] takes`},
		{"kafka: {brokers: ['127.0.0.1:9092'], group: g, topics_pattern: 'a.*'}", "[{topic: a-1m, delay: 1m}]",
			`4: consumers.o.retry.topics[0].topic: is "a-1m", which source.kafka.topics_pattern`},
		{kafka, "[{topic: __retry, delay: 1m}]", `4: consumers.o.retry.topics[0].topic: is "__retry", which is the broker's own`},
		{kafka, "[{topic: dead, delay: 1m}]", `4: consumers.o.retry.topics[0].topic: is "dead", and so is dead_letter.to`},
	} {
		d := parse("consumers:\n  o:\n    routes: [{handler: log}]\n    retry: {topics: "+c.topics+
			"}\n    dead_letter: {to: dead}\n    source: {"+c.source+"}\n", nil)
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

// TestHeaderStyles: Spring's are binary, which only Kafka's headers can be.
func TestHeaderStyles(t *testing.T) {
	const kafka, nats = "kafka: {brokers: ['127.0.0.1:9092'], group: g, topics: [a]}",
		"nats: {url: 'nats://h', stream: S, durable: d}"
	for _, c := range []struct{ source, headers, want string }{
		{kafka, "[spring, connect]", ""},
		{nats, "[connect]", ""},
		{nats, "[spring]", `4: consumers.o.dead_letter.headers[0]: is "spring" and source.kafka is not set`},
		{kafka, "[connect, camel]", `4: consumers.o.dead_letter.headers[1]: is "camel", want one of [spring connect]`},
	} {
		d := parse("consumers:\n  o:\n    routes: [{handler: log}]\n    dead_letter: {to: dead, headers: "+c.headers+"}\n    source: {"+
			c.source+"}\n", nil)
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

func TestContradictionsOfGroups(t *testing.T) {
	two := func(one, other string) string {
		return "consumers:\n  a:\n    routes: [{handler: log}]\n    source: {kafka: {brokers: ['h:1', 'i:1'], " + one +
			"}}\n  b:\n    routes: [{handler: log}]\n    source: {kafka: {brokers: ['i:1', 'h:1'], " + other + "}}\n"
	}
	for _, c := range []struct{ one, other, want string }{
		{"group: g, topics: [x, y]", "group: g, topics: [y]",
			`7: consumers.b.source.kafka.group: is "g", as with consumers.a, and both read topic "y": they would take each other's ` +
				`messages`},
		{"group: g, topics_pattern: 'x.*'", "group: g, topics: [xy]",
			`7: consumers.b.source.kafka.group: is "g", as with consumers.a, and both read topic "xy"`},
		{"group: g, topics_pattern: 'x.*'", "group: g, topics_pattern: '.*y'",
			`7: consumers.b.source.kafka.group: is "g", as with consumers.a, and both read topics by a pattern`},
		{"group: g, topics: [x], instance_id: i", "group: g, topics: [y], instance_id: i",
			`7: consumers.b.source.kafka.instance_id: is "i" in group "g", as with consumers.a`},
		{"group: g, topics: [x]", "group: g, topics: [y]", ""},
		{"group: g, topics: [x]", "group: h, topics: [x]", ""},
	} {
		d := parse(two(c.one, c.other), nil)
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

func TestStartTime(t *testing.T) {
	for start, want := range map[string]time.Time{
		"2026-11-21T15:04:05Z": time.Date(2026, 11, 21, 15, 4, 5, 0, time.UTC), "'2026-11-21T17:04:05.5+02:00'": time.Date(2026, 11, 21,
			15, 4, 5, 5e8, time.UTC),
		"earliest": {}, "latest": {}, "none": {},
	} {
		d := parse(strings.Replace(leastKafka, "group:", "start: "+start+", group:", 1), nil)
		wantFindings(t, d)
		if got := d.File.Consumers["orders"].Source.Kafka.Adapter().Start; !got.Time.Equal(want) || got.At != "time" &&
			got.At != start {
			t.Errorf("%s: %+v", start, got)
		}
	}
}
