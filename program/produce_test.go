package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// quiet is a progress that nobody sees.
func quiet() *progress { return newProgress(io.Discard, 0) }

func TestProductionKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		p := &production{publisher: b.Publisher(), topic: "in", payload: numbered(64), rate: 100, count: 1000, keys: 7,
			timeout: time.Second}
		s, err := p.run(t.Context(), quiet())
		if err != nil || s.Sent != 1000 || s.Confirmed != 1000 || s.Bytes != 64000 {
			t.Errorf("%+v %v", s, err)
		}
		if s.Seconds < 9 || s.Seconds > 11 {
			t.Errorf("1000 at 100/s took %v s of virtual time", s.Seconds)
		}
		keys := map[string]bool{}
		for _, m := range b.Messages("in") {
			keys[string(m.Key)] = true
			var body struct {
				Number *int64 `json:"number"`
			}
			if err := json.Unmarshal(m.Value, &body); err != nil || body.Number == nil || len(m.Value) != 64 {
				t.Fatalf("message %q: %v", m.Value, err)
			}
		}
		if len(keys) != 7 {
			t.Errorf("%d keys", len(keys))
		}
		_ = p.publisher.Close(t.Context())
	})
}

// brokenPublisher fails as a test says; what it confirms it counts by ID.
type brokenPublisher struct {
	fail   func(call, i int) error
	calls  int
	stored map[string]int
}

func (p *brokenPublisher) Publish(_ context.Context, ms []broker.Outgoing) error {
	p.calls++
	errs, failed := make([]error, len(ms)), false
	for i, m := range ms {
		if errs[i] = p.fail(p.calls, i); errs[i] != nil {
			failed = true
			continue
		}
		p.stored[m.ID]++
	}
	if failed {
		return &broker.PublishError{Errs: errs}
	}
	return nil
}

func (p *brokenPublisher) Close(context.Context) error { return nil }

// TestProductionTriesAgain: what was perhaps not stored is sent again under its ID, and nothing else is.
func TestProductionTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenPublisher{stored: map[string]int{}, fail: func(call, i int) error {
			if call < 3 && i%2 == 1 {
				return errors.New("timeout")
			}
			return nil
		}}
		p := &production{publisher: b, topic: "in", payload: numbered(64), rate: 0, count: 100, timeout: 10 * time.Second}
		s, err := p.run(t.Context(), quiet())
		if err != nil || s.Confirmed != 100 || len(b.stored) != 100 {
			t.Errorf("%+v, stored %d: %v", s, len(b.stored), err)
		}
		for id, n := range b.stored {
			if n != 1 {
				t.Errorf("%s was stored %d times", id, n)
			}
		}
	})
}

func TestProductionEndsWhenRefusedOrUnconfirmed(t *testing.T) {
	for _, cause := range []error{fmt.Errorf("no stream: %w", broker.ErrRefused), errors.New("timeout")} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenPublisher{stored: map[string]int{}, fail: func(call, i int) error {
				if call > 1 || i > 2 {
					return cause
				}
				return nil
			}}
			p := &production{publisher: b, topic: "in", payload: numbered(64), rate: 200, count: 0, timeout: time.Second}
			start := time.Now()
			s, err := p.run(t.Context(), quiet())
			if !errors.Is(err, cause) || s.Sent == s.Confirmed || s.Confirmed == 0 {
				t.Errorf("%v: %+v %v", cause, s, err)
			}
			if took := time.Since(start); errors.Is(cause, broker.ErrRefused) && took > 500*time.Millisecond || took > 3*time.Second {
				t.Errorf("%v: took %v", cause, took)
			}
		})
	}
}

// TestProductionStops: a signal ends it after the messages under way, and that is no failure.
func TestProductionStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenPublisher{stored: map[string]int{}, fail: func(int, int) error { return nil }}
		p := &production{publisher: b, topic: "in", payload: numbered(64), rate: 100, count: 0, timeout: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		s, err := p.run(ctx, quiet())
		if err != nil || s.Confirmed < 250 || s.Confirmed > 310 || s.Sent != s.Confirmed {
			t.Errorf("%+v %v", s, err)
		}
	})
}

