package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/program/internal/config"
	"go.yaml.in/yaml/v3"
)

// parse reads text with an environment.
func parse(text string, env map[string]string) *config.Document {
	return config.Parse("c.yaml", []byte(text), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

// findings are the lines of a document's error.
func findings(d *config.Document) []string {
	err := d.Err()
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// wantFindings holds all findings against what they begin with, in the order of the file.
func wantFindings(t *testing.T, d *config.Document, want ...string) {
	t.Helper()
	got := findings(d)
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], "c.yaml:"+want[i])
	}
	if !ok {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// least is a file with nothing wrong, into which a test puts something.
const least = `consumers:
  orders:
    source: {nats: {url: "nats://127.0.0.1:4222", stream: ORDERS, durable: workers}}
    routes: [{handler: log}]
`

func TestLeastFile(t *testing.T) {
	d := parse(least, nil)
	wantFindings(t, d)
	c := d.File.Consumers["orders"]
	if c == nil || c.Source.NATS.Stream != "ORDERS" || c.Routes[0].Handler != "log" {
		t.Errorf("%+v", d.File)
	}
}

// TestFiveMistakes: all are named at once, with path and line (bad input b01).
func TestFiveMistakes(t *testing.T) {
	d := parse(`consumers:
  orders:
    source:
      nats: {url: "nats://127.0.0.1:4222", stream: S, durable: w, subjects: ["orders.>"], password: "${NATS_PASSWORD}", user: u}
    pool:
      min: 8
      max: 4
      maximum: 64
    timeout: 30
    dead_letter: {to: orders.dead}
    routes: [{handler: log}]
`, nil)
	wantFindings(t, d,
		"4: consumers.orders.source.nats.password: environment variable NATS_PASSWORD is not set",
		"7: consumers.orders.pool.max: is 4, below pool.min, 8",
		"8: consumers.orders.pool.maximum: unknown option; known: idle_timeout, max, min, mind, policy",
		"9: consumers.orders.timeout: wants a duration such as 10s or 1m30s, is a number",
		`10: consumers.orders.dead_letter.to: is "orders.dead", which source.nats.subjects[0], "orders.>", takes`,
	)
}

// TestContradictions is bad input b02 and b03: each with the value and what it contradicts.
func TestContradictions(t *testing.T) {
	for text, want := range map[string]string{
		"pool: {min: 0}":                            "pool.min: is 0, want at least 1",
		"pool: {max: -4}":                           "pool.max: is -4, want at least 1",
		"pool: {min: 100, max: 64}":                 "pool.max: is 64, below pool.min, 100",
		"pool: {policy: fastest}":                   `pool.policy: is "fastest", want one of [report-status`,
		"pool: {mind: [cpu, disk]}":                 `pool.mind[1]: is "disk", want one of [cpu memory]`,
		"order: random":                             `order: is "random", want one of [none key partition]`,
		"lane: {limit: 5}":                          "lane: is set and order is not: there are no lanes",
		"order: key\n    lane: {limit: 0}":          "lane.limit: is 0, want at least 1",
		"order: key\n    lane: {full: drop}":        `lane.full: is "drop", want one of [block dead_letter]`,
		"order: key\n    lane: {full: dead_letter}": "lane.full: is dead_letter, and there is no dead_letter",
		"budget: {messages: 10}":                    "budget.messages: is 10, below pool.max, 64",
		"budget: {bytes: -1}":                       "budget.bytes: is -1, want at least 1",
		"drain_timeout: -1s":                        "drain_timeout: is -1s, negative",
		"open_timeout: 700h":                        "open_timeout: is 700h0m0s, more than 596h31m23.647s",
		"timeout: 1000000000000h":                   "timeout: wants a duration such as 10s or 1m30s, is longer than 292 years",
		"timeout: -5s":                              "timeout: is -5s, negative",
		"timeout: 55m\n    stuck_after: 10m":        "source.nats.max_hold: is 1h0m0s, below timeout and stuck_after together, 1h5m0s",
		"stuck_after: 3s":                           "stuck_after: is set and timeout is not",
		"retry: {max_attempts: 0}":                  "retry.max_attempts: is 0, want at least 1",
		"retry: {backoff: {max: 100ms}}":            "retry.backoff.max: is 100ms, below retry.backoff.initial, 200ms",
		"retry: {backoff: {initial: 0s}}":           "retry.backoff.initial: is 0s, want more",
		"retry: {backoff: {factor: 0.5}}":           "retry.backoff.factor: is 0.5, want 1 to 100",
		"retry: {backoff: {factor: .nan}}":          "retry.backoff.factor: wants a number",
		"retry: {backoff: {jitter: 2}}":             "retry.backoff.jitter: is 2, want 0 to 1",
		"dead_letter: {}":                           "dead_letter.to: is missing",
		"dead_letter: {to: $JS.API.X}":              `dead_letter.to: is "$JS.API.X", which is the broker's own`,
		`dead_letter: {to: "dead.*"}`:               `dead_letter.to: is "dead.*": want a subject without wildcards`,
		"dead_letter: {to: dead, concurrency: -2}":  "dead_letter.concurrency: is -2, want at least 1",
		"max_message_bytes: -1":                     "max_message_bytes: is -1, negative",
		"middleware: [{with: {}}]":                  "middleware[0].use: is missing",
		"budget: {messages: 9223372036854775808}":   "budget.messages: wants a whole number",
		"pool: {max: 30000}":                        "pool.max: is 30000, above source.nats.max_ack_pending, 20000 unless it is set",
		"pool: {max: 1.5}":                          "pool.max: wants a whole number",
		"max_stuck: 1e400":                          "max_stuck: wants a whole number",
	} {
		d := parse(least+"    "+text+"\n", nil)
		got := findings(d)
		if len(got) != 1 || !strings.Contains(got[0], ": consumers.orders."+want) {
			t.Errorf("%s: found %q, want one with %q", text, got, want)
		}
	}
}

func TestContradictionsOfSources(t *testing.T) {
	for _, c := range []struct{ nats, want string }{
		{"{stream: S, durable: d}", "nats.subjects: is missing; without a url"},
		{"{durable: d, subjects: [a]}", "nats.stream: is missing"},
		{"{stream: S, subjects: [a]}", "nats.durable: is missing"},
		{"{stream: a.b, durable: d, subjects: [a]}", `nats.stream: is "a.b": no dots`},
		{`{stream: "a\0b", durable: d, subjects: [a]}`, `nats.stream: is "a\x00b": no control characters`},
		{`{stream: a, durable: "d\e", subjects: [a]}`, `nats.durable: is "d\x1b": no control characters`},
		{"{stream: S, durable: d, subjects: [a..b]}", `nats.subjects[0]: is "a..b", which is no subject`},
		{"{stream: S, durable: d, subjects: [a.>, b, a.c]}", `nats.subjects[2]: is "a.c", which overlaps with subjects[0], "a.>"`},
		{"{stream: S, durable: d, url: 'nats://h', subjects: [a.>, a.c]}",
			`nats.subjects[1]: is "a.c", which overlaps with subjects[0], "a.>": a message would come by both`},
		{"{stream: S, durable: d, subjects: ['a.*', '*.b']}",
			`nats.subjects[1]: is "*.b", which overlaps with subjects[0], "a.*": a stream cannot have both`},
		{"{stream: S, durable: d, subjects: [a], user: u}", "nats.user: is set and url is not"},
		{"{stream: S, durable: d, subjects: [a], tls: {}}", "nats.tls: is set and url is not"},
		{"{stream: S, durable: d, url: ''}", "nats.url: is empty"},
		{"{stream: S, durable: d, url: 'nats://h', urls: ['nats://h']}", "nats.urls: is set, and so is url"},
		{"{stream: S, durable: d, url: 'nats://h', key_token: 0}", "nats.key_token: is 0, want 1"},
		{"{stream: S, durable: d, url: 'nats://h', key_token: 1, key_header: K}",
			"nats.key_header: is set, and so is key_token: set one"},
		{"{stream: S, durable: d, subjects: [a.*, b.c.d], key_token: 4}",
			`nats.key_token: is 4, and no message of subjects, ["a.*" "b.c.d"], has so many tokens`},
		{"{stream: S, durable: d, subjects: [a.b], key_token: -3}", `nats.key_token: is -3, and no message of subjects`},
		{"{stream: S, durable: d, url: 'nats://h', key_header: ''}", "nats.key_header: is empty"},
		{"{stream: S, durable: d, url: 'nats://h', create_stream: true}", "nats.create_stream: is set and subjects is not"},
		{"{stream: S, durable: d, url: 'nats://h', deliver: some}", `nats.deliver: is "some"`},
		{"{stream: S, durable: d, url: 'nats://h', ack_wait: -1s}", "nats.ack_wait: is -1s, negative"},
		{"{stream: S, durable: d, url: 'nats://h', max_ack_pending: 8}", "nats.max_ack_pending: is 8, below pool.max, 64"},
		{"{stream: S, durable: d, url: 'nats://h', tls: {cert_file: x}}", "nats.tls.cert_file: is set and tls.key_file is not"},
		{"{stream: S, durable: d, url: 'nats://h', creds_file: /no/such/file}", "nats.creds_file: open /no/such/file"},
		{"{stream: S, durable: d, url: 'tls://h', token: t, token_file: f}", "nats.token_file: is set, and so is"},
		{"{stream: S, durable: d, url: 'nats://h', token: ''}", "nats.token: is empty"},
	} {
		got := findings(parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source:\n      nats: "+c.nats+"\n", nil))
		if len(got) != 1 || !strings.HasPrefix(got[0], "c.yaml:5: consumers.orders.source."+c.want) {
			t.Errorf("%s: found %q, want %q", c.nats, got, c.want)
		}
	}
}

func TestContradictionsOfAFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "c.yaml: the file is empty"},
		{"just text", "c.yaml: want a mapping"},
		{"- a\n- b", "c.yaml: want a mapping"},
		{"a: [", "c.yaml:1: not YAML"},
		{"consumers: {}", "c.yaml:1: consumers: is missing or empty"},
		{least + "admin: {listen: localhost}", `c.yaml:5: admin.listen: is "localhost", want host:port`},
		{least + "admin: {listen: 'a b:80'}", `c.yaml:5: admin.listen: is "a b:80", want host:port`},
		{least + "admin: {listen: '*:80'}", `c.yaml:5: admin.listen: is "*:80", want host:port`},
		{least + "admin: {listen: '256.1.1.1:80'}", `c.yaml:5: admin.listen: is "256.1.1.1:80", want host:port`},
		{least + "admin: {listen: 'localhost:http'}", `c.yaml:5: admin.listen: is "localhost:http", want host:port`},
		{least + `admin: {token: "0123456789abcdef\n0123456789abcdef"}`, "c.yaml:5: admin.token: the token has a blank at an end, a " +
			"line break or another character that no request can bring"},
		{least + `admin: {token: "0123456789abcdef "}`, "c.yaml:5: admin.token: the token has a blank at an end, a line break or " +
			"another character that no request can bring"},
		{least + "admin: {token: short}", "c.yaml:5: admin.token: the token has 5 bytes, want at least 16"},
		{least + "embedded: {port: 70000}", "c.yaml:5: embedded.port: is 70000, want 1 to 65535"},
		{least + "kill_grace: 0s", "c.yaml:5: kill_grace: is 0s, want more"},
		{least + "log: {level: loud}", `c.yaml:5: log.level: is "loud"`},
		{least + "log:", "c.yaml:5: log: has no value"},
		{least + "consumers: {}", "c.yaml:5: consumers: is here twice; the first is in line 1"},
		{least + "---\nconsumers: {}", "c.yaml:5: there is a second document"},
		{least + "log: {level: !secret x}", "c.yaml:5: log.level: has a tag of its own"},
		{least + "log: !override {level: info}", "c.yaml:5: log: has a tag of its own"},
		{strings.Replace(least, "[", "!reset [", 1), "c.yaml:4: consumers.orders.routes: has a tag of its own"},
		{least + "kafka: {}", "c.yaml:5: kafka: unknown option; known: admin, consumers, embedded, kill_grace, log"},
		{least + "  orders: {}", "c.yaml:5: consumers.orders: is here twice; the first is in line 2"},
		{least + "  'a b': {source: {nats: {url: x, stream: s, durable: d}}, routes: [{handler: log}]}",
			"c.yaml:5: consumers.a b: a consumer's name has"},
		{least + "  again:\n    routes: [{handler: log}]\n    source: {nats: {url: 'nats://127.0.0.1:4222', stream: ORDERS, durable: " +
			"workers}}", `c.yaml:7: consumers.again.source.nats.durable: is "workers" on stream "ORDERS", as with consumers.orders`},
	} {
		got := findings(parse(c.text, nil))
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s\nfound %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{"MAX": "12", "EMPTY": "", "TOKEN": "0123456789012345", "NAME": "a: {b: [c", "ON": "true"}
	d := parse(least+`    pool: {min: "${MIN:-3}", max: "${MAX}"}
    drain_timeout: ${DRAIN:-7s}
    budget:
      messages: ${BUDGET:-99}
admin:
  token: ${TOKEN}
  listen: "${EMPTY:-127.0.0.1}:80${MAX}"
log:
  level: $${NAME}
embedded:
  dir: ${NAME}
`, env)
	wantFindings(t, d, "5: consumers.orders.pool.max: wants a whole number, is a string",
		"5: consumers.orders.pool.min: wants a whole number, is a string",
		`13: log.level: is "${NAME}", want one of`)
	f := d.File
	c := f.Consumers["orders"]
	if f.Admin.Token.Reveal() != env["TOKEN"] || f.Admin.Listen != "127.0.0.1:8012" || f.Embedded.Dir != env["NAME"] {
		t.Errorf("admin %+v, embedded %+v", f.Admin, f.Embedded)
	}
	if c.DrainTimeout != 7*time.Second || c.Budget.Messages != 99 {
		t.Errorf("consumer %+v", c)
	}
	wantFindings(t, parse(least+"log: {level: \"${}\"}\nembedded: {dir: \"${A B}${open\"}\n", nil),
		"5: log.level: has a ${ that is neither", "6: embedded.dir: has a ${ that is neither",
		"6: embedded.dir: has a ${ that is neither")
}

func TestAliasesEndAndBombsDoNotGoOff(t *testing.T) {
	d := parse("consumers:\n  a: &a\n    source: {nats: {url: x, stream: S, durable: d}}\n    routes: &r [{handler: log}]\n  b:\n "+
		"   source: {nats: {url: x, stream: S, durable: e}}\n    routes: *r\n", nil)
	wantFindings(t, d)
	if len(d.File.Consumers["b"].Routes) != 1 {
		t.Errorf("%+v", d.File.Consumers["b"])
	}
	var bomb strings.Builder
	bomb.WriteString("x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&bomb, "x%d: &x%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d, ", i-1), 10), ", "))
	}
	if got := findings(parse(bomb.String(), nil)); !strings.Contains(strings.Join(got, "\n"), "there is too much here") {
		t.Errorf("a bomb: %d findings, %.200q", len(got), got)
	}
	wantFindings(t, parse("consumers:\n  a: &a\n    source: {nats: {url: x, stream: S, durable: d}}\n    routes: [{handler: log}]\n"+
		"  b:\n    <<: *a\n    routes: [{handler: log}]\n", nil),
		"6: consumers.b: has a merge key (<<), which is not read; an alias (*name) stands for a whole value")
	if got := findings(parse("log: &a\n  level: *a\n", nil)); len(got) == 0 {
		t.Error("a file that contains itself is accepted")
	}
}

const canary = "canary-5a17c9d2e8b4"

// everySecret is a file with a canary in each field that may hold a secret, once in the file and once in files that it names.
func everySecret(t *testing.T) (text string, env map[string]string) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return `admin: {token: "${SECRET}"}
consumers:
  a:
    source: {nats: {url: "tls://h", stream: S, durable: a, user: u, password: "` + canary + `"}}
    routes: [{handler: webhook, with: {url: "https://h/x", headers: {X-Key: "` + canary + `"}}}]
    middleware: [{use: dedup, with: {header: "` + canary + `"}}]
  b:
    source: {nats: {url: "tls://h", stream: S, durable: b, token_file: ` + file + `}}
    routes: [{handler: log}]
  c:
    source: {kafka: {brokers: ["h:1"], topics: [t], group: c, tls: {}, sasl: {mechanism: PLAIN, user: u, password: "${SECRET}"}}}
    routes: [{handler: log}]
  d:
    source: {kafka: {brokers: ["h:1"], topics: [t], group: d, tls: {}, sasl: {mechanism: PLAIN, user: u, password_file: ` +
		file + `}}}
    routes: [{handler: log}]
`, map[string]string{"SECRET": canary}
}

