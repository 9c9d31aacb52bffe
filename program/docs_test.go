package program

import (
	"encoding"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/handlers/middleware"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/pool"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/prometheus/client_golang/prometheus"
)

// keys are all paths of a configuration type, with NAME and [] for what is chosen.
func keys(t reflect.Type, at string, out map[string]bool) {
	switch {
	case t.Kind() == reflect.Pointer:
		keys(t.Elem(), at, out)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) || t == reflect.TypeFor[config.With]():
		out[at] = true
	case t.Kind() == reflect.Struct:
		if at != "" {
			out[at], at = true, at+"."
		}
		for i := range t.NumField() {
			name, how, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
			if how == "inline" {
				keys(t.Field(i).Type, strings.TrimSuffix(at, "."), out)
				continue
			}
			if name == "" || name == "-" {
				continue
			}
			key := at + name
			if t == reflect.TypeFor[config.Input]() && t.Field(i).Type.Kind() == reflect.Pointer {
				out[key] = true // what is in it is as in source
				continue
			}
			if t.Field(i).Type == reflect.TypeFor[*config.NATSCore]() {
				// what it has more is as in nats
				out[key], out[key+".subjects"], out[key+".queue"] = true, true, true
				continue
			}
			keys(t.Field(i).Type, key, out)
		}
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Pointer:
		out[at] = true
		keys(t.Elem(), at+".NAME", out)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		out[at] = true
		keys(t.Elem(), at+"[]", out)
	default:
		out[at] = true
	}
}

// sections are keys that only hold others, and need no line of their own.
var sections = []string{"log", "embedded", "consumers.NAME", "consumers.NAME.source", "consumers.NAME.pool",
	"consumers.NAME.retry",
	"consumers.NAME.retry.backoff", "consumers.NAME.budget", "consumers.NAME.lane", "consumers.NAME.retry.topics[]",
	"consumers.NAME.dead_letter.routes[]", "consumers.NAME.sources[]", "consumers.NAME.priority.levels[]", "consumers.NAME.routes[]",
	"consumers.NAME.routes[].middleware[]", "consumers.NAME.middleware[]"}

