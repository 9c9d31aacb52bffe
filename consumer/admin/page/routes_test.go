package page_test

import (
	"net/http"
	"strings"
	"testing"
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
