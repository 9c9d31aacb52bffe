//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/integration/daemon"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/integration/natsd"
	"github.com/longshoremq/longshore/program"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// hangEnv makes the test binary the command longshore, with a handler more: hang, which never returns.
const hangEnv = "LONGSHORE_TEST_HANG"

func hangMain() {
	handlers.Register("hang", func(*handlers.Setup, handlers.Options) (consumer.Handler, error) {
		return func(context.Context, *consumer.Message) error { select {} }, nil
	})
	program.Main(handlers.Default())
}

// scrapesConfig has a consumer for each thing that dashboard and alerts are to show.
const scrapesConfig = `log: {level: info, format: json}
admin: {listen: "${LONGSHORE_TEST_ADMIN}", token: 0123456789abcdef}
consumers:
  work:
    source: {nats: {url: "%[1]s", stream: WORK, subjects: ["work.>"], durable: work, create_stream: true}}
    pool: {min: 1, max: 8}
    retry: {max_attempts: 3, backoff: {initial: 1s}}
    dead_letter: {to: letters.work, create: true}
    no_route: skip
    routes:
      - {match: "work.ok", handler: webhook, with: {url: "%[2]s/ok"}}
      - {match: "work.bad", handler: webhook, with: {url: "%[2]s/fails"}}
  refused:
    source: {nats: {url: "%[1]s", stream: REFUSED, subjects: ["refused.>"], durable: refused, create_stream: true}}
    retry: {max_attempts: 1}
    dead_letter: {to: nowhere.refused}
    routes: [{handler: webhook, with: {url: "%[2]s/fails"}}]
  away:
    source: {nats: {url: "nats://127.0.0.1:%[4]s", stream: AWAY, durable: away}}
    routes: [{handler: log}]
  waits:
    source: {nats: {url: "%[1]s", stream: WAITS, durable: waits}}
    routes: [{handler: log}]
  breaker:
    source: {nats: {url: "%[1]s", stream: BREAKER, subjects: ["breaker.>"], durable: breaker, create_stream: true}}
    middleware: [{use: circuit_breaker, with: {min_calls: 2, open_for: 5m}}]
    routes: [{handler: webhook, with: {url: "%[2]s/fails"}}]
  stuck:
    source: {nats: {url: "%[1]s", stream: STUCK, subjects: ["stuck.>"], durable: stuck, create_stream: true}}
    timeout: 200ms
    stuck_after: 200ms
    routes: [{handler: hang}]
  lost:
    source: {nats: {url: "%[1]s", stream: LOST, subjects: ["lost.>"], durable: lost, create_stream: true, ack_wait: 1s}}
    routes: [{handler: webhook, with: {url: "%[2]s/freeze"}}]
  halted:
    source: {nats: {url: "%[1]s", stream: HALTED, subjects: ["halted.>"], durable: halted, create_stream: true}}
    routes: [{handler: log}]
  held:
    source: {nats: {url: "%[1]s", stream: HELD, subjects: ["held.>"], durable: held, create_stream: true}}
    routes: [{handler: log}]
  restless:
    source: {nats: {url: "%[1]s", stream: RESTLESS, subjects: ["restless.>"], durable: restless, create_stream: true}}
    routes: [{handler: log}]
  slow:
    source: {nats: {url: "%[1]s", stream: SLOW, subjects: ["slow.>"], durable: slow, create_stream: true, max_ack_pending: 10}}
    pool: {min: 1, max: 1}
    budget: {messages: 8}
    routes: [{handler: webhook, with: {url: "%[2]s/second"}}]
  failing:
    source: {nats: {url: "%[1]s", stream: FAILING, subjects: ["failing.>"], durable: failing, create_stream: true}}
    retry: {backoff: {initial: 1s, max: 1s}}
    routes: [{handler: webhook, with: {url: "%[2]s/fails"}}]
  hung:
    source: {nats: {url: "%[1]s", stream: HUNG, subjects: ["hung.>"], durable: hung, create_stream: true}}
    pool: {min: 1, max: 1}
    budget: {messages: 8}
    routes: [{handler: webhook, with: {url: "%[2]s/never"}}]
  limited:
    source: {kafka: {brokers: ["%[3]s"], topics: [limited], group: limited, start: earliest}}
    middleware: [{use: rate_limit, with: {per_second: 0.1}}]
    routes: [{handler: log}]
  old:
    source: {kafka: {brokers: ["%[3]s"], topics: [old], group: old, start: earliest}}
    order: key
    lane: {limit: 2}
    routes: [{handler: webhook, with: {url: "%[2]s/never"}}]
  later:
    source: {kafka: {brokers: ["%[3]s"], topics: [later], group: later, start: earliest}}
    retry: {max_attempts: 1, backoff: {initial: 1m}}
    routes: [{handler: webhook, with: {url: "%[2]s/fails"}}]
  gap:
    source: {kafka: {brokers: ["%[3]s"], topics: [gap], group: gap, start: earliest}}
    routes: [{handler: log}]
`

