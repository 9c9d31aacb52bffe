package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/integration/daemon"
	"github.com/rs/zerolog"
)

// builtDir is where build puts the program; TestMain removes it.
var builtDir string

// build builds the program, once for all tests.
var build = sync.OnceValues(func() (path string, err error) {
	if builtDir, err = os.MkdirTemp("", "longshore-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(builtDir, "longshore")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/longshore").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return path, nil
})

// a program is the built program, running.
type program struct {
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	done   chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// launch starts the program in dir; it is killed at the end of the test if it is still there.
func launch(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return launchPath(t, path, dir, args...)
}

// launchPath is launch for another program.
func launchPath(t *testing.T, path, dir string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.stdout, &p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	return p
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// code waits for the program's end and returns its exit code.
func (p *program) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("still running; stderr:\n%s", p.stderr.String())
		return 0
	}
}

// eventually waits until cond holds.
func (p *program) eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s; stderr:\n%s", patience, what, p.stderr.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *program) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// force sends the signal again and again, until the program has ended: one that follows the first at once is the same one.
func (p *program) force(t *testing.T, s os.Signal) {
	t.Helper()
	p.eventually(t, "ended", func() bool {
		_ = p.cmd.Process.Signal(s)
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := daemon.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// fetch gets a page; "" while there is none.
func fetch(url string) string {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return fmt.Sprintf("%d\n%s", res.StatusCode, body)
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantJSONLines checks that a log is one JSON object a line, and returns the names of its events.
func wantJSONLines(t *testing.T, log string) (events map[string]int) {
	t.Helper()
	events = map[string]int{}
	for line := range strings.Lines(log) {
		var e struct {
			Event string `json:"event"`
			Time  string `json:"time"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("a line of the log is not JSON: %q", line)
		}
		if _, err := time.Parse("2006-01-02T15:04:05.000Z07:00", e.Time); err != nil {
			t.Errorf("the time of %q: %v", line, err)
		}
		events[e.Event]++
	}
	return events
}

// TestNewUser goes the way of the README: example, run, produce in a second terminal, SIGTERM.
func TestNewUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	example := launch(t, dir, "config", "example")
	if code := example.code(t); code != 0 {
		t.Fatal(code)
	}
	port, admin := freePort(t), freePort(t) // the defaults may be taken on this machine
	text := strings.Replace(example.stdout.String(), "port: 4222 ", "port: "+port+" ", 1)
	text = strings.Replace(text, "listen: 127.0.0.1:8080", "listen: 127.0.0.1:"+admin, 1)
	writeFile(t, dir, "c.yaml", text)

	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	produce := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "300", "--rate", "0", "--json")
	if code := produce.code(t); code != 0 {
		t.Fatalf("produce: %d %s", code, produce.stderr.String())
	}
	var sum map[string]float64
	if err := json.Unmarshal([]byte(produce.stdout.String()), &sum); err != nil || sum["confirmed"] != 300 || sum["sent"] != 300 ||
		sum["bytes"] != 30000 {
		t.Errorf("produce: %v %v", produce.stdout.String(), err)
	}
	run.eventually(t, "300 handled", func() bool {
		return strings.Contains(fetch("http://127.0.0.1:"+admin+"/metrics"),
			"\nlongshore_handled_messages_total{consumer=\"orders\"} 300\n")
	})
	if live := fetch("http://127.0.0.1:" + admin + "/livez"); live != "200\nok\n" {
		t.Errorf("/livez: %q", live)
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
	events := wantJSONLines(t, run.stderr.String())
	for _, name := range []string{"started", "embedded_nats", "admin", "stopping", "drained", "stopped"} {
		if events[name] != 1 {
			t.Errorf("%d events %q", events[name], name)
		}
	}
	if !strings.Contains(run.stderr.String(), "ORDERS: orders.>") ||
		!strings.Contains(run.stderr.String(), filepath.Join(dir, "longshore-data")) {
		t.Errorf("stream and folder of the embedded server are not named:\n%.600s", run.stderr.String())
	}
	if run.stdout.String() != "" {
		t.Errorf("stdout: %q", run.stdout.String())
	}
}

// embeddedFile is a configuration on an embedded server, with what a test puts into its consumer.
func embeddedFile(port string, consumer ...string) string {
	return "embedded: {port: " + port + "}\nconsumers:\n  orders:\n    source: {nats: {stream: ORDERS, subjects: [\"orders.>\"], " +
		"durable: workers}}\n    " +
		strings.Join(consumer, "\n    ") + "\n"
}

// TestSecondSignalStopsAtOnce: the first drains, and waits for a handler that takes its time; the second does not.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir, port := t.TempDir(), freePort(t)
		writeFile(t, dir, "c.yaml", embeddedFile(port,
			"routes: [{handler: exec, with: {command: [sh, -c, 'echo > started; exec sleep 60'], dir: "+dir+"}}]"))
		run := launch(t, dir, "run", "-c", "c.yaml")
		run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
		if code := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1").code(t); code != 0 {
			t.Fatalf("produce: %d", code)
		}
		run.eventually(t, "a handler runs", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
		run.signal(t, s)
		run.eventually(t, "draining", func() bool { return strings.Contains(run.stderr.String(), `"state":"draining"`) })
		run.force(t, s)
		if code := run.code(t); code != 128+int(s) {
			t.Errorf("after two %v: exit code %d, want %d", s, code, 128+int(s))
		}
	}
}

// TestSignalTwiceAtOnce: timeout sends its signal to the program and to the group that this is in. That is one stop; what comes
// later is a second one, but for a SIGHUP, which a terminal that closes sends twice.
func TestSignalTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, drains := make(chan os.Signal, 2), 0
		forced := make(chan os.Signal, 1)
		go heed(signals, func() { drains++ }, func(s os.Signal) { forced <- s })
		for _, one := range []struct {
			after  time.Duration
			signal os.Signal
			forces bool
		}{{0, syscall.SIGTERM, false}, {0, syscall.SIGTERM, false}, {sameSignal - 1, os.Interrupt, false},
			{time.Second, syscall.SIGHUP, false}, {0, os.Interrupt, true}} {
			time.Sleep(one.after)
			signals <- one.signal
			synctest.Wait()
			if len(forced) == 1 != one.forces || drains != 1 {
				t.Errorf("%v, %v later: %d drains, %d forced", one.signal, one.after, drains, len(forced))
			}
		}
		close(signals)
	})
}

// launchBusy starts the program with a handler that runs until drains is called, which wants both to end as they should.
func launchBusy(t *testing.T) (run *program, drains func()) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: exec, with: {command: [sh, -c, 'echo > started; while [ ! "+
		"-e go ]; do sleep 0.1; done; echo > ended'], dir: "+dir+"}}]"))
	run = launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if code := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "1").code(t); code != 0 {
		t.Fatalf("produce: %d", code)
	}
	run.eventually(t, "a handler runs", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil })
	return run, func() {
		t.Helper()
		writeFile(t, dir, "go", "")
		if code := run.code(t); code != 0 {
			t.Errorf("exit code %d\n%s", code, run.stderr.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
			t.Errorf("the handler did not end: %v", err)
		}
	}
}

// TestOneFailsAllDrain: a consumer whose stream is missing ends the process with 1; the other one drains.
func TestOneFailsAllDrain(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: log}]")+
		"  lost:\n    source: {nats: {url: \"nats://127.0.0.1:"+port+
		"\", stream: NONE, durable: d, missing: stop}}\n    routes: [{handler: log}]\n")
	run := launch(t, dir, "run", "-c", "c.yaml")
	if code := run.code(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	log := run.stderr.String()
	if events := wantJSONLines(t, log); events["failed"] != 1 ||
		!strings.Contains(log, "consumer lost: opening the source: natsbroker: there is no stream NONE") {
		t.Errorf("the reason is not told once:\n%s", log)
	}
	if !strings.Contains(log, `"consumer":"orders","event":"state","state":"stopped"`) {
		t.Errorf("orders did not drain:\n%s", log)
	}
}

func TestPortOfEmbeddedServerIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", embeddedFile(port, "routes: [{handler: log}]"))
	run := launch(t, dir, "run", "-c", "c.yaml")
	if code := run.code(t); code != 1 || !strings.Contains(run.stderr.String(), "Set embedded.port") {
		t.Errorf("exit code %d: %s", code, run.stderr.String())
	}
}

// TestStoreIsLocked: two processes do not share a folder.
func TestStoreIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, err := startNATS(t.Context(), zerolog.Nop(), filepath.Join(dir, "longshore-data"), -1)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "c.yaml", embeddedFile(freePort(t), "routes: [{handler: log}]"))
	run := launch(t, dir, "run", "-c", "c.yaml")
	if code := run.code(t); code != 1 || !strings.Contains(run.stderr.String(),
		"is in use by another longshore: set embedded.dir and embedded.port") {
		t.Errorf("exit code %d: %s", code, run.stderr.String())
	}
	e.stop()
}

// TestStoreCannotBeUsed: why the server inside does not start is said, and not that its time is over.
func TestStoreCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "jetstream", "where the server wants a folder")
	if _, err := startNATS(t.Context(), zerolog.Nop(), dir, -1); err == nil ||
		!strings.HasPrefix(err.Error(), "starting the embedded NATS server: Can't start JetStream: ") {
		t.Error(err)
	}
}

// TestExitCodes: 2 for wrong use and wrong configuration, with what is wrong on stderr and nothing on stdout.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "bad.yaml", "consumers:\n  orders: {pool: {max: many}}\n")
	writeFile(t, dir, "one.yaml", "consumers: {}\n")
	writeFile(t, dir, "good.yaml", embeddedFile("4222", "routes: [{handler: log}]"))
	for _, c := range []struct {
		args string
		code int
		want string // on stderr, or on stdout where the code is 0
	}{
		{"run", 2, "run needs --config FILE"},
		{"run -c none.yaml", 2, "none.yaml: no such file"},
		{"run -c bad.yaml", 2, "bad.yaml:2: consumers.orders.pool.max: wants a whole number, is a string\n"},
		{"run good.yaml", 2, "run takes no arguments; name the file with -c: longshore run -c good.yaml"},
		{"run -c good.yaml orders", 2, "longshore run takes no arguments, 1 is given: orders"},
		{"config check one.yaml", 2, "\nlongshore: one.yaml: 1 mistake\n"},
		{"config check bad.yaml", 2, "\nlongshore: bad.yaml: 3 mistakes\n"},
		{"run -c", 2, "flag needs an argument"},
		{"config check bad.yaml", 2, "bad.yaml:2: consumers.orders.routes: is missing or empty"},
		{"config check", 2, "want one FILE, 0 are given: longshore config check FILE"},
		{"config check a.yaml b.yaml", 2, "want one FILE, 2 are given: longshore config check FILE"},
		{"config check good.yaml", 0, "good.yaml: ok; consumers: orders\n"},
		{"config example --broker rabbit", 2, `--broker is "rabbit"`},
		{"config example", 0, "consumers:\n"},
		{"produce --rate -1 --size 1", 2, "--rate is -1, want 0 to 10,000,000\n--size is 1, want 40"},
		{"produce --url http://localhost", 2, "the scheme must be nats"},
		{"produce --url nats://127.0.0.1:1 --count 1 --timeout 1s", 1, "1 of 1 messages were not confirmed"},
		{"demo --kafka=", 2, "--kafka is empty"},
		{"lag --url= --stream S --durable d", 2, "--url is empty"},
		{"run -c good.yaml --scaler=", 2, "--scaler is empty"},
		{"scaler -c good.yaml --tls-cert= --tls-key=", 2, "--tls-cert is empty\n--tls-key is empty"},
		{"version", 0, "longshore "},
		{"man", 2, "want one DIR, 0 are given: longshore man DIR"},
		{"completion bash", 0, "__start_longshore"},
		{"completion", 0, "for the specified shell"},
		{"completion bsh", 2, `unknown command "bsh" for "longshore completion"`},
		{"completion bash orders", 2, "longshore completion bash takes no arguments, 1 is given: orders"},
		{"produce orders 17", 2, "longshore produce takes no arguments, 2 are given: orders 17"},
		{"help run", 0, "longshore run -c FILE"},
		{"help no-such-command", 2, `unknown command "no-such-command" for "longshore help"`},
		{"help run orders", 2, `unknown command "run orders" for "longshore help"`},
		{"scaler -c good.yaml --listen 127.0.0.1:0 --tls-cert none --tls-key none", 2, "reading --tls-cert and --tls-key: open none"},
		{"no-such-command", 2, "unknown command"},
		{"", 0, "Exit codes: 0 done"},
	} {
		p := launch(t, dir, strings.Fields(c.args)...)
		code := p.code(t)
		out := p.stderr.String()
		if c.code == 0 {
			out = p.stdout.String()
		}
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("longshore %s: exit code %d, want %d with %q\nstderr: %s", c.args, code, c.code, c.want, p.stderr.String())
		}
		if c.code == 2 && p.stdout.String() != "" {
			t.Errorf("longshore %s: stdout is %q", c.args, p.stdout.String())
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	t.Parallel()
	out, err := run(t.Context(), "version", "--json")
	var v map[string]any
	if err := errors.Join(err, json.Unmarshal([]byte(out), &v)); err != nil || v["go"] == "" || v["platform"] == nil ||
		v["version"] == nil {
		t.Errorf("%q: %v", out, err)
	}
}

// TestVersionAsAFlag: --version is what most programs have, and what people try first.
func TestVersionAsAFlag(t *testing.T) {
	t.Parallel()
	out, err := run(t.Context(), "--version")
	if want := readVersion().String() + "\n"; out != want || err != nil {
		t.Errorf("%q, want %q: %v", out, want, err)
	}
}

func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	if _, err := run(t.Context(), "man", dir); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"longshore.1", "longshore-run.1", "longshore-produce.1", "longshore-config-check.1",
		"longshore-demo.1"} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(string(text), ".SH SYNOPSIS") {
			t.Errorf("%s: %v", page, err)
		}
	}
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestVersionAsText(t *testing.T) {
	for v, want := range map[version]string{
		{Version: "v1.2.3", Go: "go1.26", Platform: "linux/amd64"}: "longshore v1.2.3 go1.26 linux/amd64",
		{Version: "(devel)", Go: "go1.26", Platform: "linux/amd64", Revision: "abc", Time: "2026-11-21T15:00:00Z",
			Modified: true}: "longshore (devel) go1.26 linux/amd64, commit abc of 2026-11-21T15:00:00Z, modified",
	} {
		if got := v.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
