package program

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
)

// TestNoPlaceForDeadLetters: with no topic, or no stream, for the dead letters the start warns, before any message failed, and
// /readyz says so; with dead_letter.create it is made, as is what a route of them names, and letters go there.
func TestNoPlaceForDeadLetters(t *testing.T) {
	cluster, kafka := startKafka(t, kfake.SeedTopics(1, "orders"))
	server := testNATS(t, nil)
	nc, err := nats.Connect("nats://" + server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		source, to string
		produce    []string
		stored     func() bool
	}{
		"Kafka": {fmt.Sprintf("{kafka: {brokers: [%q], topics: [orders], group: g}}", kafka), "orders-dead",
			[]string{"--brokers", kafka, "--topic", "orders"},
			func() bool {
				p := cluster.PartitionInfo("orders-dead", 0)
				return p != nil && p.HighWatermark == 1
			}},
		"NATS": {fmt.Sprintf("{nats: {url: %q, stream: ORDERS, durable: d}}", "nats://"+server), "dead.orders",
			[]string{"--url", "nats://" + server, "--subject", "orders"},
			func() bool {
				st, err := js.Stream(context.Background(), "dead_orders")
				return err == nil && st.CachedInfo().State.Msgs == 1
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, admin := t.TempDir(), freePort(t)
			file := func(more string) {
				writeFile(t, dir, "c.yaml", fmt.Sprintf("admin: {listen: \"127.0.0.1:%s\"}\nconsumers:\n  orders:\n    source: %s\n    "+
					"retry: {max_attempts: 1}\n    dead_letter: {to: %s%s}\n    routes: [{handler: exec, with: {command: [\"false\"]}}]\n",
					admin, tc.source, tc.to, more))
			}
			file("")
			run := launch(t, dir, "run", "-c", "c.yaml")
			run.eventually(t, "/readyz names it", func() bool {
				body := fetch("http://127.0.0.1:" + admin + "/readyz")
				return strings.HasPrefix(body, "200\nok\norders: ") && strings.Contains(body, tc.to)
			})
			run.eventually(t, "the log names it", func() bool { // /readyz can be a moment earlier
				return strings.Contains(run.stderr.String(), `"to":"`+tc.to+`"`)
			})
			run.signal(t, syscall.SIGTERM)
			if code := run.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if log := run.stderr.String(); strings.Count(log, "destination_missing") != 1 {
				t.Errorf("the log is:\n%s", log)
			}
			file(", create: true, routes: [{class: panic, to: " + tc.to + "-panics}]")
			run = launch(t, dir, "run", "-c", "c.yaml")
			run.eventually(t, "both are made", func() bool {
				log := run.stderr.String()
				return strings.Count(log, `"destination_found"`) == 2 && strings.Contains(log, `"to":"`+tc.to+`-panics"`)
			})
			if p := launch(t, dir, append([]string{"produce", "--count", "1"}, tc.produce...)...); p.code(t) != 0 {
				t.Fatalf("produce: %s", p.stderr.String())
			}
			run.eventually(t, "a letter is there", tc.stored)
			if body := fetch("http://127.0.0.1:" + admin + "/readyz"); body != "200\nok\n" {
				t.Errorf("/readyz: %q", body)
			}
			run.signal(t, syscall.SIGTERM)
			if code := run.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
