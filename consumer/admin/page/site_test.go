package page_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/rs/zerolog"
)

const token = "canary-token-0123456789"

// A world is a consumer on membroker with its page, until the test ends.
type world struct {
	*membroker.Broker
	consumer *consumer.Consumer
	url      string
	log      *buffer
	limit    *fakeLimit
}

// buffer is a log that a test may read meanwhile.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// fakeLimit is a limit of handlers.
type fakeLimit struct {
	mu sync.Mutex
	at map[string]float64
}

// Share is that of one of four processes.
func (l *fakeLimit) Share() (part float64, shared bool) { return 0.25, true }

func (l *fakeLimit) Kind() string { return "rate_limit" }

func (l *fakeLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := map[string]float64{}
	for k, v := range l.at {
		c[k] = v
	}
	return c
}

func (l *fakeLimit) Change(to map[string]float64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, v := range to {
		if v <= 0 {
			return errors.New(k + " must be above 0")
		}
	}
	for k, v := range to {
		l.at[k] = v
	}
	return nil
}

// A setup is what a test wants otherwise.
type setup struct {
	name    string
	token   string
	page    page.Config
	handler consumer.Handler
	topics  map[string]int
	shared  bool // others have their dead letters there, too
	gate    *gate
	missing bool // there is no topic for dead letters
}

// begin starts a world. Its messages of orders fail for good where their payload begins with "bad".
func begin(t *testing.T, s setup) *world {
	t.Helper()
	if s.name == "" {
		s.name = "orders"
	}
	if s.topics == nil {
		s.topics = map[string]int{"orders": 2, "orders-dead": 2}
	}
	if s.handler == nil {
		s.handler = func(_ context.Context, m *consumer.Message) error {
			if strings.HasPrefix(string(m.Value), "bad") {
				return consumer.Permanent(errors.New("cannot be handled: " + string(m.Value[:min(len(m.Value), 100)])))
			}
			return nil
		}
	}
	w := &world{Broker: membroker.New(membroker.Config{Topics: s.topics}), log: &buffer{},
		limit: &fakeLimit{at: map[string]float64{"per_second": 5, "burst": 1}}}
	letters := deadletters.Config{Topic: "orders-dead", Store: w.LogView(), Publisher: w.Publisher()}
	if s.gate != nil {
		s.gate.Publisher = letters.Publisher
		letters.Publisher = s.gate
	}
	ui, only := page.New(s.page), ""
	if s.shared {
		only = s.name
	}
	figures := metrics.New(s.name)
	watch := ui.Watch(s.name, page.Sources{Times: figures,
		Letters: []page.Letters{{Config: letters, Handler: only, Allow: func(context.Context) (func(string) bool, error) {
			return func(topic string) bool { return topic == "orders" }, nil
		}}}})
	var dead broker.Publisher = w.Publisher()
	if s.missing {
		dead = nowhere{dead}
	}
	c, err := consumer.New(consumer.Config{
		Name: s.name, Source: w.Source(membroker.SourceConfig{Topics: []string{"orders"},
			Group: "g"}), Handler: s.handler, Logger: zerolog.Nop(),
		Pool: consumer.Pool{Min: 1, Max: 16}, DeadLetter: &consumer.DeadLetter{Topic: "orders-dead", Publisher: dead},
		Observers: []consumer.Observer{figures.Observe, watch},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.consumer = c
	server, err := admin.New(admin.Config{
		Listen: "127.0.0.1:0", Token: s.token, Targets: map[string]admin.Target{s.name: c},
		Limits: map[string]map[string]admin.Limit{s.name: {"calls": w.limit}},
		Page:   ui, Logger: zerolog.New(w.log),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(server.Addr().String())
	w.url = "http://127.0.0.1:" + port
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	eventually(t, "the consumer runs", func() bool { return c.Stats().State == consumer.Running })
	return w
}

// produce publishes payloads to orders.
func (w *world) produce(t *testing.T, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		if err := w.Produce(broker.Outgoing{Topic: "orders", Key: []byte("key of " + p[:min(len(p), 20)]),
			Value: []byte(p)}); err != nil {
			t.Fatal(err)
		}
	}
}

// deadLetters waits until there are so many.
func (w *world) deadLetters(t *testing.T, n int64) {
	t.Helper()
	eventually(t, "dead letters", func() bool { return w.consumer.Stats().DeadLettered == n })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for over := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(over) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A browser has cookies, and follows no redirect by itself.
type browser struct {
	*http.Client
	t    *testing.T
	base string
}

func (w *world) browser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	return &browser{&http.Client{Jar: jar, Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t, w.url}
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (b *browser) send(r *http.Request) answer {
	b.t.Helper()
	res, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func (b *browser) get(path string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.send(r)
}

func (b *browser) post(path string, form url.Values) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.send(r)
}

// login is a browser that has logged in.
func (w *world) login(t *testing.T) *browser {
	t.Helper()
	b := w.browser(t)
	if a := b.post("/ui/login", url.Values{"token": {token}}); a.status != http.StatusSeeOther {
		t.Fatalf("login: %d %s", a.status, a.body)
	}
	return b
}
