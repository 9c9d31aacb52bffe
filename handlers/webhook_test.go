package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// serve starts a server, closed after the test.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// webhook makes one, closed after the test.
func webhook(t testing.TB, c handlers.WebhookConfig) *handlers.Webhook {
	t.Helper()
	w, err := handlers.NewWebhook(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// What the server answers decides about the message, seen from the engine.
func TestWebhookAnswers(t *testing.T) {
	const permanent, acked = -1, 0
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		status     int
		retryAfter string
		want       time.Duration // the wait before the retry, or permanent, or acked
	}{
		{200, "", acked}, {201, "", acked}, {202, "5", acked}, {204, "", acked}, {299, "", acked},
		{300, "", backoff}, {304, "", backoff},
		{400, "", permanent}, {403, "", permanent}, {404, "", permanent}, {409, "", permanent},
		{410, "", permanent}, {413, "", permanent}, {422, "", permanent}, {499, "", permanent},
		{401, "", backoff}, {407, "", backoff}, {401, "7", 7 * time.Second}, // of the login, which all messages have
		{408, "", backoff}, {421, "", backoff}, {425, "", backoff}, {429, "", backoff},
		{413, "0", backoff}, {413, "0.5", backoff}, {413, date(-time.Hour), backoff}, // what is there says: temporary
		{408, "7", 7 * time.Second}, {413, "7", 7 * time.Second}, {425, "7", 7 * time.Second}, {429, "7", 7 * time.Second},
		{500, "", backoff}, {502, "", backoff}, {503, "", backoff}, {504, "", backoff}, {599, "", backoff},
		{500, "7", 7 * time.Second}, {503, "7", 7 * time.Second}, {503, " 7 ", 7 * time.Second},
		// hostile or senseless: the longest wait (2 min here), or the backoff
		{503, "86400", 2 * time.Minute}, {503, "99999999999999999999999", 2 * time.Minute},
		{503, "0", backoff}, {503, "-5", backoff}, {503, "soon", backoff}, {503, "1.5", backoff},
		{503, date(-time.Hour), backoff}, {503, date(24 * time.Hour), 2 * time.Minute}, {503, "Fri, 31 Dec 9999 23:59:59 GMT",
			2 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%d %s", c.status, c.retryAfter), func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			o := handled(t, webhook(t, handlers.WebhookConfig{URL: s.URL, MaxRetryAfter: 2 * time.Minute}).Handle,
				broker.Outgoing{Topic: "in", Value: []byte("x")})
			wait, retried := o.retry()
			switch {
			case c.want == acked && !o.acked, c.want == permanent && !o.permanent(), c.want > 0 && (!retried || wait != c.want):
				t.Errorf("outcome %+v, want %v", o, c.want)
			}
			if refused := c.status == 429 || c.status == 503 && c.retryAfter != ""; o.failed != nil &&
				consumer.IsOverloaded(o.failed.Err) != refused {
				t.Errorf("overloaded: %v, want %v", !refused, refused)
			}
			if o.failed != nil && !strings.Contains(o.failed.Err.Error(), fmt.Sprint("status ", c.status)) {
				t.Errorf("the status is not in the error: %v", o.failed.Err)
			}
		})
	}
}

