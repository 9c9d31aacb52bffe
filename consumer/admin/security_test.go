package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/rs/zerolog"
)

func targets() map[string]admin.Target { return map[string]admin.Target{"orders": &fakeTarget{}} }

// registerElse is what a package does that was imported for something else: net/http's own server has its handler.
var registerElse = sync.OnceFunc(func() {
	http.HandleFunc("/registered-by-somebody-else", func(http.ResponseWriter, *http.Request) {})
})

// TestOddRequests is bad input b28: what the server has not is 404, what it does not do is 405, what is too much is 413.
func TestOddRequests(t *testing.T) {
	registerElse()
	_, url := serve(t, admin.Config{Targets: targets(), Token: token})
	large := strings.Repeat("x", 5000)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "//", "", 404},
		{"POST", "/", "", 405},
		{"POST", "/consumers", "", 405},
		{"GET", "/consumers/", "", 404},
		{"GET", "/nothing", "", 404},
		{"GET", "/livez/", "", 404},
		{"GET", "/../livez", "", 404},
		{"GET", "/consumers/../livez", "", 404},
		{"GET", "/consumers/%2e%2e/livez", "", 404},
		{"GET", "/livez//", "", 404},
		{"GET", "/debug/pprof/", "", 404},
		{"GET", "/registered-by-somebody-else", "", 404},
		{"POST", "/livez", "", 405},
		{"DELETE", "/readyz", "", 405},
		{"OPTIONS", "/livez", "", 405},
		{"TRACE", "/livez", "", 405},
		{"GET", "/consumers/orders/pause", "", 405},
		{"PUT", "/consumers/orders/limits", "", 405},
		{"POST", "/consumers/none/pause", "", 404},
		{"POST", "/consumers/orders/restart", "", 404},
		{"POST", "/consumers/orders/limits", "", 400},
		{"POST", "/consumers/orders/limits", "no JSON", 400},
		{"POST", "/consumers/orders/limits", `{"min": 1}`, 400},
		{"POST", "/consumers/orders/limits", `{"min": 1, "max": 2, "maximum": 3}`, 400},
		{"POST", "/consumers/orders/limits", `{"min": "1", "max": 2}`, 400},
		{"POST", "/consumers/orders/limits", `{"min": 1, "max": 99999999999999999999}`, 400},
		{"POST", "/consumers/orders/limits", `{"min": 1, "max": 2} {}`, 400},
		{"POST", "/consumers/orders/limits", `{"min": 1, "max": 2, "x": "` + large + `"}`, 413},
		{"GET", "/livez", large, 413},
	} {
		r := request(t, c.method, url, c.body)
		r.URL.Opaque = c.path // as it is, unescaped and not cleaned
		r.Header.Set("Authorization", "Bearer "+token)
		a := ask(t, r)
		if a.status != c.want {
			t.Errorf("%s %s %.40q: %d %q, want %d", c.method, c.path, c.body, a.status, a.body, c.want)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Security-Policy") == "" ||
			a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: security headers are missing: %v", c.method, c.path, a.header)
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Location") != "" {
			t.Errorf("%s %s: %v", c.method, c.path, a.header)
		}
	}
}

