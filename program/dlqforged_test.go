package program

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/rs/zerolog"
)

// A forgedField is a NATS server with a stream of dead letters into which somebody wrote a letter, and a stream that is to stay.
type forgedField struct {
	srv  *embeddedNATS
	view *natsbroker.LogView
	file string // whose source has no subjects
}

const forgedTarget = "$JS.API.STREAM.DELETE.VICTIM"

func startForged(t *testing.T) *forgedField {
	t.Helper()
	srv, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	streams := []stream{{"VICTIM", []string{"victim"}}, {"ORDERS", []string{"orders.>"}}, {"DEAD", []string{"dead.>"}},
		{"PAYROLL", []string{"payroll"}}}
	for _, s := range streams {
		if err := srv.ensureStreams(t.Context(), []stream{s}); err != nil {
			t.Fatal(err)
		}
	}
	view, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: natsbroker.Connection{URLs: []string{srv.url}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Close)
	f := &forgedField{srv: srv, view: view, file: filepath.Join(t.TempDir(), "c.yaml")}
	writeFile(t, filepath.Dir(f.file), "c.yaml", fmt.Sprintf(`consumers:
  orders:
    source: {nats: {url: %q, stream: ORDERS, durable: d}}
    dead_letter: {to: dead.orders}
    routes: [{handler: log}]
`, srv.url))
	return f
}

// bury stores a letter for each origin, without a payload, as commands want it.
func (f *forgedField) bury(t *testing.T, origins ...string) {
	t.Helper()
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: natsbroker.Connection{URLs: []string{f.srv.url}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closePublisher(p) }()
	for _, origin := range origins {
		hs := []broker.Header{{Key: broker.HeaderOriginalTopic, Value: []byte(origin)}}
		if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: "dead.orders", Headers: hs}}); err != nil {
			t.Fatal(err)
		}
	}
}

// stored is how many messages a subject has; -1: there is no such stream.
func (f *forgedField) stored(t *testing.T, subject string) (n int) {
	t.Helper()
	_, err := f.view.Scan(t.Context(), broker.Scan{Topic: subject}, func(*broker.Message) error { n++; return nil })
	if err != nil {
		return -1
	}
	return n
}

// A letter that names a command of JetStream as where it came from is never carried out, however the replay is asked for.
func TestForgedOriginDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"replay by flags":       {"replay", "--subject", "dead.orders"},
		"replay by file":        {"replay", "-c"},
		"edit by flags":         {"edit", "--subject", "dead.orders", "1", "--header", "a=b"},
		"edit by file":          {"edit", "-c", "1", "--header", "a=b"},
		"named by the operator": {"replay", "--subject", "dead.orders", "--to", forgedTarget},
	} {
		t.Run(name, func(t *testing.T) {
			f := startForged(t)
			f.bury(t, forgedTarget)
			line := append([]string{"dlq"}, args...)
			if line[2] == "-c" {
				line = append(line[:3:3], append([]string{f.file}, line[3:]...)...)
			} else {
				line = append(line, "--url", f.srv.url)
			}
			out, err := run(t.Context(), line...)
			if err == nil {
				t.Errorf("%q: no error\n%s", line, out)
			}
			if f.stored(t, "victim") < 0 {
				t.Errorf("the stream VICTIM is gone: %q\n%s", line, out)
			}
			if !strings.Contains(out+fmt.Sprint(err), "--to") && !strings.Contains(out, "begins with $") {
				t.Errorf("%q does not say why: %v\n%s", line, err, out)
			}
		})
	}
}

// A source without subjects reads what its stream takes: letters from there go back, others are refused.
func TestReplayKeepsToTheStream(t *testing.T) {
	t.Parallel()
	f := startForged(t)
	f.bury(t, "orders.eu", "payroll", forgedTarget)
	out, err := run(t.Context(), "dlq", "replay", "-c", f.file)
	if err == nil || !strings.Contains(out, "replayed 1 of 3 letters; 0 replayed before, 2 refused") {
		t.Errorf("%v\n%s", err, out)
	}
	if n, other := f.stored(t, "orders.eu"), f.stored(t, "payroll"); n != 1 || other != 0 {
		t.Errorf("%d in orders.eu, %d in payroll\n%s", n, other, out)
	}
	if out, err = run(t.Context(), "dlq", "replay", "-c", f.file, "--to", "payroll", "2"); err != nil ||
		f.stored(t, "payroll") != 1 {
		t.Errorf("where the operator says so: %v\n%s", err, out)
	}
}

// Whoever may write to the journal of replays stops nobody from working with the letters, and what is no record is told of.
func TestPoisonedJournal(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a", "b")
		f.must(t, "replay", "--limit", "1")
		if err := f.p.Publish(t.Context(), []broker.Outgoing{{Topic: deadletters.JournalTopic("dead.orders"),
			Value: []byte("\x1b[2Jjunk")}}); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"list"}, {"show", f.place(0)}, {"replay", "--dry-run"}, {"replay"}, {"purge", "--dry-run"}} {
			out := f.must(t, args...)
			if !strings.Contains(out, "warning: passed over what cannot be read in the journal of replays, "+
				"longshore.replays.dead.orders (1):") {
				t.Errorf("%q does not tell:\n%s", args, out)
			}
		}
		if got := strings.Join(f.stored(t, "orders"), " "); got != "a b" {
			t.Errorf("in orders: %s", got)
		}
	})
}

// TestDLQForgedWildcard: a letter that names several subjects as where it came from goes to none, and a dry run says so.
func TestDLQForgedWildcard(t *testing.T) {
	t.Parallel()
	f := startForged(t)
	f.bury(t, "orders.>")
	out, err := run(t.Context(), "dlq", "replay", "--dry-run", "-c", f.file)
	if err == nil || strings.Contains(out, "would go") || !strings.Contains(out, "1 is refused") {
		t.Errorf("%v\n%s", err, out)
	}
}
