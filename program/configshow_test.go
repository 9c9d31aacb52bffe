package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/program/internal/config"
)

// TestConfigShow: what is shown is a file that means the same, with the environment and the defaults in it.
func TestConfigShow(t *testing.T) {
	t.Setenv("LONGSHORE_TEST_MAX", "7")
	dir := t.TempDir()
	writeFile(t, dir, "rich.yaml", `log: {level: debug}
admin: {listen: "127.0.0.1:9000", ui: {payloads: false}}
tracing: {endpoint: "http://127.0.0.1:4318", sample: 0, resource: {a: "1"}}
kill_grace: 1m
consumers:
  a:
    source: {kafka: {brokers: ["a:1,b:1"], topics: [in, "true"], group: g, start: 2026-11-21T15:04:05Z, membership: consumer,
      tls: {}}}
    order: key
    timeout: 5s
    pool:
      max: ${LONGSHORE_TEST_MAX}
      mind: [cpu]
    retry: {backoff: {jitter: 0}}
    dead_letter: {to: dead, routes: [{class: decode, to: unread}]}
    middleware: [{use: rate_limit, with: {per_second: 5}}]
    routes: [{match: in, handler: publish, with: {to: out}}, {match: "true", headers: {n: "1"}, handler: log}]
  r:
    source: {kafka: {brokers: ["a:1"], topics: [r], group: g, transactional: true}}
    retry: {topics: [{topic: r-1m, delay: 1m}]}
    routes: [{handler: log}]
  b:
    sources:
      - {weight: 3, nats: {urls: ["nats://a:1", "nats://b:1"], stream: S, subjects: [s], durable: d, max_ack_pending: -1,
          start_sequence: 7}}
      - {nats: {urls: ["nats://a:1", "nats://b:1"], stream: T, subjects: [t], durable: d, start_time: 2026-11-21T15:04:05Z}}
    priority: {header: h, levels: [{values: [high], weight: 4}, {}]}
    drain_timeout: 0s
    batch: {handler: log, size: 5}
  c:
    source: {nats_core: {url: "nats://h:1", subjects: [c], queue: q}}
    no_route: skip
    routes: [{match: c, handler: exec, with: {command: [cat], timeout: 3s}}]
  f:
    source: {nats: {url: "nats://h:1", stream: F, durable: d, bind: true}}
    pool: {policy: fixed, max: 3}
    routes: [{handler: log}]
`)
	for name, text := range config.Examples {
		writeFile(t, dir, name+".yaml", text)
	}
	for _, name := range []string{"rich", "nats", "kafka"} {
		first, err := run(t.Context(), "config", "show", filepath.Join(dir, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := runIn(t.Context(), first, "config", "show", "-")
		if _, again, _ := strings.Cut(second, "\n"); err != nil || again != first[strings.Index(first, "\n")+1:] {
			t.Errorf("%s: shown again (%v) it is\n%s\nand was\n%s", name, err, second, first)
		}
		if name != "rich" {
			continue
		}
		for _, want := range []string{
			"      max: 7\n", "- b:1\n", "start: \"2026-11-21T15:04:05Z\"\n", "payloads: false\n",
			"jitter: 0\n",
			"drain_timeout: 0s\n", "drain_timeout: 52s\n", "commit_interval: 1s\n", "max_ack_pending: 20000\n", "concurrency: 4\n",
			"      - match: \"true\"\n", "n: \"1\"\n", "to: out\n", "timeout: 3s\n", "sample: 0\n", "linger: 100ms\n",
			"partitioner: murmur2\n", "key_header: Longshore-Key\n", "inbox_prefix: _INBOX\n",
		} {
			if !strings.Contains(first, want) {
				t.Errorf("it does not have %q:\n%s", want, first)
			}
		}
	}
}

// TestConfigShowHidesSecrets: in each place that may hold one there is one.
func TestConfigShowHidesSecrets(t *testing.T) {
	const canary = "c4n4ry-0123456789"
	t.Setenv("LONGSHORE_TEST_SECRET", canary)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {token: %[1]s}
tracing: {endpoint: "https://h/%[1]s", headers: {Key: "%[1]s"}}
consumers:
  a:
    source: {kafka: {brokers: [h:1], topics: [a, b, c], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u,
      password: "${LONGSHORE_TEST_SECRET}"}}}
    routes:
      - {match: a, handler: webhook, with: {url: "https://h/%[1]s?k=%[1]s", bearer_token: %[1]s, headers: {K: %[1]s}}}
      - {match: b, handler: webhook, with: {url: "https://h", basic: {user: u, password: %[1]s}}}
      - {match: c, handler: exec, with: {command: [sh, -c, "echo %[1]s"], env: {KEY: %[1]s}}}
  b:
    source: {nats: {url: "tls://u:%[1]s@h:1", stream: S, durable: d}}
    routes: [{handler: log}]
  c:
    source: {nats: {urls: ["tls://%[1]s@h:1"], stream: T, durable: d}}
    routes: [{handler: log}]
  d:
    source: {nats: {url: "tls://h:1", stream: U, durable: d, token_file: %[2]s}}
    routes: [{handler: log}]
  e:
    source: {nats_core: {url: "wss://h:1", subjects: [e], queue: q, user: u, password: "${LONGSHORE_TEST_SECRET}"}}
    routes: [{handler: log}]
`, canary, secret))
	out, err := run(t.Context(), "config", "show", filepath.Join(dir, "c.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, canary) {
		t.Errorf("a secret is shown:\n%s", out)
	}
	for _, want := range []string{"token: '***'\n", "password: '***'\n", "url: https://h/***\n", "url: tls://***@h:1\n",
		"- tls://***@h:1\n", "endpoint: https://h/***\n", "user: u\n", "- sh\n"} {
		if !strings.Contains(out, want) && !strings.Contains(out, strings.ReplaceAll(want, "'", `"`)) {
			t.Errorf("it does not have %q:\n%s", want, out)
		}
	}
	writeFile(t, dir, "bad.yaml", "consumers: {a: {sources: []}}\n")
	if out, err := run(t.Context(), "config", "show", filepath.Join(dir, "bad.yaml")); err == nil || out != "" {
		t.Errorf("of a file with mistakes it shows %q: %v", out, err)
	}
}

