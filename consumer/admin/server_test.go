package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/pool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const token = "canary-token-0123456789"

// fakeTarget is a consumer whose health a test chooses, and which keeps what was asked of it.
type fakeTarget struct {
	mu     sync.Mutex
	health error
	panics any // what Health does; nil: it does not
	down   bool
	calls  []string
	refuse error
	stats  consumer.Stats

	running []consumer.Call
	parked  []consumer.ParkedMessage
}

func (f *fakeTarget) Calls(int) []consumer.Call           { return f.running }
func (f *fakeTarget) Parked(int) []consumer.ParkedMessage { return f.parked }

func (f *fakeTarget) Stats() consumer.Stats { return f.stats }

func (f *fakeTarget) Health(noProgress time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics != nil {
		panic(f.panics)
	}
	return f.health
}

func (f *fakeTarget) Ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.down
}

func (f *fakeTarget) call(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
	return f.refuse
}

func (f *fakeTarget) Pause() error  { return f.call("pause") }
func (f *fakeTarget) Resume() error { return f.call("resume") }
func (f *fakeTarget) SetLimits(least, most int) error {
	return f.call(fmt.Sprintf("limits %d %d", least, most))
}

func (f *fakeTarget) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, ", ")
}

// fakeBreaker is a circuit breaker.
type fakeBreaker struct {
	state string
	since time.Time
}

func (b fakeBreaker) State() string        { return b.state }
func (b fakeBreaker) OpenSince() time.Time { return b.since }

// buffer is a log that a test may read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// serve runs a server until the test ends.
func serve(t *testing.T, cfg admin.Config) (s *admin.Server, url string) {
	t.Helper()
	return serveAs(t, cfg, func(*http.Server) {})
}

// serveAs is serve of a server that is changed before it runs.
func serveAs(t *testing.T, cfg admin.Config, change func(*http.Server)) (s *admin.Server, url string) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	s, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	change(s.HTTP())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	return s, "http://127.0.0.1:" + port
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, r *http.Request) answer {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t *testing.T, url string) answer { return ask(t, request(t, "GET", url, "")) }

// post sends a control with the right token.
func post(t *testing.T, url, body string) answer {
	r := request(t, "POST", url, body)
	r.Header.Set("Authorization", "Bearer "+token)
	return ask(t, r)
}

func TestLivezNamesTheConsumerAndWhy(t *testing.T) {
	orders, mails := &fakeTarget{}, &fakeTarget{}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders, "mails": mails}})
	if a := get(t, url+"/livez"); a.status != 200 || a.body != "ok\n" {
		t.Errorf("all is well: %d %q", a.status, a.body)
	}
	orders.mu.Lock()
	orders.health = errors.New("no progress for 31s, lag 12 <script>")
	orders.mu.Unlock()
	a := get(t, url+"/livez")
	if a.status != 503 || !strings.Contains(a.body, "orders: no progress for 31s, lag 12") || strings.Contains(a.body, "mails") {
		t.Errorf("orders is unhealthy: %d %q", a.status, a.body)
	}
	if a.header.Get("Content-Type") != "text/plain; charset=utf-8" || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a reason could be taken for a page: %v", a.header)
	}
}

func TestReadyz(t *testing.T) {
	orders := &fakeTarget{}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders}})
	if a := get(t, url+"/readyz"); a.status != 200 {
		t.Errorf("ready: %d %q", a.status, a.body)
	}
	orders.mu.Lock()
	orders.down = true
	orders.mu.Unlock()
	if a := get(t, url+"/readyz"); a.status != 503 || !strings.HasPrefix(a.body, "orders: ") {
		t.Errorf("not ready: %d %q", a.status, a.body)
	}
}

// A worried target is ready, and has something to tell all the same.
type worried struct{ *fakeTarget }

func (worried) Concerns() []string { return []string{"nothing can be published to dead"} }

func TestReadyzTellsConcerns(t *testing.T) {
	orders := worried{&fakeTarget{}}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders, "mails": &fakeTarget{}}})
	if a := get(t, url+"/readyz"); a.status != 200 || a.body != "ok\norders: nothing can be published to dead\n" {
		t.Errorf("ready: %d %q", a.status, a.body)
	}
	if a := get(t, url+"/livez"); a.status != 200 || a.body != "ok\n" {
		t.Errorf("alive: %d %q", a.status, a.body)
	}
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a_metric", Help: "It is 7."}, func() float64 { return 7 }))
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": &fakeTarget{}}, Gatherer: r})
	if a := get(t, url+"/metrics"); a.status != 200 || !strings.Contains(a.body, "\na_metric 7\n") {
		t.Errorf("%d %q", a.status, a.body)
	}
	_, url = serve(t, admin.Config{Targets: map[string]admin.Target{"orders": &fakeTarget{}}})
	if a := get(t, url+"/metrics"); a.status != 404 {
		t.Errorf("without a gatherer: %d", a.status)
	}
}