// TestSecretsAreNotPrinted: neither by a verb, nor by an encoder.
func TestSecretsAreNotPrinted(t *testing.T) {
	text, env := everySecret(t)
	d := parse(text, env)
	wantFindings(t, d)
	a, b := d.File.Consumers["a"], d.File.Consumers["b"]
	if d.File.Admin.Token.Reveal() != canary || a.Source.NATS.Password.Reveal() != canary || b.Source.NATS.Token.Reveal() != canary {
		t.Error("a secret did not arrive")
	}
	k, f := d.File.Consumers["c"].Source.Kafka, d.File.Consumers["d"].Source.Kafka
	if k.SASL.Password.Reveal() != canary || f.SASL.Password.Reveal() != canary {
		t.Error("a secret for Kafka did not arrive")
	}
	asJSON, err := json.Marshal(d.File)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(d.File)
	if err != nil {
		t.Fatal(err)
	}
	outs := []string{string(asJSON), string(asYAML)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		outs = append(outs, fmt.Sprintf(verb, *a), fmt.Sprintf(verb, *a.Source.NATS), fmt.Sprintf(verb, *k.SASL),
			fmt.Sprintf(verb, d.File.Admin), fmt.Sprintf(verb, a.Middleware))
	}
	for _, out := range outs {
		if strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
			t.Errorf("a secret is printed:\n%s", out)
		}
	}
}