// TestProductionIsStoppedBefore: where a signal leaves something unsent that was asked for, that is told: whoever sees 0 takes
// all for sent.
func TestProductionIsStoppedBefore(t *testing.T) {
	many := func(io.Reader) payload { return readLines(strings.NewReader(strings.Repeat("x\n", 900))) }
	one := func(stdin io.Reader) payload { return readLines(stdin) }
	for name, c := range map[string]struct {
		payload func(stdin io.Reader) payload
		count   int64
		want    string // empty: nothing is left
	}{
		"of so many":               {func(io.Reader) payload { return numbered(64) }, 1000, "of 1000 messages were sent"},
		"with lines left":          {many, 0, "lines that were read were not sent; the last one sent is line "},
		"of so many lines":         {many, 800, "of 800 messages were sent; the last one sent is line "},
		"waits for a line":         {one, 0, ""},
		"waits for one of so many": {one, 2, "1 of 2 messages were sent; the last one sent is line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stdin, writer := io.Pipe()
				defer writer.Close()
				go func() { _, _ = io.WriteString(writer, "one\n") }()
				defer stdin.Close()
				b := &brokenPublisher{stored: map[string]int{}, fail: func(int, int) error { return nil }}
				p := &production{publisher: b, topic: "in", payload: c.payload(stdin), rate: 100, count: c.count, timeout: time.Second}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				s, err := p.run(ctx, quiet())
				if s.Confirmed == 0 || s.Sent != s.Confirmed {
					t.Errorf("%+v", s)
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%+v: %v, want %q", s, err, c.want)
				}
			})
		})
	}
}

// TestProduceSendsHeaders: those of the flags are on each message, and what is no header of one's own is refused.
func TestProduceSendsHeaders(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		long := strings.Repeat("x", 2000) // more than the room that is kept for key and id on Kafka
		to := append(f.flags[:2:2], "--topic", "other")
		if !f.kafka {
			to[2] = "--subject"
		}
		args := append([]string{"produce", "--count", "3", "--rate", "0", "--header", "priority=high", "--header", "note=a=b",
			"--header", "long=" + long}, to...)
		if out, err := run(t.Context(), args...); err != nil || !strings.Contains(out, "confirmed 3") {
			t.Fatalf("%v\n%s", err, out)
		}
		n := 0
		_, err := f.store.Scan(t.Context(), broker.Scan{Topic: "other"}, func(m *broker.Message) error {
			n++
			for name, want := range map[string]string{"priority": "high", "note": "a=b", "long": long} {
				if got, ok := m.Headers.Get(name); !ok || string(got) != want {
					t.Errorf("header %s is %q", name, got)
				}
			}
			return nil
		})
		if err != nil || n != 3 {
			t.Errorf("%d messages, %v", n, err)
		}
	})
	_, err := run(t.Context(), "produce", "--header", "none", "--header", "Longshore-Attempts=9", "--size", "1")
	for _, want := range []string{`--header is "none", want name=value`, "are not the message's own", "--size is 1"} {
		var use usageError
		if !errors.As(err, &use) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// TestProducePayloads: a payload of one's own arrives as it was given, filled in where it is a template.
func TestProducePayloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "body", "{{.Index}}\n\x00\xff") // no template: sent as it is
	for _, c := range []struct {
		name  string
		stdin string
		args  []string
		want  []string // key=value
	}{
		{"data", "", []string{"--data", "hello"}, []string{"=hello"}},
		{"template", "", []string{"--data", `{"n": {{.Index}}}`, "--key", "k{{.Index}}", "--count", "3", "--rate", "0"},
			[]string{`k0={"n": 0}`, `k1={"n": 1}`, `k2={"n": 2}`}},
		{"file", "", []string{"--file", filepath.Join(dir, "body")}, []string{"={{.Index}}\n\x00\xff"}},
		{"standard input", "all\nof it\n", []string{"--file", "-"}, []string{"=all\nof it\n"}},
		{"lines", "one\n\ntwo {{.Index}}\r\nthree", []string{"--lines", "--keys", "1"},
			[]string{"key-0=one", "key-0=two {{.Index}}", "key-0=three"}},
		{"some lines", "one\ntwo\nthree\n", []string{"--lines", "--count", "2"}, []string{"=one", "=two"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBothBrokers(t, func(t *testing.T, f *dlqField) {
				args := append([]string{"produce", f.flags[0], f.flags[1], "--subject", "other", "--json"}, c.args...)
				if f.kafka {
					args[3] = "--topic"
				}
				out, err := runIn(t.Context(), c.stdin, args...)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				size := 0
				_, err = f.store.Scan(t.Context(), broker.Scan{Topic: "other"}, func(m *broker.Message) error {
					got, size = append(got, string(m.Key)+"="+string(m.Value)), size+len(m.Value)
					return nil
				})
				if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("stored %q, want %q (%v)", got, c.want, err)
				}
				var s productionSummary
				if err := json.Unmarshal([]byte(out), &s); err != nil || s.Confirmed != int64(len(c.want)) || s.Sent != s.Confirmed ||
					s.Bytes != int64(size) {
					t.Errorf("summary %s, %v", out, err)
				}
			})
		})
	}
}