// TestDocsNameEveryKey: docs/configuration.md has each key that a file may have, and no other.
func TestDocsNameEveryKey(t *testing.T) {
	want := map[string]bool{}
	keys(reflect.TypeFor[config.File](), "", want)
	for _, s := range sections {
		if !want[s] {
			t.Errorf("%s is no key any more", s)
		}
		delete(want, s)
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z][^`]*)` \\|").FindAllStringSubmatch(section(t, "## All keys",
		"## Middleware"), -1) {
		have[m[1]] = true
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !have[key] {
			t.Errorf("docs/configuration.md does not have %s", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if !want[key] {
			t.Errorf("docs/configuration.md has %s, which is no key", key)
		}
	}
}

// section is a part of docs/configuration.md.
func section(t *testing.T, from, to string) string {
	t.Helper()
	text := readFile(t, "../docs", "configuration.md")
	_, text, ok := strings.Cut(text, from+"\n")
	if !ok {
		t.Fatalf("docs/configuration.md has no %q", from)
	}
	text, _, _ = strings.Cut(text, to+"\n")
	return text
}

// TestDocsTellTheDefaults: of those that the packages say themselves, and of those that the file is checked against.
func TestDocsTellTheDefaults(t *testing.T) {
	text := section(t, "## All keys", "## Middleware")
	short := func(d time.Duration) string { // 1m, not 1m0s
		return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
	}
	for key, want := range map[string]string{
		"admin.listen": admin.DefaultListen, "admin.no_progress": short(admin.DefaultNoProgress),
		"embedded.dir": defaultDir, "embedded.port": strconv.Itoa(defaultPort),
		"tracing.sample":                             strconv.FormatFloat(tracing.DefaultSample, 'g', -1, 64),
		"consumers.NAME.source.nats.ack_wait":        natsbroker.DefaultAckWait.String(),
		"consumers.NAME.source.nats.max_hold":        short(natsbroker.DefaultMaxHold),
		"consumers.NAME.source.nats.revoke_wait":     short(natsbroker.DefaultRevokeWait),
		"consumers.NAME.source.nats.max_ack_pending": strconv.Itoa(natsbroker.DefaultMaxAckPending),
	} {
		if !strings.Contains(text, "| `"+key+"` | `"+want+"` |") {
			t.Errorf("docs/configuration.md does not have %s with default %s", key, want)
		}
	}
}

// TestDocsTellKafkasDefaults: the adapter does not export them, so they are read where it sets them.
func TestDocsTellKafkasDefaults(t *testing.T) {
	text, n := section(t, "## All keys", "## Middleware"), 0
	values := map[string]string{`time.Minute`: "1m", `time.Second`: "1s", `1_000_000`: "1000000", `64<<20`: "67108864"}
	for _, m := range regexp.MustCompile(`or\(&c(?:fg)?\.([A-Za-z.]+), ([^)]+)\)`).FindAllStringSubmatch(sources(t,
		"broker/kafkabroker"), -1) {
		field, value := m[1], m[2]
		key, ok := map[string]string{"Start.At": "start", "MaxMessageBytes": "max_publish_bytes"}[field]
		if !ok {
			key = config.NamesOf(config.Kafka{})(broker.Field(field))
		}
		key = "consumers.NAME.source.kafka." + key
		if !strings.Contains(text, "| `"+key+"` |") {
			continue // no key of the file
		}
		n++
		want := values[value]
		if want == "" {
			want = strings.Trim(strings.TrimSuffix(value, "*time.Second"), `"`)
		}
		if strings.HasSuffix(value, "*time.Second") {
			want += "s"
		}
		if !strings.Contains(text, "| `"+key+"` | `"+want+"` |") {
			t.Errorf("docs/configuration.md does not have %s with default %s", key, want)
		}
	}
	if n < 10 {
		t.Errorf("%d defaults were found", n)
	}
}

// TestDocsNameEveryMetric: docs/metrics.md has each metric that the program exposes, and no other.
func TestDocsNameEveryMetric(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := metrics.New("orders")
	m.Observe(consumer.Scaled{})
	m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Up}})
	m.Watch(knownStats{})
	m.WatchLimits(knownLimits(t))
	m.WatchBreakers(map[string]metrics.Breaker{"c": knownBreaker{}})
	m.Route("0", "log")
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := readFile(t, "../docs", "metrics.md")
	have := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(longshore_[a-z_]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(text, -1) {
		have[row[1]+" "+row[2]] = true
	}
	for _, f := range families {
		row := f.GetName() + " " + strings.ToLower(f.GetType().String())
		if !have[row] {
			t.Errorf("docs/metrics.md does not have %s", row)
		}
		delete(have, row)
	}
	for row := range have {
		t.Errorf("docs/metrics.md has %s, which is not exposed", row)
	}
}

// knownLimits are one of each kind.
func knownLimits(t *testing.T) map[string]metrics.Limit {
	t.Helper()
	rate, err := middleware.NewRateLimit(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	concurrency, err := middleware.NewConcurrencyLimit(1)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]metrics.Limit{"a": rate, "b": concurrency}
}

// knownBreaker is open.
type knownBreaker struct{}

func (knownBreaker) State() string { return "open" }

// knownStats are figures of which none is unknown.
type knownStats struct{}

func (knownStats) Stats() consumer.Stats {
	return consumer.Stats{LastProgress: time.Unix(1, 0), Lag: broker.Lag{At: time.Unix(1, 0)}}
}

func (knownStats) Oldest() time.Time { return time.Unix(1, 0) }

func (knownStats) Latency() consumer.Latency { return consumer.Latency{} }

func (knownStats) LagByPartition() []broker.PartitionLag { return []broker.PartitionLag{{}} }

// TestDocsNameEveryMiddleware: and each of their options.
func TestDocsNameEveryMiddleware(t *testing.T) {
	text := section(t, "## Middleware", "## None")
	options := map[string]any{"circuit_breaker": middleware.BreakerConfig{}, "concurrency_limit": concurrencyOptions{},
		"key_rate_limit": keyRateOptions{}, "dedup": dedupOptions{}, "logging": loggingOptions{}, "rate_limit": rateOptions{},
		"recover": struct{}{}, "timeout": timeoutOptions{}}
	for name := range wrappings {
		line := regexp.MustCompile("(?m)^\\| `" + name + "` \\|.*$").FindString(text)
		o, ok := options[name]
		if line == "" || !ok {
			t.Errorf("docs/configuration.md does not have the middleware %s", name)
			continue
		}
		for i := range reflect.TypeOf(o).NumField() {
			name := reflect.TypeOf(o).Field(i).Tag.Get("yaml")
			if option := "`" + name + "`"; name != "-" && !strings.Contains(line, option) {
				t.Errorf("docs/configuration.md: %s does not have %s", name, option)
			}
		}
	}
}