// A date counts from the answer's own Date: the server's clock may be off by hours.
func TestWebhookRetryAfterDateOfAnotherClock(t *testing.T) {
	clock := time.Now().Add(-5 * time.Hour)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", clock.UTC().Format(http.TimeFormat))
		w.Header().Set("Retry-After", clock.Add(30*time.Second).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	o := handled(t, webhook(t, handlers.WebhookConfig{URL: s.URL}).Handle, broker.Outgoing{Topic: "in"})
	if wait, ok := o.retry(); !ok || wait != 30*time.Second {
		t.Errorf("outcome %+v, want a retry after 30s", o)
	}
}

// What is sent: the payload untouched, and what is known about the message, encoded so that nothing of it can end a header line.
func TestWebhookRequest(t *testing.T) {
	type sent struct {
		method, path string
		header       http.Header
		body         []byte
	}
	got := make(chan sent, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- sent{r.Method, r.URL.RequestURI(), r.Header, body}
	})
	w := webhook(t, handlers.WebhookConfig{URL: s.URL + "/hook?a=b",
		ForwardHeaders: []string{"ce-type", "traceparent", "evil", "Content-Type"},
		Headers:        map[string]broker.Secret{"X-Team": broker.NewSecret("blue")}, BearerToken: broker.NewSecret("token")})
	m := withHeaders(t, "orders", broker.Header{Key: "ce-type", Value: []byte("order.new")},
		broker.Header{Key: "evil", Value: []byte("x\r\nX-Injected: 1")},
		broker.Header{Key: "Content-Type", Value: []byte("application/json; charset=utf-8")}, broker.Header{Key: "private",
			Value: []byte("p")})
	m.Topic, m.Partition, m.Offset, m.Attempt, m.Nanos = "orders.ü", 3, 42, 2, 1e18
	m.Key = []byte("k 100%\r\nX-Injected: 1\x00\xff")
	m.Value = []byte("{\"a\":1}\r\n\x00")
	if err := w.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.method != "POST" || r.path != "/hook?a=b" || string(r.body) != string(m.Value) {
		t.Errorf("sent %s %s %q", r.method, r.path, r.body)
	}
	for name, want := range map[string]string{
		"Longshore-Topic": "orders.%C3%BC", "Longshore-Partition": "3", "Longshore-Offset": "42", "Longshore-Attempt": "2",
		"Longshore-Id":  "orders.%C3%BC/3/42//1000000000000000000",
		"Longshore-Key": "k%20100%25%0D%0AX-Injected:%201%00%FF", "Longshore-Omitted": "evil",
		"Content-Type": "application/json; charset=utf-8", "Ce-Type": "order.new", "Evil": "", "Private": "", "X-Injected": "",
		"X-Team": "blue", "Authorization": "Bearer token", "X-Idempotency-Key": "",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if key, err := url.PathUnescape(r.header.Get("Longshore-Key")); err != nil || key != string(m.Key) {
		t.Errorf("the key decodes to %q, %v", key, err)
	}
	if strings.Contains(fmt.Sprint(r.header), "Keep-Alive") {
		t.Errorf("sent %v", r.header)
	}

	m.Key = []byte(strings.Repeat("\n", 2000)) // 6,000 bytes once encoded
	if err := w.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.header.Get("Longshore-Key") != "" || r.header.Get("Longshore-Omitted") != "key,evil" {
		t.Errorf("long key: %q, omitted %q", r.header.Get("Longshore-Key"), r.header.Get("Longshore-Omitted"))
	}
}

func TestWebhookEmptyPayload(t *testing.T) {
	lengths := make(chan int64, 2)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { lengths <- r.ContentLength })
	w := webhook(t, handlers.WebhookConfig{URL: s.URL})
	if err := w.Handle(t.Context(), &consumer.Message{Topic: "in", Partition: -1, Offset: -1}); err != nil {
		t.Fatal(err)
	}
	if n := <-lengths; n != 0 {
		t.Errorf("Content-Length %d", n)
	}
}

// Network errors are retried, and their text has neither path nor query of the URL.
func TestWebhookNetworkErrors(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	release := make(chan struct{})
	servers := map[string]*httptest.Server{
		"refused": gone,
		"hangs": serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}),
		"resets": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}),
		"speaks nonsense": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, strings.Repeat("\x1b[31mcanary ", 400)+"\r\n\r\n")
			_ = conn.Close()
		}),
		"huge headers": serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }),
	}
	t.Cleanup(func() { close(release) })
	for name, s := range servers {
		t.Run(name, func(t *testing.T) {
			timeout := 20 * time.Second
			if name == "hangs" {
				timeout = 50 * time.Millisecond
			}
			w := webhook(t, handlers.WebhookConfig{URL: s.URL + "/path-canary?q=query-canary", Timeout: timeout})
			o := handled(t, w.Handle, broker.Outgoing{Topic: "in", Value: []byte("x")})
			if wait, ok := o.retry(); !ok || wait != backoff {
				t.Fatalf("outcome %+v, want a retry by backoff", o)
			}
			text := o.failed.Err.Error()
			if strings.Contains(text, "path-canary") || strings.Contains(text, "query-canary") || strings.Contains(text, "\x1b") ||
				len(text) > 400 {
				t.Errorf("error text of %d bytes: %q", len(text), text)
			}
			if name == "hangs" && !strings.Contains(text, "no answer in 50ms") {
				t.Errorf("error %q", text)
			}
			if class := map[bool]string{true: "timeout", false: "error"}[name == "hangs"]; o.failed.Class != class {
				t.Errorf("class %q, want %q: %q", o.failed.Class, class, text)
			}
		})
	}
}

