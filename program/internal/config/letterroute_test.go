package config_test

import "testing"

// TestLetterRoutes: where dead letters are led, each mistake with its line.
func TestLetterRoutes(t *testing.T) {
	const kafka, nats = "kafka: {brokers: ['127.0.0.1:9092'], group: g, topics: [a]}",
		"nats: {url: 'nats://h', stream: S, durable: d, subjects: [a]}"
	for _, c := range []struct{ source, routes, want string }{
		{kafka, "- {class: decode, to: dead-decode}\n        - {handler: webhook, to: dead-webhook}\n        - {class: decode, " +
			"handler: log, to: x}", "9: consumers.o.dead_letter.routes[2]: is never taken: the routes before it take all that it would"},
		{kafka, "- {class: decode, handler: log, to: x}\n        - {class: decode, to: y}\n        - {handler: log, to: dead}", ""},
		{nats, "- {class: decode, to: dead.decode}", ""},
		{nats, "- {to: x}", "7: consumers.o.dead_letter.routes[0]: has neither a class nor a handler: it would take what " +
			"dead_letter.to is for"},
		{nats, "- {class: decode}", "7: consumers.o.dead_letter.routes[0].to: is missing"},
		{nats, "- {class: late, to: x}", `7: consumers.o.dead_letter.routes[0].class: is "late", want one of [error permanent decode`},
		{nats, "- {handler: exec, to: x}", `7: consumers.o.dead_letter.routes[0].handler: is "exec", and the consumer has only ` +
			`["log" "webhook"]`},
		{nats, "- {class: decode, to: a}", `7: consumers.o.dead_letter.routes[0].to: is "a", which source.nats.subjects[0], "a", ` +
			`takes: dead letters would be consumed again`},
		{nats, "- {class: decode, to: 'x.*'}", `7: consumers.o.dead_letter.routes[0].to: is "x.*": want a subject without wildcards`},
		{nats, "- {class: decode, to: $JS.API.X}",
			`7: consumers.o.dead_letter.routes[0].to: is "$JS.API.X", which is the broker's own`},
		{kafka, "- {class: decode, to: a}", `7: consumers.o.dead_letter.routes[0].to: is "a", which source.kafka.topics[0] takes`},
		{kafka, "- {class: decode, to: retry}",
			`8: consumers.o.retry.topics[0].topic: is "retry", to which dead_letter.routes lead, too`},
	} {
		retry := ""
		if c.source == kafka {
			retry = "    retry: {topics: [{topic: retry, delay: 1m}]}\n"
		}
		d := parse("consumers:\n  o:\n    source: {"+c.source+"}\n    dead_letter:\n      to: dead\n      routes:\n        "+c.routes+
			"\n"+retry+
			"    routes: [{headers: {x: y}, handler: log}, {headers: {x: z}, handler: webhook}, {handler: log}]\n", nil)
		if c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}