// TestSecretsAreNotInFindings: a secret of the wrong shape is named, not shown.
func TestSecretsAreNotInFindings(t *testing.T) {
	for _, text := range []string{
		"admin: {token: [" + canary + "]}", "admin: {token: {" + canary + ": " + canary + "}}", "admin: {token: " + canary[:10] + "}",
		"admin: {no_progress: " + canary + "}", "kill_grace: ${SECRET}", "admin: {listen: {a: ${SECRET}}}",
		"embedded: {port: ${SECRET}}",
	} {
		d := parse(least+strings.ReplaceAll(text, "${SECRET}", "\"${SECRET}\""), map[string]string{"SECRET": canary})
		got := strings.Join(findings(d), "\n")
		if got == "" || strings.Contains(got, "canary") && !strings.Contains(text, "{"+canary) {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// YAML's own words about a secret that is not in quotes do not repeat it.
func TestSyntaxShowsNoSecret(t *testing.T) {
	for _, value := range []string{
		"*canary", "*canary x", "&canary *canary", "!canary x", "!<canary> x", "!!canary x", "@canary", "%canary", "`canary", "{canary",
		"[canary", "{canary: *canary}", "|canary", ">canary",
		"\"can\\qary", "canary: canary: x", "'canary", "? canary", "- canary",
	} {
		d := parse(least+"admin:\n  token: "+value+"\n", nil)
		if got := strings.Join(findings(d), "\n"); got == "" || strings.Contains(got, "canary") && !strings.HasPrefix(value, "{") {
			t.Errorf("token: %s: %q", value, got)
		}
	}
}

// A secret that stands in a file which others can read is warned of, wherever it stands; one that comes from elsewhere is not.
func TestSecretsInAnOpenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := `admin: {token: 0123456789abcdef}
consumers:
  o:
    source: {nats: {url: "tls://u:pw@h", stream: S, durable: d}}
    routes: [{handler: log}]
  p:
    source: {nats: {url: "tls://h", stream: S, durable: p, token: "${TOKEN}"}}
    routes: [{handler: log}]
  q:
    source: {kafka: {brokers: ["h:1"], topics: [a], group: g, tls: {}, sasl: {mechanism: PLAIN, user: u, password: literal}}}
    routes: [{handler: log}]
`
	env := func(string) (string, bool) { return "from-elsewhere", true }
	for mode, want := range map[os.FileMode][]string{
		0o600: nil,
		0o644: {"admin.token", "consumers.o.source.nats.url", "consumers.q.source.kafka.sasl.password"},
	} {
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		d, err := config.Load(file, env)
		if err != nil || d.Err() != nil {
			t.Fatal(err, d.Err())
		}
		var got []string
		for _, w := range d.Warnings {
			got = append(got, w.Path)
			if !strings.Contains(w.Problem, "0644") || w.Line == 0 || strings.Contains(w.Problem, "literal") {
				t.Errorf("%+v", w)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("mode %04o: %q, want %q", mode, got, want)
		}
	}
}

// TestCredentialsOfSystemd: nobody can change the mode of what LoadCredential of systemd put there, so it is no warning at each
// start. A folder that only begins alike is another one.
func TestCredentialsOfSystemd(t *testing.T) {
	dir := t.TempDir()
	for folder, want := range map[string]int{"c": 0, "c2": 1} {
		file := filepath.Join(dir, folder, "token")
		if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("0123456789abcdef"), 0o600),
			os.Chmod(file, 0o440)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "c"))
		if d := parse(least+"admin: {token_file: "+file+"}", nil); len(d.Warnings) != want {
			t.Errorf("%s: warnings %+v, want %d", folder, d.Warnings, want)
		}
	}
}