func TestControls(t *testing.T) {
	orders := &fakeTarget{}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders, "mails": &fakeTarget{}}, Token: token})
	for _, step := range []struct{ path, body string }{
		{"/consumers/orders/pause", ""}, {"/consumers/orders/resume", ""}, {"/consumers/orders/limits", `{"min": 2, "max": 9}`},
	} {
		if a := post(t, url+step.path, step.body); a.status != 200 || a.body != "{\"ok\":true}\n" {
			t.Errorf("%s: %d %q", step.path, a.status, a.body)
		}
	}
	if got := orders.called(); got != "pause, resume, limits 2 9" {
		t.Errorf("orders was told %q", got)
	}
	orders.mu.Lock()
	orders.refuse = errors.New("limits 9..2, want min <= max")
	orders.mu.Unlock()
	if a := post(t, url+"/consumers/orders/limits", `{"min": 9, "max": 2}`); a.status != 400 ||
		!strings.Contains(a.body, "want min <= max") {
		t.Errorf("refused limits: %d %q", a.status, a.body)
	}
	if a := post(t, url+"/consumers/orders/pause", ""); a.status != 409 {
		t.Errorf("a pause that did not work: %d %q", a.status, a.body)
	}
}

// TestRunSecondsAtTheirEnd: nanoseconds of thousands of workers are more than an int64 holds within weeks. The counter begins
// again then, as after a restart, and is never negative.
func TestRunSecondsAtTheirEnd(t *testing.T) {
	for work, want := range map[time.Duration]string{math.MinInt64: "0", math.MinInt64 + time.Minute: "60",
		math.MaxInt64: "9223372036.854776"} {
		_, url := serve(t, admin.Config{Targets: map[string]admin.Target{
			"orders": &fakeTarget{stats: consumer.Stats{Pool: pool.Stats{Work: work}}}}})
		if a := get(t, url+"/consumers/orders"); !strings.Contains(a.body, `"run_seconds":`+want+`,`) {
			t.Errorf("%d ns: want %s in %s", int64(work), want, a.body)
		}
	}
}

// TestConsumer: who paused a consumer yesterday sees it today, without a token, as in the metrics.
func TestConsumer(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	orders := &fakeTarget{stats: consumer.Stats{
		State: consumer.Running, Paused: true, InFlight: 5, Parked: 2, PutOff: 1, Waiting: 6,
		FullLanes: 1, Claims: 3, Lag: broker.Lag{Waiting: 12, Unsettled: 17,
			At: at}, LastProgress: at,
		Pool: pool.Stats{Min: 1, Max: 8, Live: 3, Busy: 2, Stuck: 1, Backlog: 1, Done: 7, Work: 1500 * time.Millisecond,
			Decisions: 1, Last: pool.Decision{From: 1, Target: 3, Reason: pool.ReasonLimit, Detail: "fixed", At: at}},
		Handled: 7, Skipped: 9, Failed: 3, DeadLettered: 2, LettersDelayed: 4,
	}}
	mails := &fakeTarget{down: true, stats: consumer.Stats{
		State: consumer.Opening, Lag: broker.UnknownLag(), InFlight: 3, Parked: 2, PutOff: 2, AtLimit: 2}}
	own := &fakeTarget{down: true, stats: mails.stats}
	own.stats.AtLimit = 1 // the other waits for a time of its handler's
	shared := map[string]admin.Limit{"calls": sharedLimit{&fakeLimit{}}}
	both := map[string]admin.Limit{"calls": sharedLimit{&fakeLimit{}}, "rate": &fakeLimit{}}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders, "mails": mails, "own": own},
		Limits: map[string]map[string]admin.Limit{"orders": both, "mails": shared, "own": shared},
		Breakers: map[string]map[string]admin.Breaker{"orders": {"bills": fakeBreaker{"half-open", at}, "stock": fakeBreaker{"closed",
			time.Time{}}}}})
	for name, want := range map[string]string{
		"orders": `{"consumer":"orders","state":"running","paused":true,"ready":true,"limits":{"min":1,"max":8},"workers":{"busy":2,` +
			`"idle":1,"stuck":1},` +
			`"in_flight":5,"queued":1,"parked":2,"put_off":1,"lane_waiting":6,"full_lanes":1,"claims":3,"runs":7,"run_seconds":1.5,` +
			`"handled":7,"skipped":9,"failed":3,"dead_lettered":2,"dead_letters_delayed":4,"decision":{"from":1,"to":3,` +
			`"reason":"limit",` +
			`"why":"at a limit: fixed","at":"2026-03-01T12:00:00Z"},"lag":12,"unsettled":17,"lag_at":"2026-03-01T12:00:00Z",` +
			`"last_progress":"2026-03-01T12:00:00Z",` +
			`"breakers":{"bills":{"state":"half-open","open_since":"2026-03-01T12:00:00Z"},"stock":{"state":"closed",` +
			`"open_since":null}},"at_shared_limit":false}`,
		"mails": `{"consumer":"mails","state":"opening","paused":false,"ready":false,"limits":{"min":0,"max":0},"workers":{"busy":0,` +
			`"idle":0,"stuck":0},` +
			`"in_flight":3,"queued":0,"parked":2,"put_off":2,"lane_waiting":0,"full_lanes":0,"claims":0,` +
			`"runs":0,"run_seconds":0,"handled":0,"skipped":0,"failed":0,"dead_lettered":0,"dead_letters_delayed":0,"decision":null,` +
			`"lag":null,"unsettled":null,"lag_at":null,"last_progress":null,"breakers":{},"at_shared_limit":true}`,
	} {
		a := get(t, url+"/consumers/"+name)
		if a.status != 200 || strings.TrimSpace(a.body) != want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v\n%s want\n%s", name, a.status, a.header.Get("Content-Type"), a.body, want)
		}
	}
	if a := get(t, url+"/consumers/own"); !strings.Contains(a.body, `"put_off":2,`) ||
		!strings.Contains(a.body, `"at_shared_limit":false`) {
		t.Errorf("put off by its handler: %s", a.body)
	}
	if a := get(t, url+"/consumers/other"); a.status != 404 || !strings.Contains(a.body, "mails, orders, own") {
		t.Errorf("an unknown one: %d %q", a.status, a.body)
	}
}

