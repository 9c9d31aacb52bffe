package config_test

import "testing"

// two are a file with two sources and more of its consumer.
func two(one, other, more string) string {
	return "consumers:\n  o:\n    routes: [{handler: log}]\n    sources:\n      - {" + one + "}\n      - {" + other + "}\n" + more
}

const (
	kafkaGold = "kafka: {brokers: ['h:1', 'i:1'], group: gold, topics: [gold]}"
	kafkaLead = "kafka: {brokers: ['i:1', 'h:1'], group: lead, topics: [lead]}"
	natsGold  = "nats: {url: 'nats://h', stream: S, durable: gold, subjects: [s.gold]}"
	natsLead  = "nats: {url: 'nats://h', stream: S, durable: lead, subjects: [s.lead]}"
	coreGold  = "nats_core: {url: 'nats://h', subjects: [c.gold], queue: q}"
	coreLead  = "nats_core: {url: 'nats://h', subjects: [c.lead], queue: q}"
)

func TestSources(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{two(kafkaGold, kafkaLead, ""), ""},
		{two(natsGold, "weight: 3, "+natsLead, ""), ""},
		{two(coreGold, "weight: 3, "+coreLead, ""), ""},
		{two(coreGold, natsLead, "    dead_letter: {to: dead}\n"), ""},
		{two("weight: 1000, "+kafkaGold, kafkaLead, "    priority: {mode: weight}\n"), ""},
		{two(kafkaGold, kafkaLead, "    priority: {mode: strict}\n"), ""},
		{two(kafkaGold, kafkaLead, "    dead_letter: {to: dead, headers: [spring]}\n    retry: {topics: [{topic: later, delay: "+
			"1m}]}\n"), ""},

		{two(kafkaGold, kafkaLead, "    source: {"+kafkaLead+"}\n"), "4: consumers.o.sources: is set, and so is source: set one"},
		{"consumers:\n  o:\n    routes: [{handler: log}]\n    sources: []\n", "4: consumers.o.sources: is empty"},
		{two("weight: 0, "+kafkaGold, kafkaLead, ""), "5: consumers.o.sources[0].weight: is 0, want 1 to 1000"},
		{two(kafkaGold, "weight: 1001, "+kafkaLead, ""), "6: consumers.o.sources[1].weight: is 1001, want 1 to 1000"},
		{two(kafkaGold, "weight: 2", ""), "6: consumers.o.sources[1]: has none of nats, nats_core and kafka"},
		{two(kafkaGold, kafkaLead+", "+natsLead, ""), "6: consumers.o.sources[1]: has nats and kafka: a source is one of them"},
		{two(coreGold, "nats_core: {url: 'nats://h', subjects: ['c.*'], queue: r}", ""),
			`6: consumers.o.sources[1]: reads subject "c.*", as sources[0] does`},
		{two(coreGold, coreLead, "    dead_letter: {to: c.lead}\n"),
			`7: consumers.o.dead_letter.to: is "c.lead", which sources[1].nats_core.subjects[0], "c.lead", takes`},
		{two(coreGold, "nats_core: {url: 'nats://h', subjects: [d]}", ""), "6: consumers.o.sources[1].nats_core.queue: is missing"},
		{two(coreGold, "nats_core: {url: 'nats://h', queue: q}", ""), "6: consumers.o.sources[1].nats_core.subjects: is missing"},
		{two(coreGold, "nats_core: {url: 'nats://h', urls: ['nats://i'], subjects: [d], queue: q}", ""),
			"6: consumers.o.sources[1].nats_core.urls: is set, and so is url: set one"},
		{two("nats_core: {subjects: [d], queue: q, user: u}", "nats_core: {subjects: [e], queue: q}", ""),
			"5: consumers.o.sources[0].nats_core.user: is set and url is not: the embedded server has no such thing"},
		{two(kafkaGold, coreLead, ""), "6: consumers.o.sources[1]: is on another broker than sources[0]"},
		{two(kafkaGold, natsLead, ""), "6: consumers.o.sources[1]: is on another broker than sources[0]"},
		{two(natsGold, "nats: {url: 'nats://other', stream: S, durable: lead}", ""),
			"6: consumers.o.sources[1]: is on another broker than sources[0]"},
		{two(kafkaGold, "kafka: {brokers: ['h:1', 'i:1'], group: other, topics: [gold]}", ""),
			`6: consumers.o.sources[1]: reads topic "gold", as sources[0] does: each message would come by both`},
		{two(kafkaGold, "kafka: {brokers: ['h:1', 'i:1'], group: gold, topics: [gold]}", ""),
			`6: consumers.o.sources[1].kafka.group: is "gold", as with sources[0], and both read topic "gold"`},
		{two(natsGold, "nats: {url: 'nats://h', stream: S, durable: lead, subjects: ['s.*']}", ""),
			`6: consumers.o.sources[1]: reads subject "s.*", as sources[0] does`},
		{two(natsGold, "nats: {url: 'nats://h', stream: S, durable: lead}", ""),
			`6: consumers.o.sources[1]: reads stream "S", as sources[0] does`},
		{two(natsGold, "nats: {url: 'nats://h', stream: S, durable: gold, subjects: [s.lead]}", ""),
			`6: consumers.o.sources[1].nats.durable: is "gold" on stream "S", as with sources[0]`},
		{two(kafkaGold, "kafka: {brokers: ['h:1', 'i:1'], topics: [lead]}", ""), "6: consumers.o.sources[1].kafka.group: is missing"},
		{two(natsGold, "nats: {url: 'nats://h', stream: S, durable: lead, subjects: [s.lead], max_ack_pending: 8}", ""),
			"6: consumers.o.sources[1].nats.max_ack_pending: is 8, below pool.max, 64"},
		{two(kafkaGold, kafkaLead, "    dead_letter: {to: lead}\n"),
			`7: consumers.o.dead_letter.to: is "lead", which sources[1].kafka.topics[0] takes`},
		{two(natsGold, natsLead, "    dead_letter: {to: s.lead}\n"),
			`7: consumers.o.dead_letter.to: is "s.lead", which sources[1].nats.subjects[0], "s.lead", takes`},
		{two(kafkaGold, kafkaLead, "    retry: {topics: [{topic: lead, delay: 1m}]}\n"),
			`7: consumers.o.retry.topics[0].topic: is "lead", which sources[1].kafka.topics[0] takes`},
		{two(kafkaGold, "kafka: {brokers: ['h:1', 'i:1'], group: lead, topics: [lead], tls: {}, sasl: {mechanism: PLAIN, user: u, "+
			"password: p, password_file: f}}", ""),
			"6: consumers.o.sources[1].kafka.sasl.password_file: is set, and so is consumers.o.sources[1].kafka.sasl.password: set one"},
	} {
		if d := parse(c.text, nil); c.want == "" {
			wantFindings(t, d)
			if o := d.File.Consumers["o"]; len(o.Reads()) != 2 || o.Source != o.Reads()[0].Source {
				t.Errorf("%s: reads %+v, source %+v", c.text, o.Reads(), o.Source)
			}
		} else {
			wantFindings(t, d, c.want)
		}
	}
}

