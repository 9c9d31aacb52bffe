package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSettingsOfTheFileReachAnExistingDurable: of the embedded server, and the log says so. What is read afterwards is what the
// file says.
func TestSettingsOfTheFileReachAnExistingDurable(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	handled := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "handled"))
		return string(text)
	}
	order := "none"
	start := func(source string) *program {
		writeFile(t, dir, "c.yaml", fmt.Sprintf(`embedded: {port: %s}
consumers:
  orders:
    source: {nats: {stream: ORDERS, durable: workers, %s}}
    order: %s
    routes: [{handler: exec, with: {command: [sh, -c, "echo $LONGSHORE_TOPIC >> handled"], dir: %s}}]
`, port, source, order, dir))
		run := launch(t, dir, "run", "-c", "c.yaml")
		run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
		return run
	}
	publish := func(subject string) {
		if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1", "--subject", subject); p.code(t) != 0 {
			t.Fatalf("produce: %s", p.stderr.String())
		}
	}
	end := func(run *program, changes string) {
		run.signal(t, syscall.SIGTERM)
		if code := run.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		log := run.stderr.String()
		if strings.Contains(log, "durable_changed") != (changes != "") || !strings.Contains(log, changes) ||
			strings.Contains(log, "source_warning") {
			t.Errorf("want %q, and no warning:\n%s", changes, log)
		}
	}
	run := start(`subjects: ["orders.>"]`)
	publish("orders.created")
	run.eventually(t, "handled", func() bool { return handled() == "orders.created\n" })
	end(run, "")

	run = start(`subjects: [orders.created, orders.paid], ack_wait: 10s, max_ack_pending: 500`)
	publish("orders.cancelled") // taken by the stream, and not by the consumer
	publish("orders.paid")
	run.eventually(t, "handled", func() bool { return handled() == "orders.created\norders.paid\n" })
	end(run, `"changes":["ack_wait: 10s, was 30s","max_ack_pending: 500, was 20000","subjects: [\"orders.created\" `+
		`\"orders.paid\"], was [\"orders.>\"]"]`)

	run = start(`subjects: [orders.paid, orders.created], ack_wait: 10s, max_ack_pending: 500`)
	publish("orders.created")
	run.eventually(t, "handled", func() bool { return handled() == "orders.created\norders.paid\norders.created\n" })
	end(run, "")

	run = start(`subjects: [mails]`)
	publish("mails")
	run.eventually(t, "handled", func() bool { return handled() == "orders.created\norders.paid\norders.created\nmails\n" })
	end(run, `"subjects: [\"mails\"], was [\"orders.created\" \"orders.paid\"]"`)

	order = "partition"
	run = start(`subjects: [mails]`)
	publish("mails")
	run.eventually(t, "handled", func() bool { return strings.Count(handled(), "mails") == 2 })
	end(run, `"priority_groups: [\"longshore\"], was []","priority_timeout: 37.5s, was 0s"`)

	order = "none"
	run = start(`subjects: [mails]`)
	publish("mails")
	run.eventually(t, "handled", func() bool { return strings.Count(handled(), "mails") == 3 })
	end(run, `"priority_groups: [], was [\"longshore\"]","priority_timeout: 0s, was 37.5s"`)
}
