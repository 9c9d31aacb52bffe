package program

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/pool"
	"github.com/prometheus/client_golang/prometheus"
)

// sources are the texts of a package's files, without its tests.
func sources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", dir, files, err)
	}
	var all strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestDocsNameEveryEvent: docs/logs.md has each event that the program may log, and no other.
func TestDocsNameEveryEvent(t *testing.T) {
	want := map[string]bool{}
	for k := broker.Assigned; k.String() != "unknown"; k++ {
		want["source_"+k.String()] = true
	}
	for _, m := range regexp.MustCompile(`\) Name\(\) string +\{ return "([a-z_]+)" \}`).FindAllStringSubmatch(sources(t,
		"consumer"), -1) {
		want[m[1]] = true
	}
	for _, dir := range []string{"program", "consumer/admin", "handlers", "handlers/middleware"} {
		for _, m := range regexp.MustCompile(`Str\("event", "([a-z_]+)"\)`).FindAllStringSubmatch(sources(t, dir), -1) {
			want[m[1]] = true
		}
	}
	delete(want, consumer.Operated{}.Name()) // it is never logged, and a metric
	if len(want) < 30 {
		t.Errorf("only %d events were found: %v", len(want), slices.Sorted(maps.Keys(want)))
	}
	_, table, _ := strings.Cut(readFile(t, "../docs", "logs.md"), "| event | means | do |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	have := map[string]bool{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			have[m[1]] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !have[name] {
			t.Errorf("docs/logs.md does not have the event %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !want[name] {
			t.Errorf("docs/logs.md has the event %s, which nothing logs", name)
		}
	}
}

// TestDocsNameEveryLabelValue: the values that labels may have stand in the metric's row.
func TestDocsNameEveryLabelValue(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := metrics.New("orders")
	m.Watch(knownStats{})
	m.WatchLimits(knownLimits(t))
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text, sizing, n := readFile(t, "../docs", "metrics.md"), readFile(t, "../docs", "sizing.md"), 0
	has := func(metric, value string) {
		n++
		row := regexp.MustCompile("(?m)^\\| `" + metric + "` \\|.*$").FindString(text)
		if !regexp.MustCompile(`\b` + value + `\b`).MatchString(row) {
			t.Errorf("docs/metrics.md does not have the value %s of %s", value, metric)
		}
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				if l.GetName() != "consumer" && l.GetName() != "limit" { // these are names of the file
					has(f.GetName(), l.GetValue())
				}
			}
		}
	}
	for _, reason := range append(pool.Reasons(), "other") {
		has("longshore_scale_decisions_total", string(reason))
		if !strings.Contains(sizing[strings.Index(sizing, "## Why the pool"):], "`"+string(reason)+"`") && reason != "other" {
			t.Errorf("docs/sizing.md does not say what the reason %s means", reason)
		}
	}
	if n < 40 {
		t.Errorf("%d values were looked for", n)
	}
}