// TestSourcesOfTwoConsumers: no other consumer takes messages of any of them.
func TestSourcesOfTwoConsumers(t *testing.T) {
	other := func(source string) string {
		return "  p:\n    routes: [{handler: log}]\n    source: {" + source + "}\n"
	}
	wantFindings(t, parse(two(kafkaGold, kafkaLead, other(kafkaLead)), nil),
		`9: consumers.p.source.kafka.group: is "lead", as with consumers.o, and both read topic "lead"`)
	wantFindings(t, parse(two(natsGold, natsLead, other(natsLead)), nil),
		`9: consumers.p.source.nats.durable: is "lead" on stream "S", as with consumers.o`)
}

// TestMatchOfSources: a route that no message of any of the sources can take.
func TestMatchOfSources(t *testing.T) {
	text := func(match, other string) string {
		return "consumers:\n  o:\n    sources:\n      - {" + natsGold + "}\n      - {" + other + "}\n    routes: [{match: " + match +
			", handler: log}]\n"
	}
	wantFindings(t, parse(text("s.lead", natsLead), nil))
	wantFindings(t, parse(text("s.iron", natsLead), nil),
		`6: consumers.o.routes[0].match: is "s.iron", and no message of sources[0].nats.subjects and sources[1].nats.subjects, `+
			`["s.gold" "s.lead"], can match it`)
	wantFindings(t, parse(text("s.iron", "nats: {url: 'nats://h', stream: T, durable: d}"), nil)) // nobody knows what T has
}

func TestPriority(t *testing.T) {
	one := func(priority string) string {
		return "consumers:\n  o:\n    routes: [{handler: log}]\n    source: {" + kafkaGold + "}\n    priority: " + priority + "\n"
	}
	for _, c := range []struct{ text, want string }{
		{one("{header: urgency, levels: [{values: [high, higher], weight: 16}, {values: [normal]}, {weight: 1}]}"), ""},
		{one("{mode: strict, header: urgency, levels: [{values: [high]}, {values: [low]}]}"), ""},
		{one("{mode: fair, header: u, levels: [{values: [a]}, {}]}"),
			`5: consumers.o.priority.mode: is "fair", want one of [weight strict]`},
		{one("{mode: strict}"), "5: consumers.o.priority.mode: is set, and there is neither"},
		{one("{}"), "5: consumers.o.priority: is set, and there is neither"},
		{one("{levels: [{values: [a]}, {}]}"), "5: consumers.o.priority.header: is missing"},
		{one("{header: u}"), "5: consumers.o.priority.levels: has 0, want at least 2"},
		{one("{header: u, levels: [{values: [a]}]}"), "5: consumers.o.priority.levels: has 1, want at least 2"},
		{one("{header: u, levels: [{weight: 2}, {values: [a]}]}"),
			"5: consumers.o.priority.levels[0].values: is missing or empty: only the last level may do without"},
		{one("{header: u, levels: [{values: [a]}, {values: [b, a]}]}"),
			`5: consumers.o.priority.levels[1].values[1]: is "a", as in levels[0]`},
		{one("{header: u, levels: [{values: [a], weight: -1}, {}]}"),
			"5: consumers.o.priority.levels[0].weight: is -1, want 1 to 1000"},
		{one("{mode: strict, header: u, levels: [{values: [a], weight: 2}, {}]}"),
			"5: consumers.o.priority.levels[0].weight: is set, and priority.mode is strict"},
		{two("weight: 2, "+kafkaGold, kafkaLead, "    priority: {mode: strict}\n"),
			"5: consumers.o.sources[0].weight: is set, and priority.mode is strict"},
	} {
		if d := parse(c.text, nil); c.want == "" {
			wantFindings(t, d)
		} else {
			wantFindings(t, d, c.want)
		}
	}
}