// TestLeadingZero: one YAML has 010 as eight, another as ten, and so do people. What is octal or hexadecimal to all is taken.
func TestLeadingZero(t *testing.T) {
	for number, want := range map[string]string{"010": "010", "-010": "-010", "0_10": "0_10", "0": "", "0o10": "", "0x10": ""} {
		d := parse(least+"embedded: {port: "+number+"}\n", nil)
		got := findings(d)
		said := slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, "is "+want+": one YAML") })
		if want != "" && !said || want == "" && strings.Contains(strings.Join(got, "\n"), "one YAML") {
			t.Errorf("%s: %q", number, got)
		}
	}
}

// TestUserWithoutPassword: a server may have such a user, so it is no mistake; mostly the password was forgotten, and the server
// would refuse the login again and again.
func TestUserWithoutPassword(t *testing.T) {
	for source, want := range map[string]int{
		`nats: {url: "nats://127.0.0.1:4222", stream: S, durable: d, user: u}`:                1,
		`nats_core: {url: "nats://127.0.0.1:4222", subjects: [a], queue: q, user: u}`:         1,
		`nats: {url: "nats://127.0.0.1:4222", stream: S, durable: d, user: u, password: pw1}`: 0,
	} {
		d := parse("consumers:\n  o:\n    source: {"+source+"}\n    routes: [{handler: log}]\n", nil)
		if err := d.Err(); err != nil || len(d.Warnings) != want {
			t.Errorf("%s: %v, warnings %+v, want %d", source, err, d.Warnings, want)
		} else if want > 0 && (d.Warnings[0].Line != 3 || !strings.HasSuffix(d.Warnings[0].Path, ".user")) {
			t.Errorf("%s: %+v", source, d.Warnings[0])
		}
	}
}