// A server that takes no connection, or says nothing in TLS, is late as one that does not answer is.
func TestWebhookConnectingIsLate(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody speaks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, transport := range map[string]*http.Transport{
		"dial": {DialContext: (&net.Dialer{Timeout: time.Nanosecond}).DialContext},
		"TLS":  {TLSHandshakeTimeout: 20 * time.Millisecond},
	} {
		w := webhook(t, handlers.WebhookConfig{URL: "https://" + silent.Addr().String(), Transport: transport})
		o := handled(t, w.Handle, broker.Outgoing{Topic: "in", Value: []byte("x")})
		if o.failed.Class != "timeout" || !strings.Contains(o.failed.Err.Error(), "timeout") {
			t.Errorf("%s: class %q, error %q", name, o.failed.Class, o.failed.Err)
		}
		if wait, ok := o.retry(); !ok || wait != backoff {
			t.Errorf("%s: outcome %+v, want a retry by backoff", name, o)
		}
	}
}

// endless writes until the client is gone, and counts.
type endless struct {
	written atomic.Int64
	gone    chan struct{}
}

// An answer of 10 MB is not read, and the message is acked all the same: the status was known.
func TestWebhookLargeAnswer(t *testing.T) {
	const size = 10 << 20
	e := endless{gone: make(chan struct{})}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(e.gone)
		block := make([]byte, 32<<10)
		for e.written.Load() < size {
			n, err := w.Write(block)
			e.written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	dial := &countingDialer{}
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, Transport: dial.transport(t)})
	if err := w.Handle(t.Context(), message("in", "x")); err != nil {
		t.Fatal(err)
	}
	<-e.gone
	if n := dial.read.Load(); n > 1<<20 {
		t.Errorf("%d bytes were read from the connection", n)
	}
	t.Logf("read %d bytes of an answer of %d", dial.read.Load(), size)
}

// countingDialer counts connections and what is read from them.
type countingDialer struct {
	dials, read atomic.Int64
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (d *countingDialer) transport(t testing.TB) *http.Transport {
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		d.dials.Add(1)
		return countingConn{conn, &d.read}, nil
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// An answer whose body never ends does not hold the worker until the timeout.
func TestWebhookBodyThatHangs(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, Timeout: time.Hour})
	if err := w.Handle(t.Context(), message("in", "x")); err != nil {
		t.Errorf("the server has accepted it: %v", err)
	}
}

// A server that changes the protocol without being asked, and then says nothing, holds no worker. It held one for ever, since no
// timeout ends a read of what is a bare connection by then.
func TestWebhookProtocolThatChanges(t *testing.T) {
	gone := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(io.Discard, conn) // until the other side hangs up
	})
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, Timeout: 2 * time.Second})
	result := make(chan error, 1)
	go func() { result <- w.Handle(t.Context(), message("in", "x")) }()
	select {
	case err := <-result:
		if err == nil || consumer.IsPermanent(err) || !strings.Contains(err.Error(), "status 101") {
			t.Errorf("want a retry for status 101, got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the worker is held")
	}
	<-gone
}

