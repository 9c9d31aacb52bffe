package program

import (
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestOriginsArePublishable: a pattern of a source takes names that no message can be published to. A letter that names one as
// where it came from is refused as foreign by page and commands alike, and not tried.
func TestOriginsArePublishable(t *testing.T) {
	for source, topics := range map[string]map[string]bool{
		`{nats: {url: "nats://h:1", stream: S, durable: d, subjects: ["orders.>"]}}`: {
			"orders.new": true, "orders.*": false, "orders.>": false, "orders..new": false, "other": false,
		},
		`{kafka: {brokers: ["h:1"], topics_pattern: "orders.*", group: g}}`: {"orders.new": true, "orders/new": false, "other": false},
	} {
		doc := config.Parse("c.yaml", []byte("consumers:\n  a:\n    source: "+source+"\n    routes: [{handler: log}]\n"),
			func(string) (string, bool) { return "", false })
		if err := doc.Err(); err != nil {
			t.Fatal(err)
		}
		allowed, err := origins(t.Context(), &doc.File, doc.File.Consumers["a"])
		if err != nil {
			t.Fatal(err)
		}
		for topic, want := range topics {
			if allowed(topic) != want {
				t.Errorf("%s: %q is allowed: %v, want %v", source, topic, !want, want)
			}
		}
	}
}
