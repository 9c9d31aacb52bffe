package program

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestLimitsAreChangedWhileItRuns: a rate that holds a consumer up is raised on the admin address, and what waits goes on.
func TestLimitsAreChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	dir, port, listen := t.TempDir(), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", "admin: {listen: 127.0.0.1:"+listen+", token: "+token+"}\n"+embeddedFile(port,
		"middleware: [{use: rate_limit, with: {per_second: 0.001}}]",
		"routes: [{handler: log, middleware: [{use: recover}, {use: circuit_breaker, name: disk}, {use: concurrency_limit, name: "+
			"log, with: {limit: 2}}]}]"))
	run := launch(t, dir, "run", "-c", "c.yaml")
	at := "http://127.0.0.1:" + listen
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch(at+"/readyz"), "200") })
	if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "50", "--rate", "0"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	run.eventually(t, "one handled", func() bool {
		return strings.Contains(fetch(at+"/metrics"), "\nlongshore_handled_messages_total{consumer=\"orders\"} 1\n")
	})
	post := func(limit, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/consumers/orders/limits/"+limit,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if code := post("log", `{"limit": 0}`); code != 400 {
		t.Errorf("a limit of 0: %d", code)
	}
	for limit, body := range map[string]string{"middleware.0": `{"per_second": 10000}`, "log": `{"limit": 9}`} {
		if code := post(limit, body); code != 200 {
			t.Errorf("%s: %d", limit, code)
		}
	}
	run.eventually(t, "50 handled", func() bool { // counted first, and then their ages
		metrics := fetch(at + "/metrics")
		return strings.Contains(metrics, "\nlongshore_handled_messages_total{consumer=\"orders\"} 50\n") &&
			strings.Contains(metrics, "\nlongshore_end_to_end_seconds_count{consumer=\"orders\"} 50\n")
	})
	metrics, limits := fetch(at+"/metrics"), fetch(at+"/consumers/orders/limits")
	for _, want := range []string{`limit="middleware.0",setting="per_second"} 10000`, `limit="log",setting="limit"} 9`,
		`longshore_circuit_breaker_state{breaker="disk",consumer="orders",state="closed"} 1`,
		`longshore_route_duration_seconds_count{consumer="orders",handler="log",outcome="ok",route="0"} 50`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
	for _, want := range []string{`"middleware.0":{"use":"rate_limit","settings":{"burst":1,"per_second":10000}}`,
		`"log":{"use":"concurrency_limit","settings":{"limit":9}}`} {
		if !strings.Contains(limits, want) {
			t.Errorf("%s is not in %s", want, limits)
		}
	}
	if one := fetch(at + "/consumers/orders"); !strings.Contains(one, `"breakers":{"disk":{"state":"closed","open_since":null}}`) {
		t.Errorf("the breaker is not in %s", one)
	}
	http.DefaultClient.CloseIdleConnections()
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
}

func TestNamesOfLimits(t *testing.T) {
	const head = "consumers:\n  o:\n    source: {nats: {stream: S, subjects: [a], durable: d}}\n    routes: [{handler: log}]\n    " +
		"middleware:\n"
	const rate = "use: rate_limit, with: {per_second: 1}"
	for _, c := range []struct{ list, want string }{
		{"      - {" + rate + "}\n      - {name: a-1, " + rate + "}\n", "<nil>"},
		{"      - {name: a, " + rate + "}\n      - {name: a, " + rate +
			"}\n", `c.yaml:7: consumers.o.middleware[1].name: is "a", and so is that of another limit`},
		{"      - {name: a.b, " + rate + "}\n", "c.yaml:6: consumers.o.middleware[0].name: want 1 to 63 letters"},
		{"      - {name: a, use: recover}\n",
			"c.yaml:6: consumers.o.middleware[0].name: is set, and the middleware has nothing that can be changed"},
	} {
		if got := checkFile(t, head+c.list); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.list, got, c.want)
		}
	}
}
