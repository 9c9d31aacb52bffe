package program

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakesAreFoundOnce: what both the file's check and a package find is one finding, at a path of the file.
func TestMistakesAreFoundOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ consumer, want string }{
		{"{source: {kafka: {brokers: ['h:1'], topics: [o], group: g}}, routes: [{handler: log}], priority: {mode: strict}}",
			":2: consumers.o.priority.mode: is set, and there is neither a header with levels nor more than one of sources: nothing " +
				"goes before anything"},
		{`{source: {kafka: {brokers: ['h:1'], topics: [o], group: g, tls: {}, sasl: {mechanism: SCRAM-SHA-256, user: u, password: ` +
			`"a\x00"}}}, routes: [{handler: log}]}`,
			":2: consumers.o.source.kafka.sasl: has a user or a password that cannot be used with SCRAM-SHA-256"},
		{"{source: {kafka: {brokers: ['h:1'], topics: [o], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u, password_file: " +
			"none}}}, routes: [{handler: log}]}",
			":2: consumers.o.source.kafka.sasl.password_file: open none: no such file or directory"},
		{"{source: {nats: {url: 'nats://h', stream: S, durable: d, token: x}}, routes: [{handler: log}]}",
			":2: consumers.o.source.nats.url: is nats://h: a password or token would go there without TLS; use tls:// or set " +
				"plaintext_auth"},
		{"{source: {nats: {url: 'nats://h', stream: S, durable: d, key_header: K, key_token: 1}}, routes: [{handler: log}]}",
			":2: consumers.o.source.nats.key_header: is set, and so is key_token: set one"},
		{"{source: {nats: {stream: S, subjects: [a.b], durable: d, key_token: 3}}, order: key, routes: [{handler: log}]}",
			`:2: consumers.o.source.nats.key_token: is 3, and no message of subjects, ["a.b"], has so many tokens: none would have a key`},
		{"{source: {nats: {stream: S, subjects: [a], durable: d}}, routes: [{handler: log}], middleware: [{use: concurrency_limit, " +
			"with: {}}]}",
			":2: consumers.o.middleware[0].with.limit: is missing"},
		{"{source: {nats: {stream: S, subjects: [a], durable: d}}, routes: [{handler: log}], middleware: [{use: concurrency_limit, " +
			"with: {limit: 0}}]}",
			":2: consumers.o.middleware[0].with.limit: is 0, want 1 to 2147483647"},
		{"{source: {nats_core: {subjects: [a], queue: q}}, routes: [{handler: log}], middleware: [{use: concurrency_limit, " +
			"with: {limit: 9, shared: true}}]}",
			":2: consumers.o.middleware[0].with.shared: is true, and a source of the consumer cannot tell which part of the work this " +
				"process has: those of nats and kafka can"},
		{"{source: {nats: {stream: S, subjects: [a], durable: d}}, routes: [{handler: log}], middleware: [{use: key_rate_limit, " +
			"with: {per_second: 9, shared: true}}]}",
			":2: consumers.o.middleware[0].with.shared: unknown option; known: burst, per_second"},
		{"{source: {kafka: {brokers: ['h:1'], topics: [o], group: g}}, retry: {topics: [{topic: a b, delay: 1m}]}, " +
			"routes: [{handler: log}]}", `:2: consumers.o.retry.topics[0].topic: is "a b": want a topic's name`},
		{"{source: {kafka: {brokers: ['h:1'], topics: [o], group: g, max_publish_bytes: -1}}, routes: [{handler: log}]}",
			":2: consumers.o.source.kafka.max_publish_bytes: is -1, want 1 to 1073741823"},
		{"{source: {kafka: {brokers: ['h:1'], topics: [o], group: g, isolation: read_uncommitted, transactional: true}}, " +
			"routes: [{handler: log}]}", ":2: consumers.o.source.kafka.transactional: is set, and so is isolation: " +
			"read_uncommitted: outputs would be made of messages that are taken back"},
	} {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", "consumers:\n  o: "+c.consumer+"\n")
		file := filepath.Join(dir, "c.yaml")
		if _, err := run(t.Context(), "config", "check", file); err == nil || strings.TrimSpace(err.Error()) != file+c.want {
			t.Errorf("%s: %v", c.consumer, err)
		}
	}
}

// TestMistakesDoNotHideOthers: what is wrong with one route does not keep what is wrong with another from being told.
func TestMistakesDoNotHideOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  o:
    source: {kafka: {brokers: ['h:1'], topics_pattern: 'a.*', group: g}}
    routes:
      - {match: ax, handler: log, middleware: [{use: nope}]}
      - {match: bx, handler: webhook}
      - {match: by, handler: publish, with: {to: az}}
      - {match: cx, handler: log, middleware: [{use: timeout}]}
`)
	_, err := run(t.Context(), "config", "check", filepath.Join(dir, "c.yaml"))
	for _, want := range []string{`routes[0].middleware[0].use: is "nope"`, "routes[1].with.url: is required",
		`routes[2].with.to: is "az", which source.kafka.topics_pattern, "a.*", takes`, "routes[3].middleware[0].with.after: is missing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// TestEmbeddedPort: a port that is none is one finding, where it stands; 0 would be taken for the default.
func TestEmbeddedPort(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"-1", "0", "70000"} {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", "embedded: {port: "+port+"}\nconsumers:\n  o: {source: {nats: {stream: S, subjects: [a], "+
			"durable: d}}, routes: [{handler: log}]}\n")
		file := filepath.Join(dir, "c.yaml")
		_, err := run(t.Context(), "config", "check", file)
		if want := file + ":1: embedded.port: is " + port + ", want 1 to 65535"; err == nil || strings.TrimSpace(err.Error()) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
