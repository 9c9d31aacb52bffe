package program

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSeveralSources: a consumer of a file reads both of its sources, its dead letters go to their broker, and lag shows both.
func TestSeveralSources(t *testing.T) {
	t.Parallel()
	dir, port, admin := t.TempDir(), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", "embedded: {port: "+port+"}\nadmin: {listen: 127.0.0.1:"+admin+`}
consumers:
  orders:
    sources:
      - {nats: {stream: ORDERS, subjects: [orders.gold], durable: gold}}
      - {nats: {stream: ORDERS, subjects: [orders.lead], durable: lead}}
    priority: {mode: strict}
    dead_letter: {to: dead.orders}
    routes:
      - {match: orders.gold, handler: log}
      - {type: never, handler: log}
`)
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	for subject, n := range map[string]string{"orders.gold": "30", "orders.lead": "20"} {
		if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--subject", subject, "--count", n, "--rate",
			"0"); p.code(t) != 0 {
			t.Fatalf("produce: %s", p.stderr.String())
		}
	}
	run.eventually(t, "30 handled, 20 dead letters", func() bool {
		metrics := fetch("http://127.0.0.1:" + admin + "/metrics")
		return strings.Contains(metrics, "\nlongshore_handled_messages_total{consumer=\"orders\"} 30\n") &&
			strings.Contains(metrics, "\nlongshore_dead_lettered_messages_total{consumer=\"orders\"} 20\n")
	})
	lag := launch(t, dir, "lag", "-c", "c.yaml", "--json")
	if code := lag.code(t); code != 0 || !strings.Contains(lag.stdout.String(), `"gold"`) ||
		!strings.Contains(lag.stdout.String(), `"lead"`) {
		t.Errorf("lag: %d\n%s%s", code, lag.stdout.String(), lag.stderr.String())
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
}

func TestPriorityOfAHeader(t *testing.T) {
	p, strict := priorityOf(&config.Priority{Header: "urgency",
		Levels: []config.Level{{Values: []string{"high", "now"}, Weight: 9}, {Values: []string{"normal"}}, {Weight: 2}}})
	if strict || len(p.Levels) != 3 || p.Levels[0] != 9 || p.Levels[1] != 1 || p.Levels[2] != 2 {
		t.Errorf("levels %v, strict %v", p.Levels, strict)
	}
	for value, want := range map[string]int{"high": 0, "now": 0, "normal": 1, "low": 2, "": 2, "High": 2} {
		m := &consumer.Message{Headers: broker.NewHeaders(broker.Header{Key: "urgency", Value: []byte(value)})}
		if got := p.Of(m); got != want {
			t.Errorf("%q: level %d, want %d", value, got, want)
		}
	}
	if got := p.Of(&consumer.Message{}); got != 2 {
		t.Errorf("without the header: level %d", got)
	}
	if p, strict := priorityOf(&config.Priority{Mode: "strict"}); p != nil || !strict {
		t.Errorf("strict without levels: %v, %v", p, strict)
	}
}

// TestSourcesAndTypesOnKafka: two topics by weight and levels by a header, and the events' types choose the route.
func TestSourcesAndTypesOnKafka(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(2, "gold", "lead", "paid", "dead", "later"))
	dir, admin := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%[1]s"}
consumers:
  shop:
    sources:
      - {weight: 8, kafka: {brokers: ["%[2]s"], topics: [gold], group: gold}}
      - {kafka: {brokers: ["%[2]s"], topics: [lead], group: lead}}
    priority: {header: urgency, levels: [{values: [high], weight: 4}, {}]}
    retry: {topics: [{topic: later, delay: 1m}]}
    dead_letter: {to: dead}
    routes:
      - {type: "shop.order.paid", handler: publish, with: {to: paid}}
      - {type: "shop.order.>", handler: log}
`, admin, broker))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, topic := range []string{"gold", "lead"} {
		for i := range 30 {
			typ := []string{"shop.order.paid", "shop.order.sent.late", "shop.mail"}[i%3]
			r := &kgo.Record{Topic: topic, Value: []byte("{}"),
				Headers: []kgo.RecordHeader{{Key: "ce_type", Value: []byte(typ)}, {Key: "urgency", Value: []byte("high")}}}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	run.eventually(t, "40 handled, 20 dead letters", func() bool {
		return metric(admin, "handled_messages_total", "shop", 40) && metric(admin, "dead_lettered_messages_total", "shop", 20)
	})
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
	lag := launch(t, dir, "lag", "-c", "c.yaml", "--json")
	var r lagReport
	if code := lag.code(t); code != 0 || json.Unmarshal([]byte(lag.stdout.String()), &r) != nil || r.Lag == nil || *r.Lag != 0 ||
		len(r.Rows) != 6 {
		t.Errorf("lag: %d\n%s%s", code, lag.stdout.String(), lag.stderr.String())
	}
}
