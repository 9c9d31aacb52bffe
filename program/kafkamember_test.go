package program

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// gauge is the value of one, or "" where it is absent.
func gauge(admin, name, consumer string) string {
	all := regexp.MustCompile(fmt.Sprintf(`(?m)^longshore_%s\{consumer=%q[^}]*\} (\S+)$`, name,
		consumer)).FindAllStringSubmatch(fetch("http://127.0.0.1:"+admin+"/metrics"), -1)
	if all == nil {
		return ""
	}
	sum := 0.0
	for _, m := range all {
		v, _ := strconv.ParseFloat(m[1], 64)
		sum += v
	}
	return strconv.FormatFloat(sum, 'f', -1, 64)
}

// TestMemberWithoutPartitions: where there are more processes than partitions, those that wait are alive and ready, also while
// messages wait for the other; and they take over from one that is killed.
func TestMemberWithoutPartitions(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders"))
	dir := t.TempDir()
	start := func() (p *program, admin string) {
		admin = freePort(t)
		writeFile(t, dir, admin+".yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s", token: %s-token, no_progress: 1s}
consumers:
  orders:
    source: {kafka: {brokers: ["%s"], topics: [orders], group: workers, session_timeout: 6s, heartbeat_interval: 500ms}}
    routes: [{handler: log}]
`, admin, canary, broker))
		p = launch(t, dir, "run", "-c", admin+".yaml")
		p.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
		return p, admin
	}
	owner, at := start()
	owner.eventually(t, "it has the partition", func() bool { return gauge(at, "claims", "orders") == "1" })
	other, otherAt := start()
	if code := control(t, "http://127.0.0.1:"+at+"/consumers/orders/pause", ""); code != 200 {
		t.Fatalf("pause: %d", code)
	}
	if p := launch(t, dir, "produce", "--brokers", broker, "--count", "50", "--rate", "0"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	owner.eventually(t, "50 wait", func() bool { return gauge(at, "lag_messages", "orders") == "50" })
	for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(50 * time.Millisecond) { // three times no_progress
		for _, page := range []string{"/livez", "/readyz"} {
			if got := fetch("http://127.0.0.1:" + otherAt + page); got != "200\nok\n" {
				t.Fatalf("%s of a member without partitions: %q", page, got)
			}
		}
	}
	if n := gauge(otherAt, "claims", "orders"); n != "0" {
		t.Errorf("it has %s claims", n)
	}
	owner.signal(t, syscall.SIGKILL)
	other.eventually(t, "it takes over", func() bool {
		return metric(otherAt, "handled_messages_total", "orders", 50) && gauge(otherAt, "claims", "orders") == "1"
	})
	other.signal(t, syscall.SIGTERM)
	if code := other.code(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, other.stderr.String())
	}
}

// TestKafkaFiguresHaveNoNamesOfMessages: labels come from the configuration, so neither keys nor headers are in /metrics, and
// topics only where they tell partitions apart (bad input b29).
func TestKafkaFiguresHaveNoNamesOfMessages(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(3, "odd-topic-a", "odd-topic-b"))
	dir, admin := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
consumers:
  orders:
    source: {kafka: {brokers: ["%s"], topics_pattern: "odd-topic-.*", group: odd-group}}
    routes: [{handler: log}]
`, admin, broker))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "it has all partitions", func() bool { return gauge(admin, "claims", "orders") == "6" })
	for _, topic := range []string{"odd-topic-a", "odd-topic-b"} {
		if p := launch(t, dir, "produce", "--brokers", broker, "--topic", topic, "--count", "20", "--rate", "0", "--keys",
			"20"); p.code(t) != 0 {
			t.Fatalf("produce: %s", p.stderr.String())
		}
	}
	run.eventually(t, "40 handled, none waits", func() bool {
		return metric(admin, "handled_messages_total", "orders", 40) && gauge(admin, "lag_messages", "orders") == "0" &&
			gauge(admin, "unsettled_messages", "orders") == "0"
	})
	figures := fetch("http://127.0.0.1:" + admin + "/metrics")
	// by partition, and so by topic
	figures = regexp.MustCompile(`(?m)^(longshore_(?:lag|unsettled)_messages\{.*)topic="odd-topic-[ab]"`).ReplaceAllString(figures,
		"$1")
	for _, name := range []string{"odd-", "key-", "Longshore-Id"} {
		if strings.Contains(figures, name) {
			t.Errorf("%s is in /metrics", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^longshore_[a-z_]+\{[^}]*consumer="([^"]*)"`).FindAllStringSubmatch(figures, -1) {
		if m[1] != "orders" {
			t.Errorf("%s", m[0])
		}
	}
	if up := gauge(admin, "source_up", "orders"); up != "1" {
		t.Errorf("source_up %q", up)
	}
}
