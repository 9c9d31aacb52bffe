package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/prometheus/client_golang/prometheus"
)

// TestIndex: who has only the address is told what can be asked for, and that is what the docs tell.
func TestIndex(t *testing.T) {
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": &fakeTarget{}, "mails": &fakeTarget{}},
		Gatherer: prometheus.NewRegistry()})
	a := get(t, url+"/")
	if a.status != 200 || !strings.HasPrefix(a.body, "longshore\nconsumers: mails, orders\n\n") {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	docs, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("`, `…/resume`", "`\n| `POST /consumers/NAME/resume`").Replace(string(docs))
	lines := regexp.MustCompile(`(?m)^(GET|POST) +(/\S*) `).FindAllStringSubmatch(a.body, -1)
	for _, l := range lines {
		request := l[1] + " " + strings.NewReplacer("{name}", "NAME", "{limit}", "LIMIT").Replace(l[2])
		if !strings.Contains(text, "\n| `"+request+"`") {
			t.Errorf("docs/admin.md does not have %s", request)
		}
		if path := strings.Replace(l[2], "{name}", "orders", 1); l[1] == "GET" && get(t, url+path).status != 200 {
			t.Errorf("GET %s: %d", path, get(t, url+path).status)
		}
	}
	if len(lines) < 9 {
		t.Errorf("%d requests:\n%s", len(lines), a.body)
	}
}

// TestConsumers: all at once, by name.
func TestConsumers(t *testing.T) {
	busy := &fakeTarget{stats: consumer.Stats{InFlight: 7}}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": busy, "mails": &fakeTarget{down: true}}})
	var all struct {
		Consumers []struct {
			Consumer string
			Ready    bool
			InFlight int64 `json:"in_flight"`
		}
	}
	a := get(t, url+"/consumers")
	if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.status != 200 || len(all.Consumers) != 2 {
		t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	mails, orders := all.Consumers[0], all.Consumers[1]
	if mails.Consumer != "mails" || mails.Ready || orders.Consumer != "orders" || !orders.Ready || orders.InFlight != 7 {
		t.Errorf("%s", a.body)
	}
}

// fakePage answers with what it was given.
type fakePage struct {
	setup admin.PageSetup
	ran   chan struct{}
}

func (p *fakePage) Handler(s admin.PageSetup) http.Handler {
	p.setup = s
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "page %s %d %v", r.URL.Path, n, err)
	})
}

func (p *fakePage) Run(ctx context.Context) { <-ctx.Done(); close(p.ran) }

// TestPage: it has all below /ui/, with bodies that the rest refuses, and is where a browser is led; it is told what the server
// has, and its end is waited for.
func TestPage(t *testing.T) {
	orders := &fakeTarget{}
	p := &fakePage{ran: make(chan struct{})}
	t.Run("served", func(t *testing.T) {
		_, at := serve(t, admin.Config{Token: token, Targets: map[string]admin.Target{"orders": orders}, Page: p})
		if p.setup.Token != token || p.setup.Targets["orders"] != orders {
			t.Errorf("the page was told %+v", p.setup)
		}
		large := strings.Repeat("x", 100<<10)
		for path, want := range map[string]string{"/ui/": "page /ui/ 102400 <nil>", "/ui/c/orders": "page /ui/c/orders 102400 <nil>"} {
			if a := ask(t, request(t, http.MethodPost, at+path, large)); a.body != want ||
				a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("POST %s: %d %q", path, a.status, a.body)
			}
		}
		for _, path := range []string{"/ui/../livez", "/ui//", "/ui/./", "/uix", "/ui"} {
			r := request(t, http.MethodGet, at+"/", "")
			r.URL.Path = path
			if a := ask(t, r); strings.HasPrefix(a.body, "page") {
				t.Errorf("GET %s: %d %q", path, a.status, a.body)
			}
		}
		r := request(t, http.MethodGet, at+"/", "")
		r.Header.Set("Accept", "text/html,application/xhtml+xml")
		if a := ask(t, r); a.status != http.StatusSeeOther || a.header.Get("Location") != "/ui/" {
			t.Errorf("a browser: %d %q", a.status, a.header.Get("Location"))
		}
		if a := get(t, at+"/"); a.status != 200 || !strings.Contains(a.body, "GET  /ui/ ") {
			t.Errorf("no browser: %d %s", a.status, a.body)
		}
		r = request(t, http.MethodGet, at+"/ui/", "")
		r.Host = "evil.example"
		if a := ask(t, r); a.status != http.StatusMisdirectedRequest {
			t.Errorf("by another name: %d", a.status)
		}
	})
	<-p.ran
	_, at := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders}})
	if a := get(t, at+"/ui/"); a.status != http.StatusNotFound {
		t.Errorf("without a page: %d", a.status)
	}
}