// TestProduceLinesAsTheyCome: a line is sent when it is there, not when there are more.
func TestProduceLinesAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		r, w := io.Pipe()
		p := &production{publisher: b.Publisher(), topic: "in", payload: readLines(r), timeout: time.Second}
		done := make(chan error)
		go func() { _, err := p.run(t.Context(), quiet()); done <- err }()
		for i := range 3 {
			fmt.Fprintf(w, "line %d\n", i)
			synctest.Wait()
			if n := len(b.Messages("in")); n != i+1 {
				t.Errorf("%d messages after %d lines", n, i+1)
			}
		}
		_ = w.CloseWithError(errors.New("the disk is gone"))
		if err := <-done; err == nil || !strings.Contains(err.Error(), "reading line 4: the disk is gone") {
			t.Errorf("a reader that fails: %v", err)
		}
		_ = p.publisher.Close(t.Context())
	})
}

// TestProduceNamesTheLine: a line that is too long for the broker, or for us, is named, and so is the message of another payload.
func TestProduceNamesTheLine(t *testing.T) {
	srv, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	if err := srv.ensureStreams(t.Context(), []stream{{"ORDERS", []string{"orders"}}}); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2<<20)
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"one\n\n" + large + "\nlast\n", []string{"--lines"}, `: line 3: natsbroker: publishing to "orders": `},
		{"", []string{"--data", `{{if eq .Index 2}}` + large + `{{end}}`, "--count", "4", "--rate", "0"}, ": message 2: natsbroker: "},
	} {
		out, err := runIn(t.Context(), c.stdin, append([]string{"produce", "--url", srv.url, "--subject", "orders"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, broker.ErrRefused) {
			t.Errorf("%v, want %s\n%s", err, c.want, out)
		}
	}
	l := readLines(io.MultiReader(strings.NewReader("one\n"), strings.NewReader(strings.Repeat("x", maxSize+1))))
	for range 2 {
		_, err = l.next(t.Context(), 0)
	}
	if err == nil || !strings.Contains(err.Error(), "line 2 has more than 67108864 bytes") {
		t.Error(err)
	}
}

// TestProduceRefusesPayloads: what is wrong with the flags is said before anything is sent.
func TestProduceRefusesPayloads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--data", "{{.Index"}, "--data: template"},
		{[]string{"--data", "{{.Nmber}}"}, `no entry for key "Nmber"`},
		{[]string{"--key", "{{.Nmber}}"}, `no entry for key "Nmber"`},
		{[]string{"--data", "x", "--file", "y"}, "--data and --file are set"},
		{[]string{"--data", "x", "--lines"}, "--data and --lines are set"},
		{[]string{"--data", "x", "--size", "100"}, "--size and --data are set"},
		{[]string{"--file", ""}, "--file is empty"},
		{[]string{"--url", ""}, "--url is empty"},
		{[]string{"--file", "-"}, "--file - is empty; --data '' sends an empty message"},
		{[]string{"--file", "/dev/null"}, "--file /dev/null is empty"},
		{[]string{"--file", "/not/there"}, "--file: open /not/there"},
		{[]string{"--key", "x", "--keys", "2"}, "--key and --keys are set"},
		{[]string{"--creds", "/not/there"}, "open /not/there"},
	} {
		_, err := run(t.Context(), append([]string{"produce"}, c.args...)...)
		var use usageError
		if !errors.As(err, &use) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}

func TestProduceWithoutStream(t *testing.T) {
	e, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	t.Setenv("NATS_URL", e.url)
	out, err := run(t.Context(), "produce", "--subject", "nobody.takes.it", "--count", "3")
	if !errors.Is(err, broker.ErrRefused) || !strings.Contains(out, "sent 3, confirmed 0") ||
		!strings.Contains(err.Error(), `"nobody.takes.it"`) {
		t.Errorf("%q: %v", out, err)
	}
}

func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, 100)
		for n := range int64(100) {
			p.set(n)
			time.Sleep(200 * time.Millisecond)
		}
		p.close()
		if out.String() != "confirmed 25 of 100\nconfirmed 50 of 100\nconfirmed 75 of 100\n" {
			t.Errorf("%q", out.String())
		}
	})
}
