package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/autoscaler"
	"github.com/longshoremq/longshore/integration/daemon"
	"golang.org/x/sync/errgroup"
)

// A fleet is longshore run processes whose number the arithmetic of a HorizontalPodAutoscaler sets, by the answers of longshore
// scaler. Each process has its admin address at a loopback address of its own, as a pod has.
const (
	fleetWorkers = 8
	fleetTakes   = 100 * time.Millisecond // a handler; so a process does 80/s at most
	fleetAdmin   = "LONGSHORE_TEST_ADMIN"
	// fleetFree is how many requests at a time are more than there ever are.
	fleetFree = 1000
)

func fleetMost() int { return lengths(5, 8) }

type fleet struct {
	path, file, consumer string
	port, http           string
	hook                 *fleetHook
	scaler               *process
	running              []*process
	scale                *autoscaler.Autoscaler
	began                time.Time
	changes              []fleetChange
	unknown              int // answers that were none
	hold                 fleetHold
}

// A fleetAnswer is what the scaler says.
type fleetAnswer struct {
	Need    *float64
	Reason  string
	Backlog int64
}

// A fleetHold is what a saturated downstream leads to: more processes first, since more waits, and then, since they bring no
// more, as many as are enough. It is held from when there are so many.
type fleetHold struct {
	Most    int     `json:"most"`
	At      float64 `json:"at_seconds"`
	Held    int     `json:"held"`
	Waiting int64   `json:"least_waiting"` // since then
	Changes int     `json:"changes"`       // since then
	Stayed  float64 `json:"stayed_seconds"`
	since   time.Time
}

// A fleetChange is a new number of processes, so long after the begin.
type fleetChange struct {
	At       float64       `json:"at_seconds"`
	To       int           `json:"to"`
	Phase    string        `json:"phase"`
	in, left time.Duration // since the phase's begin, until its end
}

// A fleetHook answers after fleetTakes, at most so many requests at a time; each further one waits in line.
type fleetHook struct {
	line atomic.Pointer[chan struct{}]
	mu   sync.Mutex
	runs map[int64]int
}

// allow lets so many requests be answered at a time.
func (h *fleetHook) allow(n int) {
	line := make(chan struct{}, n)
	h.line.Store(&line)
}

func (h *fleetHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender is gone
	}
	line := *h.line.Load()
	select {
	case line <- struct{}{}:
		defer func() { <-line }()
	case <-r.Context().Done():
		return
	}
	time.Sleep(fleetTakes)
	id, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		http.Error(w, "a body without a number", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.runs[id]++
	h.mu.Unlock()
}

// missing is how many of the numbers never arrived.
func (h *fleetHook) missing(ids []int64) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.runs[id] == 0 {
			n++
		}
	}
	return n
}

// repeated is how many arrived more than once.
func (h *fleetHook) repeated() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for runs := range maps.Values(h.runs) {
		if runs > 1 {
			n++
		}
	}
	return n
}

