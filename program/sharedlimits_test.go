package program

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestSharedLimits: two processes that read one durable have half each of a limit that they share, and the one that stays has all
// of it.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	dir, port, first, second := t.TempDir(), freePort(t), freePort(t), freePort(t)
	const limited = "routes: [{handler: log, middleware: [{use: rate_limit, name: rate, with: {per_second: 100, shared: true}}, " +
		"{use: concurrency_limit, name: calls, with: {limit: 9, shared: true}}]}]"
	file := func(listen string) string {
		return "admin: {listen: 127.0.0.1:" + listen + "}\n" + embeddedFile(port, limited)
	}
	writeFile(t, dir, "first.yaml", file(first))
	beside := strings.Replace(file(second), "embedded: {port: "+port+"}\n", "", 1)
	writeFile(t, dir, "second.yaml", strings.Replace(beside, "nats: {", `nats: {url: "nats://127.0.0.1:`+port+`", `, 1))
	has := func(listen, part string) func() bool {
		return func() bool {
			limits := fetch("http://127.0.0.1:" + listen + "/consumers/orders/limits")
			metrics := fetch("http://127.0.0.1:" + listen + "/metrics")
			return strings.Contains(limits, `"rate":{"use":"rate_limit","settings":{"burst":1,"per_second":100},"share":`+part+`}`) &&
				strings.Contains(limits, `"calls":{"use":"concurrency_limit","settings":{"limit":9},"share":`+part+`}`) &&
				strings.Contains(metrics, `longshore_handler_limit_share{consumer="orders",limit="calls"} `+part+"\n")
		}
	}
	a := launch(t, dir, "run", "-c", "first.yaml")
	a.eventually(t, "the first has all", has(first, "1"))
	b := launch(t, dir, "run", "-c", "second.yaml")
	b.eventually(t, "the second has half", has(second, "0.5"))
	a.eventually(t, "the first has half", has(first, "0.5"))
	b.signal(t, syscall.SIGTERM)
	if code := b.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, b.stderr.String())
	}
	a.eventually(t, "the first has all again", has(first, "1"))
	http.DefaultClient.CloseIdleConnections()
	a.signal(t, syscall.SIGTERM)
	if code := a.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, a.stderr.String())
	}
}
