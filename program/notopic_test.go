package program

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker/kafkabroker"
)

// TestNoTopic: with a slip in the only topic a process is not ready, so that a deploy does not go on, and its page names the
// topic. It begins when the topic is made. Where something else is there to be read, it is ready.
func TestNoTopic(t *testing.T) {
	t.Parallel()
	_, kafka := startKafka(t, kfake.SeedTopics(1, "orders"))
	at := fmt.Sprintf("brokers: [%q]", kafka)
	start := func(t *testing.T, reads string) (run *program, admin string) {
		t.Helper()
		dir, admin := t.TempDir(), freePort(t)
		writeFile(t, dir, "c.yaml", fmt.Sprintf("admin: {listen: \"127.0.0.1:%s\"}\nconsumers:\n  orders:\n    %s\n    "+
			"routes: [{handler: log}]\n", admin, reads))
		return launch(t, dir, "run", "-c", "c.yaml"), admin
	}
	stop := func(t *testing.T, run *program) {
		t.Helper()
		run.signal(t, syscall.SIGTERM)
		if code := run.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	t.Run("one source", func(t *testing.T) {
		run, admin := start(t, "source: {kafka: {"+at+", topics: [ordres], group: g}}")
		run.eventually(t, "it warns", func() bool { return strings.Contains(run.stderr.String(), "topic ordres does not exist") })
		run.eventually(t, "the page names it", func() bool {
			page := fetch("http://127.0.0.1:" + admin + "/ui/")
			return strings.Contains(page, "It is opening.") && strings.Contains(page, "topic ordres does not exist")
		})
		if body := fetch("http://127.0.0.1:" + admin + "/readyz"); !strings.HasPrefix(body, "503\norders: ") {
			t.Errorf("/readyz: %q", body)
		}
		made, err := kafkabroker.NewAdmin(kafkabroker.Connection{Brokers: []string{kafka}})
		if err != nil {
			t.Fatal(err)
		}
		defer made.Close()
		if err := made.CreateTopic(t.Context(), "ordres", 1); err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(kafka))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "ordres", Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		run.eventually(t, "it is handled", func() bool { return metric(admin, "handled_messages_total", "orders", 1) })
		if body := fetch("http://127.0.0.1:" + admin + "/readyz"); body != "200\nok\n" {
			t.Errorf("/readyz: %q", body)
		}
		stop(t, run)
	})
	t.Run("no source has one", func(t *testing.T) {
		run, admin := start(t, "sources: [{kafka: {"+at+", topics: [ordres3], group: g7}},\n      "+
			"{kafka: {"+at+", topics: [ordres4, ordres5], group: g8}}]")
		run.eventually(t, "the page names them", func() bool {
			page := fetch("http://127.0.0.1:" + admin + "/ui/")
			return strings.Contains(page, "It is opening.") && strings.Contains(page, "topic ordres3 does not exist") &&
				strings.Contains(page, "none of the topics ordres4, ordres5 exists")
		})
		if body := fetch("http://127.0.0.1:" + admin + "/readyz"); !strings.HasPrefix(body, "503\norders: ") {
			t.Errorf("/readyz: %q", body)
		}
		made, err := kafkabroker.NewAdmin(kafkabroker.Connection{Brokers: []string{kafka}})
		if err != nil {
			t.Fatal(err)
		}
		defer made.Close()
		if err := made.CreateTopic(t.Context(), "ordres5", 1); err != nil {
			t.Fatal(err)
		}
		run.eventually(t, "it is ready", func() bool { return fetch("http://127.0.0.1:"+admin+"/readyz") == "200\nok\n" })
		stop(t, run)
	})
	for name, reads := range map[string]string{
		"a topic beside it": "source: {kafka: {" + at + ", topics: [orders, ordres2], group: g2}}",
		"a source beside it": "sources: [{kafka: {" + at + ", topics: [orders], group: g3}},\n      " +
			"{kafka: {" + at + ", topics: [ordres2], group: g4}}]",
		"no topic for retries": "source: {kafka: {" + at + ", topics: [orders], group: g5}}\n    " +
			"retry: {topics: [{topic: ordres2, delay: 1m}]}",
		"it is wanted": "source: {kafka: {" + at + ", topics: [ordres2], group: g6, missing: run}}",
	} {
		t.Run(name, func(t *testing.T) {
			run, admin := start(t, reads)
			run.eventually(t, "it is ready", func() bool {
				return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200\nok\n")
			})
			run.eventually(t, "it warns", func() bool { return strings.Contains(run.stderr.String(), "topic ordres2 does not exist") })
			stop(t, run)
		})
	}
}
