package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestNATSCore: a file reads plain subjects of the embedded server, retries what fails within the process, and gives up what
// goes on failing to a stream.
func TestNATSCore(t *testing.T) {
	t.Parallel()
	dir, port, admin := t.TempDir(), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", `
admin: {listen: "127.0.0.1:`+admin+`"}
embedded: {port: `+port+`, dir: `+filepath.Join(dir, "data")+`}
consumers:
  orders:
    source: {nats_core: {subjects: ["orders.>"], queue: workers}}
    routes:
      - {match: orders.good, handler: exec, with: {command: [sh, -c, 'cat >> seen'], dir: `+dir+`}}
      - {match: orders.bad, handler: exec, with: {command: [sh, -c, 'echo x >> tries; exit 1'], dir: `+dir+`}}
    retry: {max_attempts: 3, backoff: {initial: 10ms, max: 20ms}}
    dead_letter: {to: dead.orders}
`)
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	nc, err := nats.Connect("nats://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for subject, text := range map[string]string{"orders.good": "good", "orders.bad": "bad", "others": "not ours"} {
		if err := nc.Publish(subject, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return string(text)
	}
	run.eventually(t, "one is handled", func() bool { return read("seen") == "good" })
	run.eventually(t, "one is given up", func() bool { return strings.Contains(run.stderr.String(), `"event":"dead_lettered"`) })
	if tries := strings.Count(read("tries"), "x"); tries != 3 {
		t.Errorf("it was tried %d times, want 3", tries)
	}
	if p := launch(t, dir, "dlq", "list", "-c", "c.yaml"); p.code(t) != 0 || !strings.Contains(p.stdout.String(), "orders.bad") {
		t.Errorf("dlq list: %s%s", p.stdout.String(), p.stderr.String())
	}
	if page := fetch("http://127.0.0.1:" + admin + "/ui/c/orders/letters"); !strings.Contains(page, "1 letters in dead.orders") {
		t.Errorf("the page's list: %s", page)
	}
	if p := launch(t, dir, "lag", "-c", "c.yaml"); p.code(t) != 2 || p.stdout.String() != "" ||
		p.stderr.String() != "longshore: consumer orders: core NATS keeps nothing, so there is no lag\n" {
		t.Errorf("lag: %s%s", p.stdout.String(), p.stderr.String())
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, run.stderr.String())
	}
}

// TestScalerOfCoreNATS: what waits there nobody can tell, which is an error and never 0.
func TestScalerOfCoreNATS(t *testing.T) {
	t.Parallel()
	dir, page := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", "consumers:\n  o:\n"+
		"    source: {nats_core: {url: \"nats://127.0.0.1:1\", subjects: [o], queue: q}}\n    routes: [{handler: log}]\n")
	p := launch(t, dir, "scaler", "-c", "c.yaml", "--listen", "127.0.0.1:"+freePort(t), "--http", "127.0.0.1:"+page)
	p.eventually(t, "it says why it knows nothing", func() bool {
		answer := fetch("http://127.0.0.1:" + page + "/scaler/o")
		return strings.HasPrefix(answer, "503") && strings.Contains(answer, "core NATS keeps nothing")
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}
