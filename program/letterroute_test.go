package program

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestDeadLettersAreRouted: a file leads dead letters to several subjects of the embedded server, and dlq reads the one that it
// is told to.
func TestDeadLettersAreRouted(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`embedded: {port: %s}
consumers:
  orders:
    source: {nats: {stream: ORDERS, subjects: ["orders.*"], durable: d}}
    retry: {max_attempts: 1}
    dead_letter:
      to: dead.rest
      routes:
        - {handler: webhook, to: dead.webhook}
        - {class: permanent, to: dead.permanent}
    routes:
      - {match: orders.pay, handler: exec, with: {command: ["false"]}}
      - {match: orders.hook, handler: webhook, with: {url: "http://127.0.0.1:1/"}}
  bulk:
    source: {nats: {stream: BULK, subjects: [bulk], durable: d}}
    retry: {max_attempts: 1}
    dead_letter: {to: dead.bulk, routes: [{handler: exec, to: dead.exec}]}
    batch: {handler: exec, with: {command: ["false"]}}
`, port))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "it runs", func() bool { return strings.Count(run.stderr.String(), `"state":"running"`) == 2 })
	for _, subject := range []string{"orders.pay", "orders.hook", "orders.nobody", "bulk"} {
		if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--subject", subject, "--count", "1"); p.code(t) != 0 {
			t.Fatalf("produce: %s", p.stderr.String())
		}
	}
	run.eventually(t, "four letters are stored", func() bool { return strings.Count(run.stderr.String(), `"dead_lettered"`) == 4 })
	for _, c := range []struct{ consumer, letters, origin string }{
		{"orders", "dead.rest", "orders.pay"}, {"orders", "dead.webhook", "orders.hook"}, {"orders", "dead.permanent",
			"orders.nobody"}, {"bulk", "dead.exec", "bulk"},
	} {
		list := launch(t, dir, "dlq", "list", "-c", "c.yaml", "--consumer", c.consumer, "--subject", c.letters, "--json")
		if code, out := list.code(t), list.stdout.String(); code != 0 || strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, `"`+c.origin+`"`) {
			t.Errorf("in %s: code %d, want one letter from %s:\n%s%s", c.letters, code, c.origin, out, list.stderr.String())
		}
	}
	all := launch(t, dir, "dlq", "list", "-c", "c.yaml", "--consumer", "orders")
	if code, said := all.code(t), all.stderr.String(); code == 0 ||
		!strings.Contains(said, `the dead letters of consumer orders go to ["dead.rest" "dead.webhook" "dead.permanent"]: choose one `+
			`with --subject`) {
		t.Errorf("without a choice: code %d:\n%s", code, said)
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, run.stderr.String())
	}
}