func newFleet(t *testing.T, on system) *fleet {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	h := &fleetHook{runs: map[int64]int{}}
	h.allow(fleetFree)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c := consumerConfig{Workers: fleetWorkers, Drain: 5 * time.Second, Heartbeat: time.Second}
	on.configure(&c)
	c.Lease = 10 * time.Second // nobody is killed: a busy machine must not look like that
	f := &fleet{path: path, file: filepath.Join(t.TempDir(), "c.yaml"), consumer: c.Group, port: fleetPort(t), http: "127.0.0.1:" +
		fleetPort(t), hook: h, began: time.Now(),
		scale: &autoscaler.Autoscaler{Min: 1, Max: fleetMost(), Settle: lengths(15*time.Second, 30*time.Second)}}
	text := "admin: {listen: \"${" + fleetAdmin + "}\"}\n" + programConfig(c, server.URL)
	if err := os.WriteFile(f.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.set(t, 1, phase{})
	f.startScaler(t)
	return f
}

func fleetPort(t *testing.T) string {
	t.Helper()
	port, err := daemon.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// address is the admin address of the nth process.
func (f *fleet) address(n int) string { return fmt.Sprintf("127.0.0.%d:%s", n+2, f.port) }

func (f *fleet) startScaler(t *testing.T) {
	t.Helper()
	args := []string{"scaler", "-c", f.file, "--listen", "127.0.0.1:0", "--http", f.http, "--every", "1s", "--drain", "30s"}
	for n := range fleetMost() {
		args = append(args, "--processes", f.address(n))
	}
	f.scaler = startCommand(t, exec.Command(f.path, args...), fleetAdmin+"="+f.address(0), programEnv+"=scaler")
	f.scaler.await(t, "listens", func() bool { return f.scaler.err.contains(`"event":"scaler"`) })
}

// set starts or stops processes until there are n. Those that go are told to by SIGTERM, as pods are.
func (f *fleet) set(t *testing.T, n int, now phase) {
	t.Helper()
	for i := len(f.running); i < n; i++ {
		p := startCommand(t, exec.Command(f.path, "run", "-c", f.file), fleetAdmin+"="+f.address(i), programEnv+"="+strconv.Itoa(i))
		f.running = append(f.running, p)
		p.await(t, "is up", func() bool { return p.err.contains(`"event":"source_up"`) })
	}
	for len(f.running) > n {
		last := f.running[len(f.running)-1]
		if code, _ := last.terminate(t); code != 0 {
			t.Errorf("a process that was told to go exits with %d: %s", code, last.err.tail())
		}
		f.running = f.running[:len(f.running)-1]
	}
	if now.name != "" {
		since := time.Since(now.began)
		f.changes = append(f.changes, fleetChange{time.Since(f.began).Round(100 * time.Millisecond).Seconds(), n, now.name, since,
			now.lasts - since})
	}
}

// ask asks the scaler.
func (f *fleet) ask() (a fleetAnswer, known bool) {
	client := http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get("http://" + f.http + "/scaler/" + f.consumer)
	if err != nil {
		return a, false
	}
	defer answer.Body.Close()
	defer client.CloseIdleConnections()
	if answer.StatusCode != http.StatusOK || json.NewDecoder(answer.Body).Decode(&a) != nil || a.Need == nil {
		return a, false
	}
	return a, true
}

// follow sets the number once, as the autoscaler wants it.
func (f *fleet) follow(t *testing.T, now phase) {
	t.Helper()
	a, known := f.ask()
	need := 0.0
	if known {
		need = *a.Need
	} else {
		f.unknown++
	}
	have := len(f.running)
	want := f.scale.Next(time.Now(), have, need, 1, known)
	if want != have {
		f.set(t, want, now)
	}
	if now.saturated() && known {
		f.hold.look(a, want, want != have, now)
	}
}

// look takes down what the scaler said while the downstream was saturated, and to what number that led.
func (h *fleetHold) look(a fleetAnswer, processes int, changed bool, now phase) {
	h.Most = max(h.Most, processes)
	switch {
	case h.since.IsZero() && (a.Reason != "hold" || float64(processes) > *a.Need || processes == h.Most):
	case h.since.IsZero():
		h.At, h.Held, h.Waiting, h.since = time.Since(now.began).Seconds(), processes, a.Backlog, time.Now()
	default:
		h.Waiting, h.Stayed = min(h.Waiting, a.Backlog), time.Since(h.since).Seconds()
		if changed {
			h.Changes++
		}
	}
}

// stayed says whether the number was held for so long.
func (h *fleetHold) stayed(d time.Duration) bool {
	return h.Stayed >= d.Seconds()
}

// A phase is a load for a while.
type phase struct {
	name  string
	lasts time.Duration
	rate  int // messages a second
	allow int // requests at a time, of all processes together
	// settles is after how long the number is to stay.
	settles time.Duration
	began   time.Time
}

// saturated says whether the downstream takes less than comes.
func (p phase) saturated() bool { return p.name == "saturated" }

// A fleetRow is what became of it.
type fleetRow struct {
	Row       string        `json:"row"`
	Broker    string        `json:"broker"`
	Confirmed int           `json:"confirmed"`
	Lost      int           `json:"lost"`
	Repeated  int           `json:"repeated"`
	Unknown   int           `json:"unknown_answers"`
	Changes   []fleetChange `json:"changes"`
	Saturated fleetHold     `json:"saturated"`
}

// TestFleet: more processes when more comes than those that are there can do, a scaler that is killed in between, a downstream
// that takes no more, of whose line more processes make only a longer one, and fewer when that is over. Nothing is lost; where
// the downstream is saturated the number is held, though work waits; and in full the number changes once at most in each part
// that is steady.
func TestFleet(t *testing.T) {
	if !inFull() && os.Getenv("LONGSHORE_REAL") == "" {
		t.Skip("takes a minute: LONGSHORE_REAL=1 or make chaos runs it")
	}
	sideBySide(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			on := k.start(t)
			f := newFleet(t, on)
			load := startFleetLoad(t, on.publisher(t))
			most := map[string]int{}
			for _, p := range fleetPhases() {
				p.began = time.Now()
				f.hook.allow(p.allow)
				load.rate.Store(int64(p.rate))
				goesOn := func() bool { // on a busy machine processes take their time to start
					since := time.Since(p.began)
					late := p.name == "high" && most["high"] < fleetHigh() || p.saturated() && !f.hold.stayed(fleetStays())
					return since < p.lasts || late && since < p.lasts+4*patience
				}
				for goesOn() {
					f.follow(t, p)
					most[p.name] = max(most[p.name], len(f.running))
					time.Sleep(lengths(2*time.Second, 5*time.Second))
				}
				if p.name == "high" { // while it is away, the number stays
					f.scaler.kill()
					have := len(f.running)
					f.follow(t, p)
					if len(f.running) != have {
						t.Errorf("%d processes, and %d when nobody could say how many", have, len(f.running))
					}
					f.startScaler(t)
				}
			}
			confirmed := load.stop(t)
			f.hook.allow(fleetFree)
			eventually(t, "all arrives", func() bool { return f.hook.missing(confirmed) == 0 })
			down := time.Now()
			for len(f.running) > 1 && time.Since(down) < patience {
				f.follow(t, phase{name: "end", began: down})
				time.Sleep(time.Second)
			}
			report(fleetRow{"fleet", on.broker(), len(confirmed), f.hook.missing(confirmed), f.hook.repeated(), f.unknown, f.changes,
				f.hold})
			if most["high"] < fleetHigh() || len(f.running) != 1 {
				t.Errorf("%v processes in the phases, and %d at the end: want more of them where more comes, and one at the end", most,
					len(f.running))
			}
			f.steady(t)
			if h := f.hold; !h.stayed(fleetStays()) || h.Held >= h.Most || h.Waiting == 0 || h.Changes > 1 {
				t.Errorf("a saturated downstream: %+v: want more processes first, then fewer, held by one change at most while work waits", h)
			}
			f.set(t, 0, phase{})
		})
	}
}