// TestWarningsHaveAnOrder: two checks of one file say the same.
func TestWarningsHaveAnOrder(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte("0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := "consumers:\n"
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		text += "  " + name + ": {source: {nats: {url: 'tls://h:1', stream: S, durable: " + name + ", token_file: " + open +
			"}}, routes: [{handler: log}]}\n"
	}
	for range 20 {
		d := parse(text, nil)
		if err := d.Err(); err != nil || len(d.Warnings) != 8 ||
			!slices.IsSortedFunc(d.Warnings, func(a, b config.Finding) int { return a.Line - b.Line }) {
			t.Fatalf("%v %+v", err, d.Warnings)
		}
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, empty := write("open", "0123456789abcdef", 0o644), write("empty", "\n", 0o600)
	d := parse(least+"admin: {token_file: "+open+"}", nil)
	wantFindings(t, d)
	if len(d.Warnings) != 1 || d.Warnings[0].Line != 5 || d.Warnings[0].Path != "admin.token_file" ||
		!strings.Contains(d.Warnings[0].Problem, "0644") {
		t.Errorf("warnings: %+v", d.Warnings)
	}
	for file, want := range map[string]string{empty: "is empty", dir: "is a folder", filepath.Join(dir, "none"): "no such file"} {
		got := findings(parse(least+"admin: {token_file: "+file+"}", nil))
		if len(got) != 1 || !strings.Contains(got[0], "admin.token_file: ") || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q", file, got)
		}
	}
}

func TestLoadWithoutFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), os.LookupEnv)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Error(err)
	}
}

// A name may be anything, and a finding stays on its line: who reads the findings reads lines.
func TestFindingsOfNamesWithLineBreaks(t *testing.T) {
	for text, want := range map[string]string{
		`{consumers: {"a\nc.yaml:9: b": {routes: []}}}`: `c.yaml:1: consumers.a\nc.yaml:9: b: a consumer's name has`,
		`{"a\r\nb": 1}`: `c.yaml:1: a\r\nb: unknown option`,
		`{consumers: {x: {routes: [{handler: log, with: {"a\nb": 1}}]}}}`: `c.yaml:1: consumers.x.source`,
	} {
		found := findings(parse(text, nil))
		if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("%s: no line of %q begins with %s", text, found, want)
		}
		for _, line := range found {
			if !strings.HasPrefix(line, "c.yaml:") {
				t.Errorf("%s: %q", text, line)
			}
		}
	}
}

// A number in quotes is a string, and who has put ${…} in quotes, since { begins a mapping, is told what to do.
func TestFilledInQuotes(t *testing.T) {
	for text, want := range map[string]string{
		`{pool: {max: "${N}"}}`: "pool.max: wants a whole number, is a string: in quotes ${…} is one. " +
			"Write it without, on a line of its own",
		`{pool: {max: "8"}}`: "pool.max: wants a whole number, is a string",
		`{timeout: "${N}"}`:  "timeout: wants a duration such as 10s or 1m30s, is a number without a unit",
	} {
		found := findings(parse("consumers: {orders: "+text+"}", map[string]string{"N": "8"}))
		if !slices.Contains(found, "c.yaml:1: consumers.orders."+want) {
			t.Errorf("%s: %q, want %s", text, found, want)
		}
	}
	d := parse("consumers:\n  orders:\n    pool:\n      max: ${N}\n", map[string]string{"N": "8"})
	if d.File.Consumers["orders"].Pool.Max != 8 {
		t.Errorf("on a line of its own: %q", findings(d))
	}
}

