package program

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestCommandsNeedWhatTheyUse: on another machine than the consumer's, its webhook's token and its admin token are not there.
// What asks only the broker, or the admin address, does not need them; what is wrong with the file itself is told by all.
func TestCommandsNeedWhatTheyUse(t *testing.T) {
	t.Parallel()
	_, at := startKafka(t, kfake.SeedTopics(1, "orders", "dead"))
	dir := t.TempDir()
	for _, token := range []string{"token_file: none", `token: "${LONGSHORE_TEST_UNSET:-}"`} {
		commandsNeedWhatTheyUse(t, dir, at, token)
	}
}

func commandsNeedWhatTheyUse(t *testing.T, dir, at, token string) {
	t.Helper()
	text := fmt.Sprintf(`admin: {listen: "127.0.0.1:1", %s}
log: {level: "${LONGSHORE_TEST_UNSET}"}
consumers:
  orders:
    source: {kafka: {brokers: [%q], topics: [orders], group: g}}
    dead_letter: {to: dead}
    routes: [{handler: webhook, with: {url: "${LONGSHORE_TEST_UNSET}", headers: {K: "${LONGSHORE_TEST_UNSET}"}}}]
`, token, at)
	writeFile(t, dir, "c.yaml", text)
	file := filepath.Join(dir, "c.yaml")
	for _, args := range [][]string{{"lag", "-c", file}, {"dlq", "list", "-c", file}} {
		if out, err := run(t.Context(), args...); err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	var use usageError
	if _, err := run(t.Context(), "top", "--once", "-c", file); err == nil || errors.As(err, &use) ||
		!strings.Contains(err.Error(), "asking the program on 127.0.0.1:1") {
		t.Errorf("top: %v", err)
	}
	for _, args := range [][]string{{"config", "check", file}, {"run", "-c", file},
		{"dlq", "replay", "--to-handler", "-c", file}} {
		_, err := run(t.Context(), args...)
		if !errors.As(err, &use) ||
			!strings.Contains(err.Error(), "with.headers.K: environment variable LONGSHORE_TEST_UNSET is not set") {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, wrong := range []struct{ old, new, told string }{
		{"group: g", `group: "${LONGSHORE_TEST_UNSET}"`, "group: environment variable LONGSHORE_TEST_UNSET is not set"},
		{"to: dead", "too: dead", "too"},
	} {
		writeFile(t, dir, "c.yaml", strings.Replace(text, wrong.old, wrong.new, 1))
		_, err := run(t.Context(), "lag", "-c", file)
		if !errors.As(err, &use) || !strings.Contains(err.Error(), wrong.told) || strings.Contains(err.Error(), "with.headers") {
			t.Errorf("lag of a file with %s: %v", wrong.new, err)
		}
	}
	if _, err := run(t.Context(), "top", "--once", "-c", file); !errors.As(err, &use) || !strings.Contains(err.Error(), "too") {
		t.Errorf("top of a file with a mistake: %v", err)
	}
}

// TestConfigCheckOfStandardInput: what a template makes need not be a file.
func TestConfigCheckOfStandardInput(t *testing.T) {
	t.Parallel()
	good := "consumers: {o: {source: {nats: {stream: S, subjects: [s], durable: d}}, routes: [{handler: log}]}}\n"
	if out, err := runIn(t.Context(), good, "config", "check", "-"); err != nil || out != "standard input: ok; consumers: o\n" {
		t.Errorf("%v %q", err, out)
	}
	var use usageError
	for _, args := range [][]string{{"config", "check", "-"}, {"run", "-c", "-"}} {
		if _, err := runIn(t.Context(), "consumers: {}\n", args...); !errors.As(err, &use) ||
			!strings.HasPrefix(err.Error(), "standard input:1: consumers: is missing or empty") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestStandardInputIsNoFile: the other commands say that they do not read their configuration from the standard input.
func TestStandardInputIsNoFile(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"lag"}, {"top", "--once"}, {"scaler", "--http", ":0"}, {"dlq", "list"}} {
		var use usageError
		if _, err := runIn(t.Context(), "", append(args, "-c", "-")...); !errors.As(err, &use) ||
			!strings.Contains(err.Error(), "-c is -, the standard input") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestDemoNamesItsFlag: brokers that are none are told by the flag that names them.
func TestDemoNamesItsFlag(t *testing.T) {
	t.Parallel()
	var use usageError
	if _, err := run(t.Context(), "demo", "--kafka", "nohost"); !errors.As(err, &use) ||
		!strings.HasPrefix(err.Error(), "--kafka is") {
		t.Errorf("%v, want it to name --kafka", err)
	}
}

// TestConfigOfTheOtherCommandsFlag: check and show take the file by --config as run does, too, and not twice.
func TestConfigOfTheOtherCommandsFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `embedded: {}
consumers:
  o:
    source: {nats: {stream: S, subjects: [s], durable: d}}
    routes: [{handler: log}]
`)
	file := filepath.Join(dir, "c.yaml")
	for _, command := range []string{"check", "show"} {
		named, err := run(t.Context(), "config", command, file)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := run(t.Context(), "config", command, "-c", file); err != nil || out != named {
			t.Errorf("%s -c: %v, %s, want %s", command, err, out, named)
		}
		for want, args := range map[string][]string{"are given": {"-c", file, file}, "want one FILE": nil} {
			var use usageError
			if _, err := run(t.Context(), append([]string{"config", command}, args...)...); !errors.As(err, &use) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v, want %s", command, args, err, want)
			}
		}
	}
}
