package admin_test

import (
	"encoding/json"
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
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": &fakeTarget{}, "mails": &fakeTarget{}}, Gatherer: prometheus.NewRegistry()})
	a := get(t, url+"/")
	if a.status != 200 || !strings.HasPrefix(a.body, "longshore\nconsumers: mails, orders\n\n") {
		t.Fatalf("%d\n%s", a.status, a.body)
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("`, `…/resume`", "`\n| `POST /consumers/NAME/resume`").Replace(string(docs))
	lines := regexp.MustCompile(`(?m)^(GET|POST) +(/\S*) `).FindAllStringSubmatch(a.body, -1)
	for _, l := range lines {
		request := l[1] + " " + strings.NewReplacer("{name}", "NAME", "{limit}", "LIMIT").Replace(l[2])
		if !strings.Contains(text, "\n| `"+request+"`") {
			t.Errorf("docs/operations.md does not have %s", request)
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
