package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestCircles is bad input b25: dead letters that come back are told of, for who wants to try them again once may do so.
func TestCircles(t *testing.T) {
	kafka := func(topics string) string {
		return "source: {kafka: {brokers: ['h:1', 'i:1'], group: " + topics + ", topics: [" + topics + "]}}"
	}
	nats := func(subjects string) string {
		return "source: {nats: {url: 'nats://h', stream: S, durable: d" + subjects + ", subjects: [" + subjects + "]}}"
	}
	for _, c := range []struct {
		name, reads, dead, looks, to string
		want                         bool
	}{
		{"Kafka", kafka("orders"), "dead", kafka("dead"), "orders", true},
		{"a pattern", kafka("orders"), "dead", "source: {kafka: {brokers: ['i:1', 'h:1'], group: g, topics_pattern: 'd.*'}}", "orders",
			true},
		{"another topic", kafka("orders"), "dead", kafka("dead"), "again", false},
		{"not the dead letters", kafka("orders"), "dead", kafka("other"), "orders", false},
		{"another cluster", kafka("orders"), "dead", "source: {kafka: {brokers: ['x:1'], group: g, topics: [dead]}}", "orders", false},
		{"another broker", kafka("orders"), "dead", nats("dead"), "orders", false},
		{"NATS", nats("orders.*"), "dead.orders", nats("dead.>"), "orders.again", true},
		{"a route of dead letters", kafka("orders"), "rest, routes: [{class: decode, to: dead}]", kafka("dead"), "orders", true},
		{"NATS, another subject", nats("orders.*"), "dead.orders", nats("dead.>"), "again", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := parse(fmt.Sprintf(`consumers:
  work:
    %s
    dead_letter: {to: %s}
    routes: [{handler: log}]
  replay:
    %s
    routes: [{match: never.this, handler: log}, {handler: publish, with: {to: "${TO}"}}]
`, c.reads, c.dead, c.looks), map[string]string{"TO": c.to})
			if got := len(d.Warnings); got > 1 || got == 1 != c.want {
				t.Fatalf("warnings: %+v", d.Warnings)
			}
			if c.want && (d.Warnings[0].Path != "consumers.replay.routes[1].with.to" || d.Warnings[0].Line != 8 ||
				!strings.Contains(d.Warnings[0].Problem, "which consumers.work reads, whose dead letters, \"dead")) {
				t.Errorf("%+v", d.Warnings[0])
			}
		})
	}
}