// TestConfigSendsNothing: what looks at a file only tells nobody else of it, and waits for nobody.
func TestConfigSendsNothing(t *testing.T) {
	var asked atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer collector.Close()
	const text = "tracing: {endpoint: %q}\nmetrics: {otlp: true}\nconsumers:\n" +
		"  o: {source: {nats: {stream: S, subjects: [s], durable: d}}, routes: [{handler: log}]%s}\n"
	dir := t.TempDir()
	for name, more := range map[string]string{"right": "", "wrong": ", middleware: [{use: timeout}]"} {
		file := filepath.Join(dir, name)
		writeFile(t, dir, name, fmt.Sprintf(text, collector.URL, more))
		for _, args := range [][]string{{"config", "check", file}, {"config", "show", file}, {"run", "-c", file}} {
			if args[0] == "run" && more == "" {
				continue
			}
			if _, err := run(t.Context(), args...); (err != nil) != (more != "") {
				t.Errorf("%q: %v", args, err)
			}
			if n := asked.Swap(0); n > 0 {
				t.Errorf("%q, %s: the collector was asked %d times", args, name, n)
			}
		}
	}
}

// TestConfigShowsTheShare: which is traced without a word of the file, unless a variable says it.
func TestConfigShowsTheShare(t *testing.T) {
	for sampler, want := range map[string]bool{"": true, "always_on": false, "parentbased_always_off": false} {
		t.Setenv("OTEL_TRACES_SAMPLER", sampler)
		out, err := runIn(t.Context(), "tracing: {endpoint: \"http://127.0.0.1:4318\"}\n"+someConsumer, "config", "show", "-")
		if got := strings.Contains(out, "  sample: 0.01\n"); err != nil || got != want || !want && strings.Contains(out, "sample:") {
			t.Errorf("with the sampler %q it shows the default: %v, want %v (%v)\n%s", sampler, got, want, err, out)
		}
	}
}

// TestConfigShowOfAnAdapter: what a broker from outside has for secrets nobody here knows, so that only the names are shown.
func TestConfigShowOfAnAdapter(t *testing.T) {
	b := membroker.New(membroker.Config{})
	root := newRoot(Parts{Adapters: map[string]Adapter{"memory": memory(b)}}.withDefaults())
	var out strings.Builder
	root.SetOut(&out)
	root.SetIn(strings.NewReader(`consumers:
  o: {source: {memory: {topics: [in-canary], group: canary, token: canary}}, routes: [{handler: log}]}
`))
	root.SetArgs([]string{"config", "show", "-"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "canary") || strings.Count(got, "***") != 3 ||
		!strings.Contains(got, "\n      memory:\n        group: ") {
		t.Errorf("shown is\n%s", got)
	}
}
