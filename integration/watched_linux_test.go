package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestKillWatched: SIGKILL of one of two programs, again and again, while all who look at them misbehave: tabs with the page, a
// flood of requests, connections that never say or never read anything, a scaler that is killed and frozen, a collector of traces
// that hangs and hangs up. None of that may lose a message, or make more duplicates.
func TestKillWatched(t *testing.T) {
	kills := lengths(6, 20)
	onEach(t, func(t *testing.T, k kind) {
		variant(t)
		f := newField(t, k.start(t), wholeProgram)
		w := watch(t, f)
		row := killRow{Row: "sigkill_watched", Discipline: wholeProgram, Kills: kills}
		a := f.runKills(t, row, func(f *field, t *testing.T, i int) {
			f.killConsumer(t, i)
			w.hurt(t, i)
		})
		w.stop()
		a.mustSurvive(t, kills, lengths(k.perKill(killRate/2), killWorkers))
		seen := map[string]int64{"pages": w.pages.Load(), "floods": w.floods.Load(), "answers of the scaler": w.needs.Load(),
			"exports": w.exports.Load(), "exports that hung": w.hung.Load(), "exports that were refused": w.refused.Load()}
		for what, n := range seen {
			if n == 0 {
				t.Errorf("no %s: the run proves nothing", what)
			}
		}
		t.Logf("%v; watched by %v", a, seen)
	})
}

// A watchers is everybody who looks at the programs of a field.
type watchers struct {
	consumer string
	port     string
	latest   atomic.Int64 // the last program that was started
	client   http.Client

	file, path string
	scalerHTTP string
	scaler     *process

	collector atomic.Int64 // how it behaves: 0 well, 1 it hangs, 2 it refuses
	exports   atomic.Int64
	hung      atomic.Int64
	refused   atomic.Int64

	pages, floods, needs atomic.Int64

	end  context.Context
	over context.CancelFunc
	wg   sync.WaitGroup
}

// watch gives the field's programs an admin address and a collector, and begins to look at them.
func watch(t *testing.T, f *field) *watchers {
	t.Helper()
	w := &watchers{consumer: f.config.Group, port: fleetPort(t), scalerHTTP: "127.0.0.1:" + fleetPort(t),
		client: http.Client{Timeout: 5 * time.Second}}
	w.end, w.over = context.WithCancel(context.Background())
	t.Cleanup(w.stop)
	collector := httptest.NewServer(http.HandlerFunc(w.collect))
	t.Cleanup(collector.Close)
	var all *programs
	f.start = func(t *testing.T) *process {
		if all == nil { // with the configuration of the first start
			all = newPrograms(t, f.config, fmt.Sprintf("admin: {listen: \"${%s}\"}\ntracing: {endpoint: %q, sample: 1}\n", fleetAdmin,
				collector.URL))
			all.env = func(n int) []string { return []string{fleetAdmin + "=" + w.address(n)} }
			w.file, w.path = all.file, all.path
			w.startScaler(t)
			w.begin()
		}
		p := all.start(t)
		w.latest.Store(int64(all.n))
		return p
	}
	return w
}

// address is the admin address of the nth program.
func (w *watchers) address(n int) string { return fmt.Sprintf("127.0.1.%d:%s", n, w.port) }

func (w *watchers) begin() {
	for range 3 {
		w.again(200*time.Millisecond, w.page)
	}
	for i := range 4 {
		w.again(5*time.Millisecond, func() { w.flood(i) })
	}
	for range 16 {
		w.again(100*time.Millisecond, func() { w.silent("") })
		w.again(100*time.Millisecond, func() { w.silent("GET /ui/c/" + w.consumer + " HTTP/1.1\r\nHost: x\r\n") })
		w.again(100*time.Millisecond, func() { w.silent("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") })
	}
	w.again(200*time.Millisecond, w.ask)
}

// again does something until the end, with a pause in between.
func (w *watchers) again(pause time.Duration, do func()) {
	w.wg.Go(func() {
		for w.end.Err() == nil {
			do()
			select {
			case <-w.end.Done():
			case <-time.After(pause):
			}
		}
	})
}

func (w *watchers) stop() {
	w.over()
	w.wg.Wait()
	w.client.CloseIdleConnections()
}

// get reads a page and says whether it was there.
func (w *watchers) get(url string) bool {
	r, err := http.NewRequestWithContext(w.end, http.MethodGet, "http://"+url, nil)
	if err != nil {
		return false
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK
}

// page is a tab: the page and then what it asks for again and again, at both programs.
func (w *watchers) page() {
	n := int(w.latest.Load())
	for _, n := range []int{n, n - 1} {
		if w.get(w.address(n)+"/ui/c/"+w.consumer) && w.get(w.address(n)+"/ui/c/"+w.consumer+"/live") && w.get(w.address(n)+"/ui/") {
			w.pages.Add(1)
		}
	}
}

func (w *watchers) flood(i int) {
	paths := []string{"/metrics", "/consumers", "/ui/events", "/livez"}
	if w.get(w.address(int(w.latest.Load())) + paths[i%len(paths)]) {
		w.floods.Add(1)
	}
}

// silent connects, says so much, and neither says nor reads more for a while.
func (w *watchers) silent(said string) {
	var d net.Dialer
	conn, err := d.DialContext(w.end, "tcp", w.address(int(w.latest.Load())))
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, said)
	select {
	case <-w.end.Done():
	case <-time.After(3 * time.Second):
	}
}

// ask asks the scaler.
func (w *watchers) ask() {
	if w.get(w.scalerHTTP + "/scaler/" + w.consumer) {
		w.needs.Add(1)
	}
}

// collect is the collector of traces.
func (w *watchers) collect(rw http.ResponseWriter, r *http.Request) {
	switch w.collector.Load() {
	case 0:
		_, _ = io.Copy(io.Discard, r.Body)
		w.exports.Add(1)
	case 1:
		w.hung.Add(1)
		select {
		case <-w.end.Done():
		case <-r.Context().Done():
		}
	default:
		w.refused.Add(1)
		if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			conn.Close()
		}
	}
}

func (w *watchers) startScaler(t *testing.T) {
	t.Helper()
	args := []string{"scaler", "-c", w.file, "--listen", "127.0.0.1:0", "--http", w.scalerHTTP, "--every", "1s"}
	for n := range 64 {
		args = append(args, "--processes", w.address(n+1))
	}
	w.scaler = startCommand(t, exec.Command(w.path, args...), fleetAdmin+"="+w.address(0), programEnv+"="+strconv.Itoa(0))
}

// hurt kills or freezes the scaler, and lets the collector behave in another way once it was asked.
func (w *watchers) hurt(t *testing.T, i int) {
	t.Helper()
	asked := []*atomic.Int64{&w.exports, &w.hung, &w.refused}
	eventually(t, "the collector was asked", func() bool { return asked[i%3].Load() > 0 })
	w.collector.Store(int64(i+1) % 3)
	switch i % 3 {
	case 0:
		w.scaler.signal(t, syscall.SIGSTOP)
	case 1:
		w.scaler.signal(t, syscall.SIGCONT)
	default:
		w.scaler.kill()
		w.startScaler(t)
	}
}