// TestBodyOfUnknownLength: a body that does not say how long it is ends at the limit, too.
func TestBodyOfUnknownLength(t *testing.T) {
	_, url := serve(t, admin.Config{Targets: targets(), Token: token})
	r := request(t, "POST", url+"/consumers/orders/limits", "")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"min": 1, "max": 2`), strings.NewReader(strings.Repeat(" ", 1<<20)),
		strings.NewReader("}")))
	r.ContentLength = -1
	r.Header.Set("Authorization", "Bearer "+token)
	if a := ask(t, r); a.status != 413 {
		t.Errorf("%d %q", a.status, a.body)
	}
}

func TestToken(t *testing.T) {
	log := &buffer{}
	orders := &fakeTarget{}
	cfg := admin.Config{Targets: map[string]admin.Target{"orders": orders}, Token: token, Logger: zerolog.New(log)}
	_, url := serve(t, cfg)
	for header, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer " + token[:len(token)-1]: 401, "Bearer " + token +
			"x": 401, "Bearer wrong": 401,
		"Basic " + token: 401, token: 401, "Bearer  " + token: 401, "Bearer " + token: 200, "bearer " + token: 200,
	} {
		r := request(t, "POST", url+"/consumers/orders/pause", "")
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		a := ask(t, r)
		if a.status != want {
			t.Errorf("Authorization %q: %d, want %d", header, a.status, want)
		}
		if strings.Contains(a.body, "canary") {
			t.Errorf("the token is in the answer: %q", a.body)
		}
	}
	if got := orders.called(); got != "pause, pause" {
		t.Errorf("orders was told %q", got)
	}
	if strings.Contains(log.String(), "canary") {
		t.Errorf("the token is in the log: %s", log)
	}

	cfg.Token = ""
	_, url = serve(t, cfg)
	for _, header := range []string{"", "Bearer ", "Bearer " + token} {
		r := request(t, "POST", url+"/consumers/orders/pause", "")
		r.Header.Set("Authorization", header)
		if a := ask(t, r); a.status != 403 {
			t.Errorf("without a token configured, Authorization %q: %d", header, a.status)
		}
	}
	if got := orders.called(); got != "pause, pause" {
		t.Errorf("orders was told %q although no token is configured", got)
	}
}

// TestHostMustBeLoopback: a web page that rebinds its name to 127.0.0.1 is refused.
func TestHostMustBeLoopback(t *testing.T) {
	s, url := serve(t, admin.Config{Targets: targets()})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST": 200, "[::1]:" + port: 200, "127.0.0.2": 200,
		"evil.example": 421, "evil.example:" + port: 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "10.0.0.7": 421,
	} {
		r := request(t, "GET", url+"/livez", "")
		r.Host = host
		if a := ask(t, r); a.status != want {
			t.Errorf("Host %q: %d, want %d", host, a.status, want)
		}
	}
	_, url = serve(t, admin.Config{Targets: targets(), Listen: "0.0.0.0:0"}) // opened on purpose: probes come by any name
	r := request(t, "GET", url+"/livez", "")
	r.Host = "pod-7.svc"
	if a := ask(t, r); a.status != 200 {
		t.Errorf("opened: %d", a.status)
	}
}

func TestDefaultIsLoopback(t *testing.T) {
	host, _, err := net.SplitHostPort(admin.DefaultListen)
	if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
		t.Errorf("the default address is %s", admin.DefaultListen)
	}
}

func TestTimeoutsAndBounds(t *testing.T) {
	s, _ := serve(t, admin.Config{Targets: targets()})
	h := s.HTTP()
	got := fmt.Sprint(h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout, h.MaxHeaderBytes)
	if want := fmt.Sprint(5*time.Second, 10*time.Second, 30*time.Second, time.Minute, 16<<10); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestHeadersTooLarge: the answer is 431, which the reset of a connection with unread bytes may overtake; in no case is it
// served.
func TestHeadersTooLarge(t *testing.T) {
	s, _ := serve(t, admin.Config{Targets: targets()})
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, werr := fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	line, rerr := bufio.NewReader(c).ReadString('\n')
	if !strings.Contains(line, " 431 ") && werr == nil && rerr == nil {
		t.Errorf("%q", line)
	}
}

// TestHalfOpenRequestsGoAway: 200 clients that never finish their headers are gone in time, and meanwhile a probe gets its
// answer.
func TestHalfOpenRequestsGoAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ReadHeaderTimeout, 5 s")
	}
	s, url := serve(t, admin.Config{Targets: targets()})
	gone := make(chan error, 200)
	for i := range cap(gone) {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Number: %d", i); err != nil {
			t.Fatal(err)
		}
		go func() { gone <- waitClosed(c) }()
	}
	if a := get(t, url+"/livez"); a.status != 200 {
		t.Errorf("a probe meanwhile: %d", a.status)
	}
	deadline := time.After(30 * time.Second)
	for i := range cap(gone) {
		select {
		case err := <-gone:
			if err != nil {
				t.Error(err)
			}
		case <-deadline:
			t.Fatalf("%d of %d half-open requests are still there", cap(gone)-i, cap(gone))
		}
	}
}

// waitClosed waits until the other side has closed.
func waitClosed(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Second))
	_, err := io.Copy(io.Discard, c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return err
	}
	return nil
}
