package page_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestPages: each page is there for everybody, under the policy, and not kept by a browser.
func TestPages(t *testing.T) {
	w := begin(t, setup{token: token})
	w.produce(t, "good", "bad one")
	w.deadLetters(t, 1)
	b := w.browser(t)
	eventually(t, "the page was told", func() bool { // the figures know a moment before
		return strings.Contains(b.get("/ui/events/live").body, "dead_lettered")
	})
	for path, want := range map[string]string{
		"/ui/": "<h1>Consumers</h1>", "/ui/live": `id="live-overview"`, "/ui/events": "dead_lettered",
		"/ui/events/live": "dead_lettered", "/ui/login": `name="token"`,
		"/ui/c/orders": "Why it has so many workers", "/ui/c/orders?span=24h": "the last 24 hours",
		"/ui/c/orders/live":    `id="live-tables"`,
		"/ui/c/orders/letters": "1 letters in orders-dead", "/ui/c/orders/job": `id="job"`,
	} {
		a := b.get(path)
		if a.status != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("GET %s: %d, want 200 with %q:\n%s", path, a.status, want, a.body)
		}
		if p := a.header.Get("Content-Security-Policy"); !strings.Contains(p, "script-src 'self';") || strings.Contains(p, "unsafe") {
			t.Errorf("GET %s: policy %q", path, p)
		}
		if c := a.header.Get("Cache-Control"); c != "no-store" {
			t.Errorf("GET %s: Cache-Control %q", path, c)
		}
	}
	for _, path := range []string{"/ui/c/none", "/ui/nothing", "/ui/static/x/page.css", "/ui/c/orders/letters/0/99", "/ui"} {
		if a := b.get(path); a.status != http.StatusNotFound && path != "/ui" {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

// zeros are bytes of a body, as many as somebody reads.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += len(p)
	return len(p), nil
}

// TestBodiesAreBounded: whatever a request that nobody has to log in for has as its body, little of it is read. A form with files
// was, of a GET, into memory and onto the disk, for as long as it came.
func TestBodiesAreBounded(t *testing.T) {
	const most, is = 1 << 20, "multipart/form-data; boundary=b"
	h := letterPage(t, func(*page.Letters) {}, "one")
	for _, part := range []string{`name="span"`, `name="token"`, `name="file"; filename="f"`} {
		for _, to := range []string{"GET /ui/", "GET /ui/live", "GET /ui/events", "GET /ui/login", "POST /ui/login", "POST /ui/logout",
			"GET /ui/c/orders", "GET /ui/c/orders/live", "GET /ui/c/orders/letters", "GET /ui/c/orders/letters/0/0",
			"GET /ui/c/orders/job", "POST /ui/c/orders/pause", "POST /ui/c/orders/letters/0/0", "POST /ui/c/orders/replay"} {
			body := &zeros{}
			method, path, _ := strings.Cut(to, " ")
			r := httptest.NewRequest(method, path, io.MultiReader(strings.NewReader("--b\r\nContent-Disposition: form-data; "+part+
				"\r\n\r\n"), io.LimitReader(body, 64<<20)))
			r.Header.Set("Content-Type", is)
			a := httptest.NewRecorder()
			if h.ServeHTTP(a, r); body.read > most || a.Code >= 500 {
				t.Errorf("%s: %d, of %s %d bytes were read", to, a.Code, part, body.read)
			}
		}
	}
}
