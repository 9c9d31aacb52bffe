package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const canary = "canary-91f0a3d77c"

// guardedNATS is a server that wants a password, which replace changes, as for a reload of its configuration.
func guardedNATS(t *testing.T) (url string, replace func(password string) error) {
	t.Helper()
	port, err := strconv.Atoi(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Username: "longshore", Password: canary}
	s, err := server.NewServer(options.Clone())
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL(), func(password string) error {
		changed := options.Clone()
		changed.Password = password
		return s.ReloadOptions(changed)
	}
}

// control sends one to the admin address, with the token of TestCanary.
func control(t *testing.T, url, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+canary+"-token")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// TestCanary runs the program with a secret in every field that holds one, lets things go wrong, and looks for it wherever the
// program speaks. A message's header and subject with escapes and HTML reach no terminal as they are (bad input b27).
func TestCanary(t *testing.T) {
	t.Parallel()
	url, _ := guardedNATS(t)
	dir, port := t.TempDir(), freePort(t)
	var hooked atomic.Value
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hooked.Store(r.Header.Get("Authorization") + " " + r.Header.Get("X-Key"))
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	defer hook.Close()
	writeFile(t, dir, "password", canary+"\n")
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s", token: %s-token}
log: {level: trace}
consumers:
  orders:
    source:
      nats: {url: "%s", stream: ORDERS, subjects: ["orders.>"], durable: workers, create_stream: true,
        user: longshore, password_file: %s}
    retry: {max_attempts: 2, backoff: {initial: 10ms}}
    dead_letter: {to: dead.orders}
    drain_timeout: 1s
    middleware: [{use: logging, with: {level: trace}}]
    routes:
      - {match: orders.hook, handler: webhook, with: {url: "%s/%s", bearer_token: %s, headers: {X-Key: %s}}}
      - {match: orders.exec, handler: exec, with: {command: [sh, -c, "test $KEY = %s && exit 3"], env: {KEY: %s}}}
      - {handler: log, with: {headers: [X-Odd]}}
  wrong:
    source: {nats: {url: "nats://longshore:%s-wrong@%s", stream: ORDERS, durable: other}}
    open_timeout: 20s
    routes: [{handler: log}]
`, port, canary, url, filepath.Join(dir, "password"), hook.URL, canary, canary, canary, canary, canary, canary,
		strings.TrimPrefix(url, "nats://")))
	check := launch(t, dir, "config", "check", "c.yaml")
	if code := check.code(t); code != 0 {
		t.Fatal(check.stderr.String())
	}
	bad := launch(t, dir, "run", "-c", "c.yaml") // wrong ends it
	if code := bad.code(t); code != 1 || !strings.Contains(bad.stderr.String(), "Authorization Violation") {
		t.Errorf("a wrong password: exit code %d\n%s", code, bad.stderr.String())
	}
	text := readFile(t, dir, "c.yaml")
	writeFile(t, dir, "c.yaml", text[:strings.Index(text, "  wrong:")])
	run := launch(t, dir, "run", "-c", "c.yaml")
	admin := "http://127.0.0.1:" + port
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch(admin+"/readyz"), "200") })
	publishOdd(t, url)
	run.eventually(t, "both have failed for good", func() bool {
		return strings.Contains(fetch(admin+"/metrics"),
			"\nlongshore_dead_letter_delays_total{consumer=\"orders\",refused=\"yes\"} 2\n")
	})
	if got := hooked.Load(); got != "Bearer "+canary+" "+canary {
		t.Errorf("the webhook got %q", got)
	}
	if code := control(t, admin+"/consumers/orders/limits", `{"min": 2, "max": 8}`); code != 200 {
		t.Errorf("limits: %d", code)
	}
	run.eventually(t, "new limits", func() bool {
		return strings.Contains(fetch(admin+"/metrics"), "\nlongshore_workers_limit{bound=\"max\",consumer=\"orders\"} 8\n")
	})
	spoken := []string{check.stdout.String(), check.stderr.String(), bad.stderr.String(), fetch(admin + "/metrics"),
		fetch(admin + "/livez"), fetch(admin + "/readyz")}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	log := run.stderr.String()
	wantJSONLines(t, log)
	if !strings.Contains(log, `X-Odd`) || strings.ContainsAny(log, "\x1b\x07") {
		t.Errorf("the odd header is missing, or is not escaped:\n%q", log)
	}
	for _, out := range append(spoken, log) {
		if strings.Contains(out, canary) {
			t.Errorf("the canary is out:\n%s", out)
		}
	}
}

// publishOdd publishes a message for each route.
func publishOdd(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.UserInfo("longshore", canary))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"orders.hook", "orders.exec", "orders.<script>"} {
		m := nats.NewMsg(subject)
		m.Header.Set("X-Odd", "\x1b[31m<script>\x07")
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// A handler's secret that stands in a file which others can read is warned of, with its line.
func TestOpenFileIsWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  o:
    source: {nats: {stream: S, subjects: [s], durable: d}}
    routes:
      - {handler: exec, with: {command: ["true"], env: {KEY: canary, OTHER: "${HOME}"}}}
`)
	file := filepath.Join(dir, "c.yaml")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), "config", "check", file)
	if err != nil || !strings.Contains(out, "c.yaml:5: consumers.o.routes[0].with.env.KEY: warning: is a secret, and ") ||
		strings.Contains(out, "OTHER") {
		t.Errorf("%v\n%s", err, out)
	}
}

// cured waits until a source that is down, and says why, has found its broker again after password_file has another password. The
// log has no password.
func (p *program) cured(t *testing.T, why, dir string) {
	t.Helper()
	p.eventually(t, "it is down, and says why", func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			if strings.Contains(line, `"event":"source_down"`) && strings.Contains(line, why) {
				return true
			}
		}
		return false
	})
	ups := strings.Count(p.stderr.String(), `"event":"source_up"`)
	writeFile(t, dir, "password", canary+"-next\n")
	p.eventually(t, "it is up again", func() bool { return strings.Count(p.stderr.String(), `"event":"source_up"`) > ups })
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 || strings.Contains(p.stderr.String(), canary) {
		t.Errorf("exit code %d, or the canary is out:\n%s", code, p.stderr.String())
	}
}

// A password that is replaced while the program runs, at the server and then in password_file, needs no restart.
func TestPasswordFileIsReadAgain(t *testing.T) {
	t.Parallel()
	url, replace := guardedNATS(t)
	dir := t.TempDir()
	writeFile(t, dir, "password", canary+"\n")
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  orders:
    source:
      nats: {url: "%s", stream: ORDERS, subjects: ["orders.>"], durable: workers, create_stream: true,
        user: longshore, password_file: password}
    routes: [{handler: log}]
`, url))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if err := replace(canary + "-next"); err != nil {
		t.Fatal(err)
	}
	run.cured(t, "authorization violation", dir)
}
