package admin_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/pool"
	"github.com/rs/zerolog"
)

// fakeLimit refuses what is called "odd".
type fakeLimit struct {
	mu       sync.Mutex
	settings map[string]float64
}

func (l *fakeLimit) Kind() string { return "rate_limit" }

func (l *fakeLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.settings)
}

func (l *fakeLimit) Change(to map[string]float64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range to {
		if _, ok := l.settings[name]; !ok {
			return errors.New(name + ": is no setting")
		}
	}
	maps.Copy(l.settings, to)
	return nil
}

// A sharedLimit is shared with three others.
type sharedLimit struct{ *fakeLimit }

func (sharedLimit) Share() (part float64, shared bool) { return 0.25, true }

func TestLimits(t *testing.T) {
	var log buffer
	l := &fakeLimit{settings: map[string]float64{"per_second": 5, "burst": 2}}
	open := &fakeLimit{settings: map[string]float64{"per_second": math.Inf(1)}}
	shared := sharedLimit{&fakeLimit{settings: map[string]float64{"limit": 40}}}
	orders := &fakeTarget{stats: consumer.Stats{Pool: pool.Stats{Min: 1, Max: 64}}}
	_, url := serve(t, admin.Config{Targets: map[string]admin.Target{"orders": orders, "mails": &fakeTarget{}}, Token: token,
		Logger: zerolog.New(&log),
		Limits: map[string]map[string]admin.Limit{"orders": {"routes.0.middleware.1": l, "open": open, "shared": shared}}})
	post := func(path, body, bearer string) answer {
		r := request(t, "POST", url+path, body)
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		return ask(t, r)
	}
	const path = "/consumers/orders/limits/routes.0.middleware.1"
	for _, c := range []struct {
		path, body, bearer string
		status             int
		want               string
	}{
		{path, `{"per_second": 1}`, "", 401, "token"},
		{path, `{"per_second": 1}`, "wrong-token-0123456789", 401, "token"},
		{path, `{"per_second": 50.5, "burst": 10}`, token, 200, `{"ok":true}`},
		{path, `{"odd": 1}`, token, 400, "odd: is no setting"},
		{path, `{"burst": "10"}`, token, 400, "burst: want a number"},
		{path, `{"burst": null}`, token, 400, "burst: want a number"},
		{path, `{"burst": 1e999}`, token, 400, "burst: want a number"},
		{path, `[]`, token, 400, "want an object with some of burst, per_second"},
		{path, ``, token, 400, "want an object with some of burst, per_second"},
		{path, `{"burst": 1} {}`, token, 400, "nothing after it"},
		{path, `{"burst": 1, "burst": 2}`, token, 400, `"burst" is there twice`},
		{"/consumers/orders/limits", `{"min": 1, "max": 2, "Max": 64}`, token, 400, `"Max" is there twice`},
		{path, `{"burst": 1, "x": "` + strings.Repeat("x", 5000) + `"}`, token, 413, "too large"},
		{"/consumers/orders/limits/other", `{"burst": 1}`, token, 404, "no such limit; there are: open, routes.0.middleware.1, shared"},
		{"/consumers/mails/limits/other", `{"burst": 1}`, token, 404, "no such limit"},
		{"/consumers/none/limits/other", `{"burst": 1}`, token, 404, "no such consumer"},
	} {
		if a := post(c.path, c.body, c.bearer); a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s %.60s: %d %q, want %d %q", c.path, c.body, a.status, a.body, c.status, c.want)
		}
	}
	a := ask(t, request(t, "GET", url+"/consumers/orders/limits", ""))
	var got, want any
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"workers": {"min": 1, "max": 64}, "handlers": {
		"open": {"use": "rate_limit", "settings": {"per_second": null}},
		"shared": {"use": "rate_limit", "settings": {"limit": 40}, "share": 0.25},
		"routes.0.middleware.1": {"use": "rate_limit", "settings": {"per_second": 50.5, "burst": 10}}}}`), &want)
	if a.status != 200 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if text := log.String(); strings.Count(text, `"event":"admin_control"`) != 1 ||
		!strings.Contains(text, `"limit":"routes.0.middleware.1"`) ||
		!strings.Contains(text, `"settings":{"burst":10,"per_second":50.5}`) || strings.Contains(text, token) {
		t.Errorf("log:\n%s", text)
	}
	if a := ask(t, request(t, "GET", url+"/consumers/none/limits", "")); a.status != 404 {
		t.Errorf("limits of no consumer: %d", a.status)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	_, err := admin.New(admin.Config{Targets: targets(),
		Limits: map[string]map[string]admin.Limit{"orders": {"a/b": &fakeLimit{}, "nil": nil}, "none": {}}})
	for _, want := range []string{`Limits["none"] is of no target`, `Limits["orders"]["a/b"] has no name`,
		`Limits["orders"]["nil"]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
