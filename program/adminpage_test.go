package program

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestPageOfAProgram: what run serves knows the decisions, the broker's lag and the dead letters of a file's consumer, on both
// brokers.
func TestPageOfAProgram(t *testing.T) {
	t.Parallel()
	_, kafka := startKafka(t, kfake.SeedTopics(1, "orders", "dead.orders"))
	port := freePort(t)
	for name, source := range map[string]string{
		"nats":  "source: {nats: {stream: ORDERS, subjects: [orders.>], durable: w}}",
		"kafka": fmt.Sprintf("source: {kafka: {brokers: [%q], topics: [orders], group: w}}", kafka),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, at := t.TempDir(), freePort(t)
			writeFile(t, dir, "c.yaml", "admin: {listen: '127.0.0.1:"+at+
				"', token: 0123456789abcdef, ui: {payloads: true}}\nembedded: {dir: "+filepath.Join(dir, "data")+", port: "+port+"}\n"+
				"consumers:\n  orders:\n    "+source+"\n    retry: {max_attempts: 1}\n    dead_letter: {to: dead.orders}\n    routes: "+
				"[{handler: exec, with: {command: [\"false\"]}}]\n"+
				"  other:\n    "+strings.Replace(source, ": w}", ": other}", 1)+"\n    dead_letter: {to: dead.orders}\n"+
				"    routes: [{handler: log}]\n")
			run := launch(t, dir, "run", "-c", "c.yaml")
			url := "http://127.0.0.1:" + at
			run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch(url+"/readyz"), "200") })
			produce := []string{"produce", "--count", "3", "--data", "payload {{.Index}}"}
			if name == "kafka" {
				produce = append(produce, "--brokers", kafka)
			} else {
				produce = append(produce, "--url", "nats://127.0.0.1:"+port)
			}
			if p := launch(t, dir, produce...); p.code(t) != 0 {
				t.Fatal(p.stderr.String())
			}
			run.eventually(t, "three letters", func() bool { return metric(at, "dead_lettered_messages_total", "orders", 3) })
			run.eventually(t, "the broker's lag", func() bool {
				body := fetch(url + "/ui/c/orders")
				return strings.Contains(body, map[string]string{"nats": "<td>ORDERS w</td>", "kafka": "<td>orders 0</td>"}[name])
			})
			run.eventually(t, "the list", func() bool {
				return strings.Contains(fetch(url+"/ui/c/orders/letters"),
					"3 letters of orders in dead.orders")
			})
			run.eventually(t, "the list of the other one", func() bool {
				return strings.Contains(fetch(url+"/ui/c/other/letters"), "0 letters of other in dead.orders")
			})
			run.eventually(t, "the events", func() bool { return strings.Contains(fetch(url+"/ui/events"), "dead_lettered") })
			member := loggedIn(t, url)
			run.eventually(t, "a plan that allows the origin", func() bool {
				res, err := member.PostForm(url+"/ui/c/orders/replay", map[string][]string{"scope": {"all"}})
				if err != nil {
					return false
				}
				defer func() { _ = res.Body.Close() }()
				body, _ := io.ReadAll(res.Body)
				return strings.Contains(string(body), "3 letters would be replayed")
			})
		})
	}
}

// loggedIn is a client with a session of the page.
func loggedIn(t *testing.T, at string) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.PostForm(at+"/ui/login", url.Values{"token": {"0123456789abcdef"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return c
}
