//go:build unix

package integration

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// programDir is where buildProgram puts the program; TestMain removes it.
var programDir string

// buildProgram builds longshore, once for all tests; with the race detector where this test has it.
var buildProgram = sync.OnceValues(func() (path string, err error) {
	// go test takes a result from its cache when no file changed that the test itself looked at. The compiler's looks do not count.
	for _, dir := range []string{"../cmd", "../consumer", "../deadletters", "../handlers", "../program"} {
		if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return "", err
		}
	}
	if programDir, err = os.MkdirTemp("", "longshore-integration-"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "longshore")
	args := []string{"build", "-o", path}
	if raceDetector() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "../cmd/longshore")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building longshore: %w\n%s", err, out)
	}
	return path, nil
})

// programEnv gives each process a name, by which the webhook's server knows it.
const programEnv = "LONGSHORE_TEST_PROGRAM"

// programs starts longshore run, again and again on one configuration file.
type programs struct {
	path string // of longshore
	file string // the configuration
	hook *hook
	n    int
	// env is what the nth process has in its environment beside what all have; nil: nothing.
	env func(n int) []string
}

// newPrograms has more, too, in the file.
func newPrograms(t *testing.T, c consumerConfig, more ...string) *programs {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	h, url := startHook(t, c)
	p := &programs{path: path, file: filepath.Join(t.TempDir(), "c.yaml"), hook: h}
	if err := os.WriteFile(p.file, []byte(strings.Join(more, "")+programConfig(c, url)), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// programConfig says what c says, in the file's words.
func programConfig(c consumerConfig, url string) string {
	order := cmp.Or(c.Order, consumer.OrderNone)
	source, match := fmt.Sprintf(`nats: {url: %q, stream: %s, subjects: ["load.>"], durable: %s, ack_wait: %v, key_token: 2}`,
		c.URL, loadStream, c.Group, c.Lease), "load.>"
	if c.Broker == "kafka" {
		source, match = fmt.Sprintf(`kafka: {brokers: [%q], topics: [%s], group: %s, membership: %s, session_timeout: %v, `+
			`missing: run, heartbeat_interval: %v, revoke_wait: 5s, rebalance_timeout: 10s, commit_interval: %v}`,
			c.URL, c.Topic, c.Group, membership(), c.Lease, c.memberHeartbeat(), commitInterval), c.Topic
	}
	return fmt.Sprintf(`log: {level: info, format: json}
consumers:
  %s:
    source: {%s}
    pool: {min: 1, max: %d}
    order: %s
    retry: {max_attempts: 100, backoff: {initial: 20ms, max: 200ms}}
    drain_timeout: %v
    routes:
      - match: %q
        handler: webhook
        with: {url: "%s/${%s}"}
`, c.Group, source, c.Workers, order, c.Drain, match, url, programEnv)
}

func (ps *programs) start(t *testing.T) *process {
	t.Helper()
	ps.n++
	name := strconv.Itoa(ps.n)
	env := []string{programEnv + "=" + name, "GORACE=halt_on_error=1"}
	if ps.env != nil {
		env = append(env, ps.env(ps.n)...)
	}
	p := startCommand(t, exec.Command(ps.path, "run", "-c", ps.file), env...)
	p.id = ps.n
	p.up = func() bool { return p.err.contains(`"event":"source_up"`) }
	p.atWork = func() bool { return ps.hook.answered(name) > 0 }
	return p
}

// A hook is the webhook's server. It takes as long as the other rows' handlers, and as its last act before the answer writes to
// the ledger. When the process that asked is killed meanwhile, it finishes every second number, which makes a duplicate of each,
// and leaves the others: if it finished all of them it would hide that a program acks what was not answered.
type hook struct {
	t    *testing.T
	work *work

	mu  sync.Mutex
	n   map[string]int   // answers, by the name of the process
	ids map[int64]string // Longshore-Id, by sequence
}

// startHook serves until the end of the test.
func startHook(t *testing.T, c consumerConfig) (h *hook, url string) {
	t.Helper()
	w, err := newWork(c)
	if err != nil {
		t.Fatal(err)
	}
	h = &hook{t: t, work: w, n: map[string]int{}, ids: map[int64]string{}}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close() // waits for its handlers
		if err := w.l.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, s.URL
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "half a request", http.StatusInternalServerError) // its sender was killed
		return
	}
	id, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		h.refuse(w, fmt.Errorf("a request without a number: %w", err))
		return
	}
	seq, err := placeOf(r.Header)
	if err != nil {
		h.refuse(w, fmt.Errorf("number %d without a sequence: %w", id, err))
		return
	}
	if err := h.identify(seq, r.Header.Get("Longshore-Id")); err != nil {
		h.refuse(w, err)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	end, err := h.begin(name, id, seq)
	if err != nil {
		h.refuse(w, err)
		return
	}
	if h.work.mustFail(id) {
		end(ledger.Failed)
		http.Error(w, "it is to fail", http.StatusServiceUnavailable)
		return
	}
	select {
	case <-time.After(h.work.takes(id)):
	case <-h.gone(r, id):
		end(ledger.Cancelled)
		return
	}
	if err := h.work.l.Write(id, seq); err != nil {
		h.refuse(w, err)
		return
	}
	end(ledger.Done)
	h.mu.Lock()
	h.n[name]++
	h.mu.Unlock()
	w.WriteHeader(http.StatusOK)
}

// begin stamps the begin of a request, where there is a clock; end is to be called before its answer.
func (h *hook) begin(name string, id, seq int64) (end func(ledger.Outcome), err error) {
	if h.work.clock == nil {
		return func(ledger.Outcome) {}, nil
	}
	pid, err := strconv.Atoi(name)
	if err != nil {
		return nil, fmt.Errorf("a request of a process without a number: %w", err)
	}
	clock := h.work.clock.For(pid)
	run, err := clock.Begin(id, seq)
	return func(how ledger.Outcome) {
		if err := clock.End(run, how); err != nil {
			h.t.Errorf("stamping an end: %v", err)
		}
	}, err
}

// placeOf is where a webhook's message stands, in one number.
func placeOf(h http.Header) (int64, error) {
	offset, err := strconv.ParseInt(h.Get("Longshore-Offset"), 10, 64)
	if partition := h.Get("Longshore-Partition"); err == nil && partition != "" {
		var no int64
		no, err = strconv.ParseInt(partition, 10, 32)
		return ledger.Seq(int32(no), offset), err
	}
	return offset, err
}

// gone ends the work on a request whose sender is gone; nil where that does not matter.
func (h *hook) gone(r *http.Request, id int64) <-chan struct{} {
	if id%2 == 0 {
		return nil
	}
	return r.Context().Done()
}

// refuse fails the test. The message is retried, so that the account shows it too.
func (h *hook) refuse(w http.ResponseWriter, err error) {
	h.t.Errorf("webhook: %v", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// identify checks that a message has the same Longshore-Id at each delivery, from whichever process: a server tells repeats by
// it.
func (h *hook) identify(seq int64, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, again := h.ids[seq]; id == "" || again && was != id {
		return fmt.Errorf("sequence %d comes with Longshore-Id %q, before with %q", seq, id, was)
	}
	h.ids[seq] = id
	return nil
}

// answered is how many requests of a process were answered.
func (h *hook) answered(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[name]
}