// TestExampleNamesEveryKey: config example shows all keys of its broker, in use or commented out.
func TestExampleNamesEveryKey(t *testing.T) {
	want := map[string]bool{}
	keys(reflect.TypeFor[config.File](), "", want)
	for broker, text := range config.Examples {
		for key := range want {
			last := strings.TrimSuffix(key[strings.LastIndexByte(key, '.')+1:], "[]")
			// urls and middleware are shown inside a comment
			shown := last == "NAME" || regexp.MustCompile(`(?m)^[ #-]*\b`+last+`:|\b`+last+`: `).MatchString(text)
			if !shown && !ofAnother(key, broker) {
				t.Errorf("the example of %s does not show %s", broker, key)
			}
		}
	}
}

// ofAnother says whether a key is only for another broker than this one.
func ofAnother(key, broker string) bool {
	if broker == "nats" && strings.HasPrefix(key, "consumers.NAME.retry.topics") {
		return true
	}
	key = strings.Replace(key, ".sources[].nats", ".source.nats", 1)
	key = strings.Replace(key, ".sources[].kafka", ".source.kafka", 1)
	if source, ok := strings.CutPrefix(key, "consumers.NAME.source."); ok {
		source, _, _ = strings.Cut(source, ".")
		return strings.TrimSuffix(source, "_core") != broker
	}
	return broker != "nats" && (key == "embedded" || strings.HasPrefix(key, "embedded."))
}

// TestExamplesOfDocsAreAccepted: every whole configuration in our pages passes config check.
func TestExamplesOfDocsAreAccepted(t *testing.T) {
	t.Setenv("LONGSHORE_ADMIN_TOKEN", "0123456789abcdef")
	t.Setenv("KAFKA_PASSWORD", canary)
	t.Setenv("WEBHOOK_URL", "https://hooks.example.com/orders")
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	block, found := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```"), 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			if !regexp.MustCompile(`(?m)^consumers:`).MatchString(m[1]) {
				continue // a part
			}
			found++
			dir := t.TempDir()
			writeFile(t, dir, "c.yaml", m[1])
			if _, err := run(t.Context(), "config", "check", filepath.Join(dir, "c.yaml")); err != nil {
				t.Errorf("%s:\n%s\n%v", page, m[1], err)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d examples", found)
	}
}

func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, text := range config.Examples {
		dir := t.TempDir()
		writeFile(t, dir, "c.yaml", text)
		if _, err := run(t.Context(), "config", "check", filepath.Join(dir, "c.yaml")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestContributorsFindTheFiles: the table of CONTRIBUTING.md names files that exist.
func TestContributorsFindTheFiles(t *testing.T) {
	_, table, ok := strings.Cut(readFile(t, "..", "CONTRIBUTING.md"), "## To add something\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no table")
	}
	found := 0
	for _, m := range regexp.MustCompile("`([a-z0-9_./]+\\.(?:go|md|yaml))`").FindAllStringSubmatch(table, -1) {
		found++
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md: %v", err)
		}
	}
	if found < 20 {
		t.Errorf("%d files", found)
	}
}

// TestEveryResourceIsMinded: each name that pool.mind may have is one that the gauge reads, and none is no gauge.
func TestEveryResourceIsMinded(t *testing.T) {
	was := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(was)
	if gaugeOf(nil) != nil {
		t.Error("a gauge though nothing is to be minded")
	}
	for _, name := range conftag.Words(reflect.TypeFor[config.Pool](), "Mind") {
		gauge, deadline := gaugeOf([]string{name}), time.Now().Add(time.Minute)
		var p pool.Pressure
		for ; p.CPU == 0 && p.Memory == 0 && time.Now().Before(deadline); p = gauge() { // computes, and is near no limit
		}
		if (p.CPU > 0) != (name == "cpu") || (p.Memory > 0) != (name == "memory") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestEveryPolicyIsMade: each name that a file may have is one that assemble knows.
func TestEveryPolicyIsMade(t *testing.T) {
	for _, name := range conftag.Words(reflect.TypeFor[config.Pool](), "Policy") {
		if policyOf(name) == nil {
			t.Errorf("no policy for %s", name)
		}
	}
}