// FuzzParse: whatever a file holds, it is read to an end, and each finding has its place.
func FuzzParse(f *testing.F) {
	f.Add(least)
	f.Add(config.Examples["nats"])
	f.Add(config.Examples["kafka"])
	f.Add("a: &a [*a]")
	f.Add("consumers: {x: {routes: [{with: {a: ${B}}}]}}")
	f.Add(`consumers: {"a\nb": {"c\rd": 1, "\u2028": "${X}"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		d := parse(text, map[string]string{"B": "${B}"})
		if d.Err() == nil && len(d.File.Consumers) == 0 {
			t.Error("nothing to run, and nothing wrong")
		}
		for _, line := range findings(d) {
			if !strings.HasPrefix(line, "c.yaml:") {
				t.Errorf("%q", line)
			}
		}
	})
}

// A file whose text was changed has another digest, and one that was not has the same.
func TestDigest(t *testing.T) {
	digest := func(name, text string) string { return config.Parse(name, []byte(text), nil).Digest }
	one, same := digest("c.yaml", "consumers: {}\n"), digest("d.yaml", "consumers: {}\n")
	other := digest("c.yaml", "consumers: {} \n")
	if one != same || one == other || len(one) != 12 {
		t.Errorf("digests %q, %q, %q", one, same, other)
	}
}
