package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/rs/zerolog"
)

// A dlqField is a broker with a topic orders and its dead letters, and a file whose consumer they are of.
type dlqField struct {
	file  string
	flags []string // instead of the file
	p     broker.Publisher
	store deadletters.Store
	kafka bool
}

// place is how the nth letter is named.
func (f *dlqField) place(n int) string {
	if f.kafka {
		return "0/" + strconv.Itoa(n)
	}
	return strconv.Itoa(n + 1)
}

// onBothBrokers runs a test on Kafka and on JetStream, each in this process.
func onBothBrokers(t *testing.T, test func(t *testing.T, f *dlqField)) {
	t.Run("kafka", func(t *testing.T) {
		_, at := startKafka(t, kfake.SeedTopics(1, "orders", "dead.orders", "other"))
		connection := kafkabroker.Connection{Brokers: []string{at}}
		p, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: connection})
		view, verr := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: connection})
		if err := errors.Join(err, verr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(view.Close)
		f := &dlqField{p: p, store: view, kafka: true, flags: []string{"--brokers", at, "--topic", "dead.orders"}}
		f.write(t, fmt.Sprintf(`kafka: {brokers: [%q], topics: [orders], group: g}`, at))
		test(t, f)
	})
	t.Run("nats", func(t *testing.T) {
		srv, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), server.RANDOM_PORT)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.stop)
		for _, s := range []stream{{"ORDERS", []string{"orders"}}, {"DEAD", []string{"dead.>"}}, {"OTHER", []string{"other"}}} {
			if err := srv.ensureStreams(t.Context(), []stream{s}); err != nil {
				t.Fatal(err)
			}
		}
		connection := natsbroker.Connection{URLs: []string{srv.url}}
		p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: connection})
		view, verr := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: connection})
		if err := errors.Join(err, verr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(view.Close)
		f := &dlqField{p: p, store: view, flags: []string{"--url", srv.url, "--subject", "dead.orders"}}
		f.write(t, fmt.Sprintf(`nats: {url: %q, stream: ORDERS, subjects: [orders], durable: d}`, srv.url))
		test(t, f)
	})
}