// TestControlsAreLogged: what was asked for and done, and at another level what was refused, by whom.
func TestControlsAreLogged(t *testing.T) {
	log := &buffer{}
	orders := &fakeTarget{}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders}, Token: token, Logger: zerolog.New(log)})
	post(t, url+"/consumers/orders/limits", `{"min": 2, "max": 9}`)
	orders.mu.Lock()
	orders.refuse = errors.New("want min <= max")
	orders.mu.Unlock()
	post(t, url+"/consumers/orders/limits", `{"min": 9, "max": 2}`)
	begin := time.Now()
	for range 30 {
		ask(t, request(t, "POST", url+"/consumers/canary-name/pause", ""))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, want := range [][]string{
		{`"level":"info"`, `"event":"admin_control"`, `"consumer":"orders"`, `"remote":"127.0.0.1:`, `"min":2`, `"max":9`},
		{`"level":"warn"`, `"event":"admin_refused"`, `"consumer":"orders"`, `"status":400`, `"min":9`, `"max":2`,
			`"error":"want min <= max"`},
		{`"level":"warn"`, `"event":"admin_refused"`, `"route":"POST /consumers/{name}/pause"`, `"remote":"127.0.0.1:`, `"status":401`,
			"the token is missing or wrong"},
	} {
		for _, w := range want {
			if len(lines) <= i || !strings.Contains(lines[i], w) {
				t.Fatalf("line %d has no %s in\n%s", i, w, log)
			}
		}
	}
	if most := 10 * (int(time.Since(begin).Seconds()) + 2); len(lines) > 1+most || strings.Contains(log.String(), "canary") {
		t.Errorf("%d lines; what strangers name is in the log, or the token:\n%s", len(lines), log)
	}
}

func TestConfigNamesEveryMistake(t *testing.T) {
	_, err := admin.New(admin.Config{Listen: "8080", Token: "canary-short", MaxConnections: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Listen", "Token", "Targets", "MaxConnections"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the token is shown: %v", err)
	}
}

func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := admin.New(admin.Config{Listen: l.Addr().String(), Targets: map[string]admin.Target{"orders": &fakeTarget{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Run: %v", err)
	}
}

// TestPanicTellsNothing: the client gets a 500 without what is inside, the log gets it, and the server lives. Of an error, which
// what the runtime finds is, the log had {}.
func TestPanicTellsNothing(t *testing.T) {
	for what, p := range map[string]any{"a text": "secret inside", "an error": errors.New("secret inside")} {
		log := &buffer{}
		orders := &fakeTarget{panics: p}
		_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders}, Logger: zerolog.New(log)})
		if a := get(t, url+"/livez"); a.status != 500 || a.body != "internal error\n" {
			t.Errorf("%s: %d %q", what, a.status, a.body)
		}
		if !strings.Contains(log.String(), "secret inside") {
			t.Errorf("%s: not in the log: %s", what, log)
		}
		if a := get(t, url+"/readyz"); a.status != 200 {
			t.Errorf("%s, afterwards: %d", what, a.status)
		}
	}
}