// fleetHigh is how many processes the high load needs at least. In short, beside other tests, less may come than is meant to.
func fleetHigh() int { return lengths(2, 3) }

// fleetStays is how long the number has to stay where the downstream is saturated.
func fleetStays() time.Duration { return lengths(15*time.Second, 25*time.Second) }

// fleetPhases are a step up, a downstream that takes less than comes, and a step down; in full five minutes. In short the
// saturated phase lasts until the scaler has found that out, for which it measures for a minute.
func fleetPhases() []phase {
	if !inFull() {
		return []phase{{name: "low", lasts: 10 * time.Second, rate: 30, allow: fleetFree},
			{name: "high", lasts: 30 * time.Second, rate: 200, allow: fleetFree},
			{name: "saturated", rate: 100, allow: 4},
			{name: "low again", lasts: 15 * time.Second, rate: 30, allow: fleetFree}}
	}
	return []phase{
		{name: "low", lasts: 40 * time.Second, rate: 30, allow: fleetFree, settles: 10 * time.Second},
		{name: "high", lasts: 60 * time.Second, rate: 200, allow: fleetFree, settles: 40 * time.Second},
		{name: "saturated", lasts: 135 * time.Second, rate: 170, allow: 10, settles: 110 * time.Second},
		{name: "low again", lasts: 65 * time.Second, rate: 30, allow: fleetFree, settles: 50 * time.Second},
	}
}

// steady is about a time on a machine that may be busy, so it is judged in full only.
func (f *fleet) steady(t *testing.T) {
	t.Helper()
	if !inFull() {
		return
	}
	settled := map[string]time.Duration{}
	for _, p := range fleetPhases() {
		settled[p.name] = p.settles
	}
	n := map[string]int{}
	for _, c := range f.changes {
		if after, ok := settled[c.Phase]; ok && c.in > after {
			n[c.Phase]++
		}
	}
	for name, changes := range n {
		if changes > 1 {
			t.Errorf("%d changes in the steady part of %q: %+v", changes, name, f.changes)
		}
	}
}

// A fleetLoad publishes numbers at a rate that can be changed.
type fleetLoad struct {
	rate      atomic.Int64
	end       chan struct{}
	senders   errgroup.Group
	mu        sync.Mutex
	confirmed []int64
}

func startFleetLoad(t *testing.T, send publish) *fleetLoad {
	t.Helper()
	l := &fleetLoad{end: make(chan struct{})}
	l.rate.Store(1)
	const senders = 4
	for s := range int64(senders) {
		l.senders.Go(func() error {
			for id := s; ; id += senders {
				select {
				case <-l.end:
					return nil
				case <-time.After(senders * time.Second / time.Duration(l.rate.Load())):
				}
				if _, err := send(t.Context(), outgoing{load: "fleet", id: id, body: []byte(strconv.FormatInt(id, 10))}); err != nil {
					continue // unknown: nobody counts on it
				}
				l.mu.Lock()
				l.confirmed = append(l.confirmed, id)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// stop ends the load and returns what was confirmed.
func (l *fleetLoad) stop(t *testing.T) []int64 {
	t.Helper()
	close(l.end)
	if err := l.senders.Wait(); err != nil {
		t.Error(err)
	}
	return l.confirmed
}