func (f *dlqField) write(t *testing.T, source string) {
	other := strings.NewReplacer("ORDERS", "OTHER", "[orders]", "[other]", "durable: d", "durable: e", "group: g", "group: h")
	t.Helper()
	t.Cleanup(func() { _ = closePublisher(f.p) })
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  orders:
    source: {%s}
    dead_letter: {to: dead.orders}
    timeout: 5s
    routes: [{match: orders, handler: exec, with: {command: [sh, -c, "grep -q good"]}}]
  other:
    source: {%s}
    routes: [{handler: log}]
`, source, other.Replace(source)))
	f.file = filepath.Join(dir, "c.yaml")
}

// bury stores dead letters.
func (f *dlqField) bury(t *testing.T, origin string, values ...string) {
	t.Helper()
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for i, v := range values {
		h := func(k, v string) broker.Header { return broker.Header{Key: k, Value: []byte(v)} }
		o := broker.Outgoing{Topic: "dead.orders", Value: []byte(v), Key: []byte("key-" + strconv.Itoa(i%2)), ID: "letter" +
			origin + strconv.Itoa(i), Headers: []broker.Header{
			h("trace", "\x1b[2Jabc"), h(broker.HeaderOriginalTopic, origin), h(broker.HeaderAttempts, "5"), h(broker.HeaderErrorClass,
				[]string{"error", "timeout"}[i%2]),
			h(broker.HeaderError, "no\x1b]0;luck\u202e"), h(broker.HeaderHandler, "orders"), h(broker.HeaderFirstFailure,
				at), h(broker.HeaderLastFailure, at),
		}}
		if err := f.p.Publish(t.Context(), []broker.Outgoing{o}); err != nil {
			t.Fatal(err)
		}
	}
}

// stored are the payloads of a topic.
func (f *dlqField) stored(t *testing.T, topic string) (all []string) {
	t.Helper()
	_, err := f.store.Scan(t.Context(), broker.Scan{Topic: topic},
		func(m *broker.Message) error { all = append(all, string(m.Value)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *dlqField) dlq(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return run(t.Context(), append(append([]string{"dlq"}, args...), "-c", f.file)...)
}

func (f *dlqField) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.dlq(t, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%q prints control characters of a message: %q", args, out)
	}
	return out
}

// TestDLQListAndShow: what is chosen is listed, escaped, and shown whole.
func TestDLQListAndShow(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "{\"n\":1}", "plain \x1b[31mred\nsecond line", "\x00\x01binary")
		out := f.must(t, "list")
		if n := strings.Count(out, "\n"); n != 4 || !strings.Contains(out, `no\x1b]0;luck\u202e`) || !strings.Contains(out, "waiting") {
			t.Errorf("list:\n%s", out)
		}
		for _, c := range []struct {
			args string
			want int
		}{
			{"--class timeout", 1}, {"--handler orders", 3}, {"--handler nobody", 0}, {"--key key-0", 2}, {"--origin orders",
				3}, {"--since 1h", 3}, {"--until 1h", 0},
			{"--since 2020-01-01T00:00:00Z --until 2021-01-01T00:00:00Z", 0}, {"--state replayed", 0}, {f.place(1), 1},
			{"--limit 2", 3}, // stderr is there, too
			{"--limit 3", 3},
		} {
			lines := strings.Count(f.must(t, append([]string{"list", "--json"}, strings.Fields(c.args)...)...), "\n")
			if lines != c.want {
				t.Errorf("%s: %d letters, want %d", c.args, lines, c.want)
			}
		}
		for args, more := range map[string]bool{"--limit 2": true, "--limit 3": false, "--limit 1 --key key-1": false} {
			if out := f.must(t, append([]string{"list"}, strings.Fields(args)...)...); strings.Contains(out, "there are more") != more {
				t.Errorf("%s:\n%s", args, out)
			}
		}
		show := f.must(t, "show", f.place(1))
		if !strings.Contains(show, `plain \x1b[31mred`+"\nsecond line\n") || !strings.Contains(show, `trace: \x1b[2Jabc`) ||
			!strings.Contains(show, "attempts") {
			t.Errorf("show:\n%s", show)
		}
		if names := headerNames(show); len(names) < 8 || !slices.IsSorted(names) {
			t.Errorf("show has headers in no order: %q", names)
		}
		if out, none := f.must(t, "list", "--handler", "nobody"), f.must(t, "list", "--handler", "nobody",
			"--json"); out != "no letters\n" || none != "" {
			t.Errorf("list of none: %q, as JSON %q", out, none)
		}
		if show = f.must(t, "show", f.place(2)); !strings.Contains(show, "00000000  00 01 62 69 6e") {
			t.Errorf("show of binary:\n%s", show)
		}
		var j struct {
			Letter, Class, Value, Key string
			ValueHex                  string `json:"value_hex"`
			Headers                   []struct{ Key, Value string }
			Error                     string
		}
		if err := json.Unmarshal([]byte(f.must(t, "show", f.place(1), "--json")), &j); err != nil {
			t.Fatal(err)
		}
		if j.Letter != f.place(1) || j.Class != "timeout" || j.Key != "key-1" || j.Value != "plain \x1b[31mred\nsecond line" ||
			j.Error != "no\x1b]0;luck\u202e" && f.kafka || len(j.Headers) < 8 {
			t.Errorf("%+v", j)
		}
		if err := json.Unmarshal([]byte(f.must(t, "show", f.place(2), "--json")), &j); err != nil || j.ValueHex != "000162696e617279" {
			t.Errorf("%+v %v", j, err)
		}
		if _, err := f.dlq(t, "show", f.place(99)); !errors.Is(err, deadletters.ErrNoLetter) {
			t.Error(err)
		}
		byFlags, err := run(t.Context(), append([]string{"dlq", "list", "--json"}, f.flags...)...)
		if err != nil || byFlags != f.must(t, "list", "--json") {
			t.Errorf("by flags: %v\n%s", err, byFlags)
		}
	})
}

// TestDLQOfAnyTopic: what holds a key up is shown out of the topic that it stands in, and a period of that topic is copied to
// another one: exactly what was written within it.
func TestDLQOfAnyTopic(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		write := func(values ...string) {
			t.Helper()
			for _, v := range values {
				o := broker.Outgoing{Topic: "orders", Key: []byte("customer-7"), Value: []byte(v)}
				if err := f.p.Publish(t.Context(), []broker.Outgoing{o}); err != nil {
					t.Fatal(err)
				}
			}
		}
		moment := func() string {
			time.Sleep(5 * time.Millisecond) // Kafka's times are of milliseconds
			defer time.Sleep(5 * time.Millisecond)
			return time.Now().UTC().Format(time.RFC3339Nano)
		}
		write("before")
		since := moment()
		write("one", "two")
		until := moment()
		write("after")
		at := slices.Clone(f.flags)
		at[3] = "orders"
		dlq := func(args ...string) string {
			t.Helper()
			out, err := run(t.Context(), append(append([]string{"dlq"}, args...), at...)...)
			if err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
			return out
		}
		if out := dlq("show", f.place(1)); !strings.Contains(out, "customer-7") || !strings.Contains(out, "one\n") {
			t.Errorf("show:\n%s", out)
		}
		replay := []string{"replay", "--since", since, "--until", until, "--to", "other"}
		if out := dlq(append(replay, "--dry-run")...); !strings.Contains(out, "2") || len(f.stored(t, "other")) != 0 {
			t.Errorf("a dry run says %q, and other has %q", out, f.stored(t, "other"))
		}
		for range 2 { // the second time nothing is left
			if out, err := run(t.Context(), append(append([]string{"dlq"}, replay...), at...)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := f.stored(t, "other"); !slices.Equal(got, []string{"one", "two"}) {
				t.Errorf("other has %q", got)
			}
		}
	})
}

// headerNames are those that show lists, in its order.
func headerNames(show string) (names []string) {
	for line := range strings.Lines(show) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "header" {
			names = append(names, strings.TrimSuffix(fields[1], ":"))
		}
	}
	return names
}

// TestDLQReplayIsLate: a dry run says that a replay does not keep the order of the file; where there is none, it says nothing.
func TestDLQReplayIsLate(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a")
		const want = "order is key: they are handled after newer messages of their key that were handled meanwhile\n"
		if out := f.must(t, "replay", "--dry-run"); strings.Contains(out, "order is") {
			t.Errorf("without an order:\n%s", out)
		}
		file := strings.Replace(readFile(t, "/", f.file), "    timeout: 5s", "    order: key\n    timeout: 5s", 1)
		writeFile(t, "/", f.file, file)
		if out := f.must(t, "replay", "--dry-run"); !strings.HasSuffix(out, want) {
			t.Errorf("with an order:\n%s", out)
		}
		var sum replayJSON
		if out := f.must(t, "replay", "--dry-run", "--json"); json.Unmarshal([]byte(lastLine(out)), &sum) != nil || sum.Replayed != 1 {
			t.Errorf("as JSON:\n%s", out)
		}
	})
}

// TestDLQReplay: each letter goes once, to where it came from or to the handler, and what may not go is refused and named.
func TestDLQReplay(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "a", "good", "c", "d")
		f.bury(t, "payroll", "forged")
		out, err := f.dlq(t, "replay", "--dry-run")
		if err == nil || !strings.Contains(out, f.place(0)+" would go to orders\n") ||
			!strings.Contains(out, f.place(4)+" is refused: it says that it came from a topic that is not this consumer's") {
			t.Errorf("dry run: %v\n%s", err, out)
		}
		if n := len(f.stored(t, "orders")); n != 0 {
			t.Fatalf("a dry run published %d", n)
		}
		out, err = f.dlq(t, "replay", "--to-handler", "--limit", "3", "--json")
		var sum replayJSON
		if jerr := json.Unmarshal([]byte(lastLine(out)), &sum); err == nil || jerr != nil || sum.Replayed != 1 || sum.Failed != 2 ||
			len(sum.Refusals) != 2 {
			t.Errorf("to the handler: %v %v\n%s", err, jerr, out)
		}
		out, err = f.dlq(t, "replay", "--class", "timeout", "--by", "ann\x1b[2J", "--json")
		if jerr := json.Unmarshal([]byte(lastLine(out)), &sum); err != nil || jerr != nil || sum.Replayed != 1 || sum.Before != 1 {
			t.Errorf("%v %v\n%s", err, jerr, out)
		}
		if out, err = f.dlq(t, "replay"); err == nil || !strings.Contains(out,
			"replayed 2 of 3 letters; 2 replayed before, 1 refused") {
			t.Errorf("%v\n%s", err, out)
		}
		if got := strings.Join(f.stored(t, "orders"), " "); got != "d a c" {
			t.Errorf("in orders: %s", got)
		}
		if out = f.must(t, "replay", "--to", "other", f.place(4)); !strings.Contains(out, "replayed 1 of 1") ||
			strings.Join(f.stored(t, "other"), " ") != "forged" {
			t.Errorf("to other: %s", out)
		}
		if out = f.must(t, "list", "--state", "replayed", "--json"); strings.Count(out, "\n") != 5 ||
			!strings.Contains(out, `"replayed_to":"handler of orders"`) || strings.Count(out, `"replayed_by":"`+whoami()+`"`) != 4 {
			t.Errorf("list:\n%s", out)
		}
		if out = f.must(t, "show", f.place(3)); !strings.Contains(out, `, to orders, by ann\x1b[2J`) {
			t.Errorf("who replayed is not shown:\n%s", out)
		}
		for _, args := range [][]string{{"replay"}, {"edit", f.place(4), "--again", "--header", "a=b"}} {
			out, err := f.dlq(t, append(args, "--to", "dead.orders")...)
			if use := (usageError{}); !errors.As(err, &use) || out != "" ||
				err.Error() != `--to is "dead.orders": it would go to the dead letters again` {
				t.Errorf("%s to the dead letters: %v, and %q", args[0], err, out)
			}
		}
	})
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// TestDLQEdit: an edited copy is published, by editor, file or header; nothing goes where nothing was changed.
func TestDLQEdit(t *testing.T) {
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", `{"n":1}`, `{"n":2}`, "\x00", `{"n":4}`)
		dir, tmp := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", tmp) // others edit on this machine, too
		t.Setenv("VISUAL", "")
		t.Setenv("EDITOR", "sed -i s/1/100/")
		if out := f.must(t, "edit", f.place(0)); out != "published the edited copy of letter "+f.place(0)+" to orders\n" {
			t.Errorf("edit: %s", out)
		}
		writeFile(t, dir, "new", `{"n":200}`)
		f.must(t, "edit", f.place(1), "--value-file", filepath.Join(dir, "new"))
		f.must(t, "edit", f.place(2), "--header", "tenant=eu", "--remove-header", "trace")
		if got := strings.Join(f.stored(t, "orders"), " "); got != `{"n":100} {"n":200} `+"\x00" {
			t.Errorf("in orders: %q", got)
		}
		_, err := f.store.Scan(t.Context(), broker.Scan{Topic: "orders"}, func(m *broker.Message) error {
			if v, ok := m.Headers.Get("tenant"); string(m.Value) == "\x00" && (!ok || string(v) != "eu") {
				t.Error("the header was not set")
			}
			if _, ok := m.Headers.Get("trace"); ok != (string(m.Value) != "\x00") {
				t.Errorf("%q: header trace is there: %v", m.Value, ok)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if out := f.must(t, "show", f.place(0)); !strings.Contains(out, "edited") || !strings.Contains(out, `{"n":1}`) {
			t.Errorf("show of an edited one:\n%s", out)
		}
		writeFile(t, dir, "broken", `{"n":`)
		writeFile(t, dir, "huge", "")
		if err := os.Truncate(filepath.Join(dir, "huge"), maxSize+1); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			args   []string
			editor string
			want   string
		}{
			{[]string{f.place(3)}, "true", "nothing was changed"},
			{[]string{f.place(3)}, "false", "false: exit status 1; nothing was published"},
			{[]string{f.place(3)}, "", "neither VISUAL nor EDITOR is set"},
			{[]string{f.place(3), "--value-file", filepath.Join(dir, "broken")}, "", "was JSON and is none any more"},
			{[]string{f.place(3), "--value-file", filepath.Join(dir, "nothing")}, "", "reading the new payload: --value-file: open "},
			{[]string{f.place(3), "--value-file", filepath.Join(dir, "huge")}, "", "huge has more than 67108864 bytes"},
			{[]string{f.place(3), "--header", "Longshore-Replays=0"}, "", "are not the message's own"},
			{[]string{f.place(3), "--remove-header", "trace", "--remove-header", "Trace"}, "", `has no header "Trace": nothing was`},
			{[]string{f.place(0)}, "true", "was replayed at"},
			{[]string{f.place(2), "--again"}, "true", "the payload is no text"},
			{nil, "", "name one letter"},
		} {
			t.Setenv("EDITOR", c.editor)
			if _, err := f.dlq(t, append([]string{"edit"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v", c.args, err)
			}
		}
		if n := len(f.stored(t, "orders")); n != 3 {
			t.Errorf("%d messages in orders", n)
		}
		if left, _ := filepath.Glob(filepath.Join(tmp, editPrefix+"*")); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// TestDLQPurge: it asks; JetStream deletes what was chosen, Kafka only what stands at the beginning.
func TestDLQPurge(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "0", "1", "2", "3", "4")
		if out, err := f.dlq(t, "purge", "--class", "error", "--dry-run"); err != nil || !strings.Contains(out, "would delete") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := f.dlq(t, "purge", f.place(0)); err == nil ||
			!strings.Contains(out, "Delete 1 letter of dead.orders (1 not replayed, as far as is known)? It cannot be undone. [y/N]") {
			t.Errorf("unasked: %v\n%s", err, out)
		}
		if n := len(f.stored(t, "dead.orders")); n != 5 {
			t.Fatalf("%d letters are left", n)
		}
		f.must(t, "purge", f.place(0), "--yes")
		if got := strings.Join(f.stored(t, "dead.orders"), ""); got != "1234" {
			t.Errorf("left: %s", got)
		}
		out, err := f.dlq(t, "purge", "--class", "timeout", "--yes")
		if f.kafka {
			if err == nil || !strings.Contains(err.Error(),
				"1 of 2 letters stand behind others that are to stay, the first is 0/3: Kafka deletes a log only from its beginning") {
				t.Errorf("%v\n%s", err, out)
			}
			f.must(t, "purge", "--class", "timeout", "--yes", "--partly")
			if got := strings.Join(f.stored(t, "dead.orders"), ""); got != "234" {
				t.Errorf("left: %s", got)
			}
		} else if got := strings.Join(f.stored(t, "dead.orders"), ""); err != nil || got != "24" {
			t.Errorf("left: %s %v", got, err)
		}
		f.must(t, "purge", "--all", "--yes")
		if n := len(f.stored(t, "dead.orders")); n != 0 {
			t.Errorf("%d letters are left", n)
		}
		if out := f.must(t, "purge"); out != "no letter to delete\n" {
			t.Errorf("none: %s", out)
		}
	})
}

// TestDLQPurgeJSON: a script is told what went, or would go, and what did not and why.
func TestDLQPurgeJSON(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "0", "1", "2")
		f.must(t, "replay", f.place(0))
		purge := func(want purgeJSON, failed bool, args ...string) {
			t.Helper()
			out, err := f.dlq(t, append([]string{"purge", "--json"}, args...)...)
			var got purgeJSON
			object := out[max(0, strings.LastIndex(out, "{")):] // after the question, on stderr
			if jerr := json.Unmarshal([]byte(object), &got); jerr != nil || (err != nil) != failed {
				t.Fatalf("%q: %v %v\n%s", args, err, jerr, out)
			}
			if want.Topic = "dead.orders"; !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %+v, want %+v", args, got, want)
			}
		}
		none := []string{}
		all := []string{f.place(0), f.place(1), f.place(2)}
		purge(purgeJSON{DryRun: true, Chosen: 3, Deleted: 3, NotReplayed: 2, Letters: all}, false, "--dry-run")
		purge(purgeJSON{Chosen: 3, Letters: none}, true) // nobody says yes
		if f.kafka {
			behind := purgeJSON{Chosen: 2, Behind: 1, FirstBehind: f.place(2), Letters: none}
			purge(behind, true, "--yes", f.place(0), f.place(2))
			behind.Deleted, behind.Letters = 1, all[:1] // of which none waits
			purge(behind, false, "--yes", "--partly", f.place(0), f.place(2))
		} else {
			purge(purgeJSON{Chosen: 2, Deleted: 2, NotReplayed: 1, Letters: []string{all[0], all[2]}}, false, "--yes", all[0], all[2])
		}
		purge(purgeJSON{Letters: none}, false, "--yes", "--class", "decode")
	})
}

// TestDLQRefuses: what is wrong with flags and file is said at once, and is the caller's.
func TestDLQRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  a: {source: {kafka: {brokers: [h:1], topics: [a], group: a}}, dead_letter: {to: x}, routes: [{handler: log}]}
  b: {source: {kafka: {brokers: [h:1], topics: [b], group: b}}, dead_letter: {to: y}, routes: [{handler: log}]}
  c: {source: {kafka: {brokers: [h:1], topics: [c], group: c}}, routes: [{handler: log}]}
`)
	writeFile(t, dir, "routed.yaml", `consumers:
  a:
    source: {kafka: {brokers: [h:1], topics: [a], group: a}}
    dead_letter: {to: x, routes: [{class: decode, to: y}, {handler: log, to: z}]}
    routes: [{handler: log}]
`)
	writeFile(t, dir, "nats.yaml", `consumers:
  a: {source: {nats: {url: "nats://127.0.0.1:1", stream: A, durable: a}}, dead_letter: {to: x}, routes: [{handler: log}]}
`)
	file, routed, onNATS := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "routed.yaml"), filepath.Join(dir, "nats.yaml")
	for args, wants := range map[string][]string{
		"list":                                  {"whose dead letters?"},
		"list --topic a --subject b":            {"--topic and --subject are set"},
		"list --brokers h:1":                    {"--topic is missing"},
		"list --url h":                          {"--subject is missing"},
		"list --topic a --state gone --since x": {"--state is \"gone\"", "--since is \"x\""},
		"purge --topic a --class foo": {`--class is "foo", want error, permanent, decode, oversize, timeout, panic, ` +
			`goexit or crash`},
		"list --topic a 1/2/3 -- -4":                  {`"1/2/3": want partition/offset`, `"-4": want`},
		"list -c " + file + " --brokers h:1":          {"--config and --brokers are set"},
		"list -c " + file + " --consumer a --topic y": {`--topic is "y", and the dead letters of consumer a go to ["x"]`},
		"list -c " + routed:                           {`the dead letters of consumer a go to ["x" "y" "z"]: choose one with --topic`},
		"list -c " + routed + " --topic w":            {`--topic is "w", and the dead letters of consumer a go to ["x" "y" "z"]`},
		"purge -c " + routed + " --subject y":         {"the dead letters of consumer a are chosen with --topic"},
		"list -c " + file:                             {`consumers ["a" "b"] have dead letters: choose one`},
		"list --consumer c -c " + file:                {"which has no dead_letter"},
		"list --consumer z -c " + file:                {`--consumer is "z", want one of the file's: ["`},
		"replay --topic a --to-handler --rate=-1":     {"--to-handler is set and --config is not", "--rate is -1"},
		"replay --topic a --max-replays 0":            {"--max-replays is 0"},
		"replay --topic a --to b --workers 8":         {"--workers is set and --to-handler is not"},
		"replay --topic a --to b --put-off 1s":        {"--put-off is set and --to-handler is not"},
		"replay -c c.yaml --to-handler --put-off -1s": {"--put-off is -1s, negative"},
		"show --topic a":                              {"name one letter"},
		"list --topic a --timeout 0s":                 {"--timeout is 0s"},
		"list --topic a --limit -1":                   {"--limit is -1, negative"},
		"list --topic a --since 1h --until 2h":        {"--since is not before --until"},
		"purge --yes --class= --handler= -c " + file:  {"--class is empty", "--handler is empty"}, // a script's unset variable
		"purge --yes --origin= --state= -c " + file:   {"--origin is empty", "--state is empty"},
		"purge --yes --subject dead.a --url=":         {"--url is empty"},
		"purge --yes -c " + file + " --consumer a":    {"--yes is set and nothing is chosen"},
		"purge --yes --all --class error --topic a":   {"--all and --class are set"},
		"purge --yes --all --topic a 0/1":             {"--all and a letter are set"},
		"purge --partly --subject dead.a":             {"--partly is set, which is for Kafka"},
		"purge --partly -c " + onNATS:                 {"--partly is set, which is for Kafka"},
		"purge --yes -c " + routed + " --topic=":      {"--topic is empty"},
		"purge --yes --subject dead.a --creds=":       {"--creds is empty"},
		"list --brokers= --topic a --until=":          {"--brokers is empty", "--until is empty"},
		"replay --to= --consumer= -c " + file:         {"--to is empty", "--consumer is empty"},
	} {
		_, err := run(t.Context(), append([]string{"dlq"}, strings.Fields(args)...)...)
		var use usageError
		if !errors.As(err, &use) {
			t.Errorf("%s: %v", args, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %s", args, err, want)
			}
		}
	}
	_, err := run(t.Context(), "dlq", "list", "--brokers", "127.0.0.1:1", "--topic", "a", "--timeout", "1s")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}
