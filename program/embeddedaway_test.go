package program

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmbeddedServerIsAway: who asks it while it does not run is told when it does; who asks another server is not.
func TestEmbeddedServerIsAway(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	consumers := func(url string) string {
		return "consumers:\n  o: {source: {nats: {" + url +
			"stream: O, subjects: [o], durable: d}}, dead_letter: {to: dead.o}, routes: [{handler: log}]}\n"
	}
	writeFile(t, dir, "own.yaml", "embedded: {port: "+port+"}\n"+consumers(""))
	writeFile(t, dir, "other.yaml", consumers("url: 'nats://127.0.0.1:"+port+"', "))
	for name, want := range map[string]bool{"own.yaml": true, "other.yaml": false} {
		file := filepath.Join(dir, name)
		for _, command := range []string{"lag", "dlq list", "dlq replay", "dlq show 1"} {
			_, err := run(t.Context(), append(strings.Fields(command), "-c", file, "--timeout", "300ms")...)
			if err == nil || strings.Contains(err.Error(), "the embedded server runs only while `longshore run -c "+file+
				"` does") != want {
				t.Errorf("%s -c %s: %v", command, name, err)
			}
		}
	}
	_, err := run(t.Context(), "produce", "--url", "nats://127.0.0.1:"+port, "--timeout", "300ms")
	if err == nil || strings.Contains(err.Error(), "embedded") {
		t.Fatalf("produce to another server: %v", err)
	}
	if told := embeddedAway(err, "FILE"); !strings.Contains(told.Error(), "`longshore run -c FILE`") {
		t.Errorf("of the embedded one: %v", told)
	}
}

// TestProduceTellsOfTheEmbeddedServer: without a url, and with that of the defaults, produce publishes to the embedded server.
func TestProduceTellsOfTheEmbeddedServer(t *testing.T) {
	t.Setenv("NATS_URL", "")
	for _, c := range []struct {
		to   target
		want bool
	}{
		{target{}, true}, {target{url: defaultServer}, true}, {target{url: "nats://other:4222"}, false}, {target{kafka: true}, false},
	} {
		if got := c.to.embedded(); got != c.want {
			t.Errorf("%+v: %v", c.to, got)
		}
	}
}

// TestStopWhileTheEmbeddedServerStarts: reading its store may take seconds, and a signal that comes meanwhile is no failure.
func TestStopWhileTheEmbeddedServerStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", "embedded: {dir: "+filepath.Join(dir, "data")+", port: "+freePort(t)+"}\n"+
		"consumers:\n  o: {source: {nats: {stream: O, subjects: [o], durable: d}}, routes: [{handler: log}]}\n")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if out, err := run(ctx, "run", "-c", filepath.Join(dir, "c.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