// A scrape is what a process answered to Prometheus: a line of the file.
type scrape struct {
	At       int64  `json:"at"` // in milliseconds
	Instance string `json:"instance"`
	Text     string `json:"text"` // empty: it did not answer
}

// scrapes are two processes, and what they answered.
type scrapes struct {
	file      string
	address   [2]string
	processes [2]*process

	mu  sync.Mutex
	all []scrape
}

// TestScrapes writes what two processes of longshore answer to Prometheus, once a second, while all happens that the dashboard
// and the alerts are about, into the file that SCRAPES names; .ci/promtool evaluates the expressions of both on it. That it
// happened is told by the processes' logs, and not by the metrics.
func TestScrapes(t *testing.T) {
	file := os.Getenv("SCRAPES")
	if file == "" {
		t.Skip("SCRAPES names no file: .ci/manifests runs it")
	}
	at := scrapesHook(t)
	n, k := natsd.Start(t), kafkad.Fake(t)
	for _, topic := range []string{"old", "later", "gap", "limited"} {
		if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := startScrapes(t, fmt.Sprintf(scrapesConfig, n.URL(), at, k.Brokers()[0], freePort(t)))
	s.post(t, "halted/pause", "")
	s.post(t, "gap/pause", "")
	end := s.scrapeAll(t)
	makeItHappen(t, s, n, k)
	for _, event := range []string{"skipped", "failed", "dead_lettered", "dead_letter_delayed", "stuck", "source_gap", "lost"} {
		s.awaitEvent(t, event)
	}
	s.restless(t, 340)
	for range 3 {
		s.restart(t, 1)
	}
	s.more(t, 10)
	end()
	s.write(t, file)
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := daemon.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}

// scrapesHook is what webhooks call: its path says what it does.
func scrapesHook(t *testing.T) (url string) {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		takes := map[string]time.Duration{"/ok": 20 * time.Millisecond, "/second": time.Second,
			"/freeze": 8 * time.Second, "/never": time.Hour}[r.URL.Path]
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
		}
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.CloseClientConnections)
	return h.URL
}

func startScrapes(t *testing.T, config string) *scrapes {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &scrapes{file: file}
	for i := range s.processes {
		s.address[i] = "127.0.0.1:" + freePort(t)
		s.run(t, i)
	}
	return s
}

// run starts a process, and waits until it reaches its brokers.
func (s *scrapes) run(t *testing.T, i int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, exec.Command(exe, "run", "-c", s.file), hangEnv+"=1", "LONGSHORE_TEST_ADMIN="+s.address[i])
	s.processes[i] = p
	const up = 15 // consumers that reach their broker
	p.await(t, "is up", func() bool { return p.err.events("source_up") >= up })
}

// restart kills a process, and starts it again when it has ended: until then it has its address. It is scraped after that.
func (s *scrapes) restart(t *testing.T, i int) {
	t.Helper()
	s.processes[i].kill()
	s.run(t, i)
	s.more(t, 2)
}

// events is how many lines of a log tell of an event.
func (l *lines) events(name string) (n int) {
	for _, s := range l.all() {
		if strings.Contains(s, `"event":"`+name+`"`) {
			n++
		}
	}
	return n
}

func (s *scrapes) awaitEvent(t *testing.T, name string) {
	t.Helper()
	eventually(t, "a log tells of "+name, func() bool {
		return s.processes[0].err.events(name)+s.processes[1].err.events(name) > 0
	})
}