// Connections are used again: by the built-in transport, and after answers with a body.
func TestWebhookReusesConnections(t *testing.T) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, strings.Repeat("ok", 1000))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	setup := &handlers.Setup{MaxWorkers: 50}
	h, err := handlers.Default().Build("webhook", setup,
		handlers.NewOptions(map[string]any{"url": s.URL, "max_idle_connections": 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer setup.Close()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if err := h(t.Context(), message("in", "x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 250 { // net/http dials a few that it does not need; without reuse it is about 1,000
		t.Errorf("%d connections for 1,000 requests by 50 workers", n)
	}
}

// Redirects: only such that repeat the POST, and only on the same host.
func TestWebhookRedirects(t *testing.T) {
	var stolen atomic.Int64
	other := serve(t, func(http.ResponseWriter, *http.Request) { stolen.Add(1) })
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/here", http.StatusPermanentRedirect) // https to http
	}))
	t.Cleanup(secure.Close)
	var body string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			b, _ := io.ReadAll(r.Body)
			body = r.Method + " " + string(b) + " " + r.Header.Get("Authorization")
		case "/307", "/308", "/301", "/302", "/303":
			var status int
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
			http.Redirect(w, r, "/here", status)
		case "/other":
			http.Redirect(w, r, other.URL+"/secret-place", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/malformed":
			w.Header().Set("Location", "http://%zz/canary")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	for _, c := range []struct {
		url      string
		followed bool
	}{
		{s.URL + "/307", true}, {s.URL + "/308", true}, {s.URL + "/301", false}, {s.URL + "/302", false}, {s.URL + "/303", false},
		{s.URL + "/other", false}, {s.URL + "/loop", false}, {s.URL + "/malformed", false}, {secure.URL, false},
	} {
		t.Run(c.url[strings.LastIndex(c.url, "/"):], func(t *testing.T) {
			body = ""
			cfg := handlers.WebhookConfig{URL: c.url, BearerToken: broker.NewSecret("token")}
			if c.url == secure.URL {
				cfg.Transport = secure.Client().Transport
			}
			o := handled(t, webhook(t, cfg).Handle, broker.Outgoing{Topic: "in", Value: []byte("payload")})
			if c.followed {
				if !o.acked || body != "POST payload Bearer token" {
					t.Errorf("outcome %+v, the target got %q", o, body)
				}
				return
			}
			if wait, ok := o.retry(); !ok || wait != backoff || body != "" {
				t.Errorf("outcome %+v, the target got %q; want a retry", o, body)
			}
			if text := o.failed.Err.Error(); strings.Contains(text, "secret-place") {
				t.Errorf("the place is in the error: %s", text)
			}
		})
	}
	if n := stolen.Load(); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
}

// A webhook behind a redirect costs two requests a message, and keeps its connection.
func TestWebhookRedirectsKeepTheConnection(t *testing.T) {
	var posts atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/here" {
			w.Header().Set("Location", "/here")
			w.WriteHeader(http.StatusTemporaryRedirect)
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}
	})
	dial := &countingDialer{}
	w := webhook(t, handlers.WebhookConfig{URL: s.URL + "/hook", Transport: dial.transport(t)})
	for range 50 {
		if err := w.Handle(t.Context(), message("in", "x")); err != nil {
			t.Fatal(err)
		}
	}
	if posts.Load() != 100 || dial.dials.Load() != 1 {
		t.Errorf("50 messages: %d requests on %d connections, want 100 on 1", posts.Load(), dial.dials.Load())
	}
}

// Three redirects are followed, each from where the one before led; the fourth is the answer.
func TestWebhookRedirectsAreCounted(t *testing.T) {
	for last, want := range map[string]string{"3": "/0 /1 /2 /3", "4": "/0 /1 /2 /3"} {
		var paths []string
		w := webhook(t, handlers.WebhookConfig{URL: "https://h/0", Transport: answering(func(r *http.Request) *http.Response {
			body, _ := io.ReadAll(r.Body)
			if paths = append(paths, r.URL.Path); string(body) != "payload" || r.ContentLength != 7 || r.Host != "h" {
				t.Errorf("%s got %q, %d bytes, host %q", r.URL, body, r.ContentLength, r.Host)
			}
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
			if n, _ := strconv.Atoi(r.URL.Path[1:]); r.URL.Path[1:] != last {
				answer.StatusCode = http.StatusPermanentRedirect
				answer.Header.Set("Location", strconv.Itoa(n+1)) // relative
			}
			return answer
		})})
		err := w.Handle(t.Context(), message("in", "payload"))
		if got := strings.Join(paths, " "); got != want || (err == nil) != (last == "3") || consumer.IsPermanent(err) {
			t.Errorf("up to %s: asked %s, error %v", last, got, err)
		}
	}
}

// answering answers each request.
type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

// A host may be written in several ways, with its port or in capitals: a redirect to it is one on the same host.
func TestWebhookRedirectsToTheSameHost(t *testing.T) {
	for to, followed := range map[string]bool{
		"https://hooks.example:443/b": true, "https://Hooks.Example/b": true, "https://hooks.example:8443/b": false,
		"https://other.example/b": false, "http://hooks.example/b": false, "https://hooks.example.other/b": false,
	} {
		var got string
		transport := answering(func(r *http.Request) *http.Response {
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
			if r.URL.Path == "/a" {
				answer.StatusCode = http.StatusTemporaryRedirect
				answer.Header.Set("Location", to)
			} else {
				got = r.URL.Path + " " + r.Header.Get("Authorization")
			}
			return answer
		})
		cfg := handlers.WebhookConfig{URL: "https://hooks.example/a", BearerToken: broker.NewSecret("token"), Transport: transport}
		o := handled(t, webhook(t, cfg).Handle, broker.Outgoing{Topic: "in", Value: []byte("payload")})
		if o.acked != followed || (got == "/b Bearer token") != followed {
			t.Errorf("a redirect to %s: followed %v, want %v; there came %q", to, o.acked, followed, got)
		}
	}
}

