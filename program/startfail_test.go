package program

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/test"
	"github.com/twmb/franz-go/pkg/kfake"
)

// testNATS is a server with JetStream in this process, and its address.
func testNATS(t *testing.T, change func(*server.Options)) string {
	t.Helper()
	o := test.DefaultTestOptions
	o.Port, o.JetStream, o.StoreDir, o.NoLog = server.RANDOM_PORT, true, t.TempDir(), true
	if change != nil {
		change(&o)
	}
	s := test.RunServer(&o)
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s.Addr().String()
}

// firstTrouble is the first whole line that is no information.
func firstTrouble(log string) string {
	for line := range strings.Lines(log) {
		if strings.HasSuffix(line, "\n") && !strings.Contains(line, `"level":"info"`) {
			return line
		}
	}
	return ""
}

// TestFirstLineNamesTheCause: whatever a new user got wrong, the first thing that the program says of it on the terminal names
// it. It comes long before a connection is given up by itself.
func TestFirstLineNamesTheCause(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair, _ := selfSigned(t, dir)
	both := &tls.Config{Certificates: []tls.Certificate{pair}}
	_, kafka := startKafka(t, kfake.SeedTopics(1, "orders"))
	_, kafkaTLS := startKafka(t, kfake.SeedTopics(1, "orders"), kfake.TLS(both))
	_, kafkaLogin := startKafka(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"))
	nats := testNATS(t, nil)
	natsTLS := testNATS(t, func(o *server.Options) { o.TLSConfig, o.TLS, o.TLSTimeout = both, true, 5 })
	natsLogin := testNATS(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	nobody := "127.0.0.1:" + freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // and never says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	onKafka := func(at, topic, more string) string {
		return fmt.Sprintf("{kafka: {brokers: [%q], topics: [%s], group: g%s}}", at, topic, more)
	}
	onNATS := func(at, stream, more string) string {
		return fmt.Sprintf("{nats: {url: %q, stream: %s, durable: d%s}}", at, stream, more)
	}
	for name, tc := range map[string]struct {
		source string
		want   []string
	}{
		"Kafka, wrong address":  {onKafka(nobody, "orders", ""), []string{nobody, "connection refused"}},
		"Kafka, silent address": {onKafka(l.Addr().String(), "orders", ""), []string{l.Addr().String(), "no answer"}},
		"Kafka, wrong topic":    {onKafka(kafka, "ordres", ""), []string{"topic ordres does not exist"}},
		"Kafka, wrong password": {onKafka(kafkaLogin, "orders", ", sasl: {mechanism: PLAIN, user: u, password: wrong}"),
			[]string{kafkaLogin, "SASL Authentication Failed"}},
		"Kafka, no login": {onKafka(kafkaLogin, "orders", ""),
			[]string{kafkaLogin, "does this listener want a login by SASL?"}},
		"Kafka, login on plain port": {onKafka(kafka, "orders", ", sasl: {mechanism: PLAIN, user: u, password: p}"),
			[]string{kafka, "does this listener want no login?"}},
		"Kafka, TLS on a plain port": {onKafka(kafka, "orders", ", tls: {}"), []string{kafka, "does this port speak TLS?"}},
		"Kafka, plain on a TLS port": {onKafka(kafkaTLS, "orders", ""), []string{kafkaTLS, "does this port want TLS?"}},
		"NATS, wrong address":        {onNATS("nats://"+nobody, "ORDERS", ""), []string{nobody, "connection refused"}},
		"NATS, silent address":       {onNATS("nats://"+l.Addr().String(), "ORDERS", ""), []string{l.Addr().String(), "no answer"}},
		"NATS, wrong stream":         {onNATS("nats://"+nats, "ORDRES", ""), []string{"ORDRES", "create_stream"}},
		"Kafka, stop on wrong topic": {onKafka(kafka, "ordres", ", missing: stop"), []string{"no such topic: ordres"}},
		"NATS, stop on wrong stream": {onNATS("nats://"+nats, "ORDRES", ", missing: stop"), []string{"ORDRES", "create_stream"}},
		"NATS, wrong password": {onNATS("nats://"+natsLogin, "ORDERS", ", user: u, password: wrong"),
			[]string{natsLogin, "Authorization Violation"}},
		"NATS, no login":            {onNATS("nats://"+natsLogin, "ORDERS", ""), []string{natsLogin, "Authorization Violation"}},
		"NATS, TLS on a plain port": {onNATS("nats://"+nats, "ORDERS", ", tls: {}"), []string{nats, "does this port speak TLS?"}},
		"NATS, plain on a TLS port": {onNATS("nats://"+natsTLS, "ORDERS", ""), []string{natsTLS, "x509: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, dir, "c.yaml", "consumers:\n  orders:\n    source: "+tc.source+
				"\n    open_timeout: 1m\n    routes: [{handler: log}]\n")
			began := time.Now()
			run := launch(t, dir, "run", "-c", "c.yaml")
			var first string
			run.eventually(t, "something wrong is told", func() bool { first = firstTrouble(run.stderr.String()); return first != "" })
			t.Logf("%v: %s", time.Since(began), first)
			for _, text := range tc.want {
				if !strings.Contains(first, text) {
					t.Errorf("%q is not in the first line: %s", text, first)
				}
			}
		})
	}
}