// makeItHappen publishes what leads to all of it.
func makeItHappen(t *testing.T, s *scrapes, n *natsd.Server, k *kafkad.Cluster) {
	t.Helper()
	nc, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	until := fmt.Appendf(nil, `{"pause_until": %q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	if _, err := nc.Request("$JS.API.CONSUMER.PAUSE.HELD.held", until, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for subject, times := range map[string]int{"held.x": 3, "work.ok": 500, "work.bad": 3, "work.other": 3,
		"refused.x": 1, "breaker.x": 5, "stuck.x": 1,
		"halted.x": 1, "slow.x": 3000, "failing.x": 20, "hung.x": 100} {
		publishTimes(t, js, subject, times)
	}
	eventually(t, "the second process has something to lose", func() bool {
		publishTimes(t, js, "lost.x", 1)
		return hasSomeToLose.MatchString(s.get(1, "/metrics"))
	})
	if err := s.processes[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil { // longer than a lease: what it has goes to the other
		t.Fatal(err)
	}
	produceOld(t, k)
	if err := k.DeleteRecords(t.Context(), "gap", 0, 5); err != nil {
		t.Fatal(err)
	}
	s.moreOfFirst(t, 4)
	if err := s.processes[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.post(t, "gap/resume", "")
	publishTimes(t, js, "slow.x", 500) // more waits than before
}

// hasSomeToLose is a process that has a message for its slow webhook.
var hasSomeToLose = regexp.MustCompile(`in_flight_messages\{[^}]*"lost"[^}]*\} [1-9]`)

func publishTimes(t *testing.T, js nats.JetStreamContext, subject string, times int) {
	t.Helper()
	for range times {
		if _, err := js.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// produceOld writes what is two hours old, some with one key, and what will be deleted before it is read.
func produceOld(t *testing.T, k *kafkad.Cluster) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	long := time.Now().Add(-2 * time.Hour)
	rs := []*kgo.Record{{Topic: "later", Value: []byte("x")}}
	for range 5 {
		rs = append(rs, &kgo.Record{Topic: "old", Key: []byte("k"), Value: []byte("x"), Timestamp: long},
			&kgo.Record{Topic: "limited", Value: []byte("x"), Timestamp: long})
	}
	for range 10 {
		rs = append(rs, &kgo.Record{Topic: "gap", Value: []byte("x")})
	}
	if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// restless sets the limits of a pool so often that an alert sees it. A counter has a series from its first increment on, and
// what it rose before that was scraped is not in an increase: so those of the first three, up and down, are waited for.
func (s *scrapes) restless(t *testing.T, times int) {
	t.Helper()
	for i := range times {
		if i == 3 {
			s.moreOfFirst(t, 2)
		}
		s.postTo(t, 0, "restless/limits", fmt.Sprintf(`{"min": %d, "max": %[1]d}`, 2+i%2))
		eventually(t, "the pool has as many", func() bool {
			var row struct{ Decision *struct{ To int } }
			return json.Unmarshal([]byte(s.get(0, "/consumers/restless")), &row) == nil && row.Decision != nil && row.Decision.To == 2+i%2
		})
	}
}

func (s *scrapes) post(t *testing.T, path, body string) {
	t.Helper()
	for i := range s.address {
		s.postTo(t, i, path, body)
	}
}

func (s *scrapes) postTo(t *testing.T, i int, path, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+s.address[i]+"/consumers/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer 0123456789abcdef")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s: %s: %s", path, answer.Status, text)
	}
}

// get is what a process answers; empty: it does not.
func (s *scrapes) get(i int, path string) string {
	client := http.Client{Timeout: 900 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + s.address[i] + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// scrapeAll asks both once a second, until end is called.
func (s *scrapes) scrapeAll(t *testing.T) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range s.address {
		asking.Go(func() {
			for tick := time.NewTicker(time.Second); ; {
				at := time.Now().UnixMilli()
				text := s.get(i, "/metrics")
				s.mu.Lock()
				s.all = append(s.all, scrape{at, s.address[i], text})
				s.mu.Unlock()
				select {
				case <-tick.C:
				case <-ctx.Done():
					tick.Stop()
					return
				}
			}
		})
	}
	s.more(t, 2)
	return func() { stop(); asking.Wait() }
}

// taken is how many scrapes of a process it answered.
func (s *scrapes) taken(i int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.Instance == s.address[i] && x.Text != "" {
			n++
		}
	}
	return n
}

// more waits until both were scraped so often again, and moreOfFirst until the first was.
func (s *scrapes) more(t *testing.T, n int) {
	t.Helper()
	first, second := s.taken(0)+n, s.taken(1)+n
	eventually(t, "both are scraped", func() bool { return s.taken(0) >= first && s.taken(1) >= second })
}

func (s *scrapes) moreOfFirst(t *testing.T, n int) {
	t.Helper()
	first := s.taken(0) + n
	eventually(t, "the first is scraped", func() bool { return s.taken(0) >= first })
}

func (s *scrapes) write(t *testing.T, file string) {
	t.Helper()
	var b bytes.Buffer
	for _, x := range s.all {
		if err := json.NewEncoder(&b).Encode(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d scrapes", len(s.all))
}