// From http to https the credentials go along where the port says that it is the same server: 80 and 443, or one number. To
// another port of the host, which may be anybody's, they do not, nor where that leads; the message does.
func TestWebhookRedirectsWithoutCredentials(t *testing.T) {
	for name, c := range map[string]struct{ from, to, then, want string }{
		"80 to 443":       {"http://h/", "https://h/", "", "Bearer token, key"},
		"with the ports":  {"http://h:80/", "https://h:443/", "", "Bearer token, key"},
		"one port":        {"http://h:8080/", "https://h:8080/", "", "Bearer token, key"},
		"another port":    {"http://h/", "https://h:8443/", "", ", "},
		"from another":    {"http://h:8080/", "https://h/", "", ", "},
		"and on it":       {"http://h:8080/", "https://h:8443/", "https://h:8443/b", ", "},
		"after the right": {"http://h/", "https://h/", "https://h/b", "Bearer token, key"},
	} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			w := webhook(t, handlers.WebhookConfig{URL: c.from, AllowInsecureAuth: true, BearerToken: broker.NewSecret("token"),
				Headers: map[string]broker.Secret{"x-key": broker.NewSecret("key")}, ForwardHeaders: []string{"ce-type"},
				Transport: answering(func(r *http.Request) *http.Response {
					answer := &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{}}
					switch r.URL.String() {
					case c.from:
						answer.Header.Set("Location", c.to)
						if r.Header.Get("Authorization") == "" || r.Header.Get("X-Key") == "" {
							t.Error("the first request has no credentials")
						}
					case c.then, c.to:
						if got = r.Header; r.URL.String() == c.to && c.then != "" {
							answer.Header.Set("Location", c.then)
						} else {
							answer.StatusCode = http.StatusOK
						}
					}
					return answer
				})})
			m := withHeaders(t, "orders", broker.Header{Key: "ce-type", Value: []byte("order.new")})
			if err := w.Handle(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if with := got.Get("Authorization") + ", " + got.Get("X-Key"); with != c.want {
				t.Errorf("the credentials are %q, want %q", with, c.want)
			}
			if got.Get("Ce-Type") != "order.new" || got.Get("Longshore-Topic") != "orders" || got.Get("Content-Type") == "" {
				t.Errorf("what is said of the message: %v", got)
			}
		})
	}
}

// The context's end ends the request, and the error says why.
func TestWebhookContext(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	w := webhook(t, handlers.WebhookConfig{URL: s.URL})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Handle(ctx, message("in", "x")) }()
	<-arrived
	cancel(consumer.ErrShutdown)
	if err := <-done; !errors.Is(err, consumer.ErrShutdown) {
		t.Errorf("error %v", err)
	}
}

// A server that closes idle connections at the wrong moment costs no attempt.
func TestWebhookRepeatsOnAStaleConnection(t *testing.T) {
	var n atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 2 { // the second request, on the connection of the first
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		}
	})
	w := webhook(t, handlers.WebhookConfig{URL: s.URL})
	for range 2 {
		if err := w.Handle(t.Context(), message("in", "x")); err != nil {
			t.Error(err)
		}
	}
	if n.Load() != 3 {
		t.Errorf("%d requests, want 3", n.Load())
	}
}

func ExampleWebhook() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.Header.Get("Longshore-Topic"), string(body))
		w.WriteHeader(http.StatusUnprocessableEntity)
	}))
	defer s.Close()
	w, err := handlers.NewWebhook(handlers.WebhookConfig{URL: s.URL, BearerToken: broker.NewSecret("s3cr3t")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	err = w.Handle(context.Background(), &consumer.Message{Topic: "orders", Value: []byte("hello")})
	fmt.Println("dead-lettered at once:", consumer.IsPermanent(err))
	// Output:
	// POST orders hello
	// dead-lettered at once: true
}

// A transportFunc is a transport in a test.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWebhookPlainTransport: an answer without a body is one, as for an http.Client, and no answer at all is an error.
func TestWebhookPlainTransport(t *testing.T) {
	for name, c := range map[string]struct {
		answer *http.Response
		acked  bool
	}{
		"no body": {&http.Response{StatusCode: 204}, true}, "refused, no body": {&http.Response{StatusCode: 500}, false},
		"nothing": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := webhook(t, handlers.WebhookConfig{URL: "http://127.0.0.1/", Transport: transportFunc(
				func(*http.Request) (*http.Response, error) { return c.answer, nil })})
			if err := w.Handle(t.Context(), &consumer.Message{Topic: "orders", Value: []byte("x")}); (err == nil) != c.acked {
				t.Errorf("%v", err)
			}
		})
	}
}
