package program

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startKafka is a Kafka in this process.
func startKafka(t *testing.T, opts ...kfake.Opt) (c *kfake.Cluster, broker string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, c.ListenAddrs()[0]
}

// metric is the line that /metrics has of a counter.
func metric(admin, name, consumer string, value int) bool {
	return strings.Contains(fetch("http://127.0.0.1:"+admin+"/metrics"),
		fmt.Sprintf("\nlongshore_%s{consumer=%q} %d\n", name, consumer, value))
}

// TestNewKafkaUser goes the way of the example: example, run, produce in a second terminal, lag, SIGTERM.
func TestNewKafkaUser(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(4, "orders", "orders-dead"))
	dir, admin := t.TempDir(), freePort(t)
	example := launch(t, dir, "config", "example", "--broker", "kafka")
	if code := example.code(t); code != 0 {
		t.Fatal(code)
	}
	text := strings.Replace(example.stdout.String(), "listen: 127.0.0.1:8080", "listen: 127.0.0.1:"+admin, 1)
	writeFile(t, dir, "c.yaml", strings.Replace(text, "${KAFKA_BROKERS:-127.0.0.1:9092}", broker, 1))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	produce := launch(t, dir, "produce", "--brokers", broker, "--count", "300", "--rate", "0", "--keys", "20", "--json")
	if code := produce.code(t); code != 0 {
		t.Fatalf("produce: %d %s", code, produce.stderr.String())
	}
	var sum map[string]float64
	if err := json.Unmarshal([]byte(produce.stdout.String()), &sum); err != nil || sum["confirmed"] != 300 || sum["sent"] != 300 ||
		sum["bytes"] != 30000 {
		t.Errorf("produce: %v %v", produce.stdout.String(), err)
	}
	run.eventually(t, "300 handled", func() bool { return metric(admin, "handled_messages_total", "orders", 300) })
	if live := fetch("http://127.0.0.1:" + admin + "/livez"); live != "200\nok\n" {
		t.Errorf("/livez: %q", live)
	}
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
	events := wantJSONLines(t, run.stderr.String())
	for _, name := range []string{"admin", "stopping", "drained", "stopped"} {
		if events[name] != 1 {
			t.Errorf("%d events %q", events[name], name)
		}
	}
	if events["embedded_nats"] != 0 || run.stdout.String() != "" {
		t.Errorf("%d servers inside the process, stdout %q", events["embedded_nats"], run.stdout.String())
	}
	lag := launch(t, dir, "lag", "-c", "c.yaml", "--json")
	var r lagReport
	if code := lag.code(t); code != 0 || json.Unmarshal([]byte(lag.stdout.String()), &r) != nil {
		t.Fatalf("lag: %d\n%s%s", code, lag.stdout.String(), lag.stderr.String())
	}
	if r.Lag == nil || *r.Lag != 0 || r.Unknown != 0 || len(r.Rows) != 4 {
		t.Errorf("lag after a drain: %s", lag.stdout.String())
	}
}

// TestConsumersOnKafka: several in one process, one of them fed by the other's publish; what fails becomes a dead letter, and so
// they add up.
func TestConsumersOnKafka(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(2, "in", "copy-eu", "dead"))
	dir, admin := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
consumers:
  first:
    source: {kafka: {brokers: ["%s"], topics: [in], group: first, session_timeout: 6s}}
    routes: [{match: in, handler: publish, with: {to: copy-eu}}]
  second:
    source: {kafka: {brokers: ["%s"], topics_pattern: "copy-.*", group: second, session_timeout: 6s}}
    retry: {max_attempts: 2, backoff: {initial: 10ms}}
    dead_letter: {to: dead}
    routes: [{handler: exec, with: {command: ["false"]}}]
  look:
    source: {kafka: {brokers: ["%s"], topics: [dead], group: look, start: 2020-01-01T00:00:00Z}}
    routes: [{handler: log, with: {headers: [Longshore-Original-Topic, Longshore-Handler]}}]
`, admin, broker, broker, broker))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	if p := launch(t, dir, "produce", "--brokers", broker, "--topic", "in", "--count", "20", "--rate", "0"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	run.eventually(t, "20 dead letters are seen", func() bool {
		return metric(admin, "handled_messages_total", "first", 20) && metric(admin, "dead_lettered_messages_total", "second", 20) &&
			metric(admin, "handled_messages_total", "look", 20)
	})
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	log := run.stderr.String()
	if n := strings.Count(log, `"header_Longshore-Original-Topic":"copy-eu"`); n != 20 {
		t.Errorf("%d messages of the log are dead letters of copy-eu:\n%s", n, log)
	}
}

// TestRetryTopics: what has to wait for long does so in a retry topic, comes back as what it was, and becomes a dead letter with
// the headers that were asked for.
func TestRetryTopics(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders", "orders-retry-1s", "dead"))
	dir, admin := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
consumers:
  orders:
    source: {kafka: {brokers: ["%s"], topics: [orders], group: workers}}
    retry: {max_attempts: 2, backoff: {initial: 1s, jitter: 0}, topics: [{topic: orders-retry-1s, delay: 1s}]}
    dead_letter: {to: dead, headers: [spring, connect]}
    routes: [{match: orders, handler: exec, with: {command: ["false"]}}]
`, admin, broker))
	if p := launch(t, dir, "produce", "--brokers", broker, "--count", "20", "--rate", "0"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	p := launch(t, dir, "run", "-c", "c.yaml")
	p.eventually(t, "20 are dead letters", func() bool { return metric(admin, "dead_lettered_messages_total", "orders", 20) })
	if !metric(admin, "retry_published_messages_total", "orders", 20) {
		t.Error("not all were in the retry topic")
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.stderr.String())
	}
	lag, err := run(t.Context(), "lag", "-c", filepath.Join(dir, "c.yaml"), "--json")
	var r lagReport
	if jerr := json.Unmarshal([]byte(lag), &r); err != nil || jerr != nil || r.Lag == nil || *r.Lag != 0 || len(r.Rows) != 2 ||
		r.Rows[1].Group != "workers-retry" || r.Rows[1].Topic != "orders-retry-1s" || *r.Rows[1].End != 20 {
		t.Errorf("%v %v %s", err, jerr, lag)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	have := map[string]string{}
	for _, h := range client.PollRecords(t.Context(), 1).Records()[0].Headers {
		have[h.Key] = string(h.Value)
	}
	if have["Longshore-Original-Topic"] != "orders" || have["Longshore-Attempts"] != "2" ||
		have["kafka_dlt-original-topic"] != "orders" || have["__connect.errors.topic"] != "orders" {
		t.Errorf("headers of the dead letter: %q", have)
	}
}

// TestKafkaIsAway: the log names the broker, and after open_timeout the process ends.
func TestKafkaIsAway(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    source: {kafka: {brokers: ["127.0.0.1:`+port+`"], topics: [orders], group: g}}
    open_timeout: 2s
    routes: [{handler: log}]
`)
	run := launch(t, dir, "run", "-c", "c.yaml")
	if code := run.code(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	log := run.stderr.String()
	if events := wantJSONLines(t, log); events["failed"] != 1 || events["source_down"] < 1 ||
		!strings.Contains(log, "consumer orders: opening the source: kafkabroker: ") ||
		!strings.Contains(log, "broker 127.0.0.1:"+port+": ") {
		t.Errorf("neither broker nor reason:\n%s", log)
	}
	for _, c := range []struct{ args, want string }{
		{"lag -c c.yaml", "broker 127.0.0.1:" + port + ": "},
		{"demo --kafka 127.0.0.1:" + port, "broker 127.0.0.1:" + port + ": connecting: "},
		{"produce --brokers 127.0.0.1:" + port + " --count 1 --timeout 1s", "connection refused"},
	} {
		p := launch(t, dir, strings.Fields(c.args)...)
		if code := p.code(t); code != 1 || !strings.Contains(p.stderr.String(), c.want) {
			t.Errorf("%s: exit code %d, stderr %s", c.args, code, p.stderr.String())
		}
	}
}

// TestProduceWithoutTopic: Kafka's publisher would wait for a topic that is not there.
func TestProduceWithoutTopic(t *testing.T) {
	t.Parallel()
	_, at := startKafka(t, kfake.SeedTopics(1, "orders"))
	out, err := run(t.Context(), "produce", "--brokers", at, "--topic", "ordrs", "--count", "3")
	want := fmt.Sprintf("there is no topic \"ordrs\" on %s: create it, or name another with --topic", at)
	if err == nil || err.Error() != want || out != "" {
		t.Errorf("%q: %v, want %s", out, err, want)
	}
}

// TestDemoOnKafka: nothing is lost, and neither topic nor group is left.
func TestDemoOnKafka(t *testing.T) {
	t.Parallel()
	c, broker := startKafka(t)
	out, err := run(t.Context(), "demo", "--kafka", broker, "--duration", "4s", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]float64
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, out)
	}
	if s["published"] == 0 || s["handled"] != s["published"] || s["lost"] != 0 {
		t.Errorf("summary: %s", out)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if left := leftOnKafka(t, client); len(left) > 0 {
		t.Errorf("left on %v: %v", c.ListenAddrs(), left)
	}
}

// TestDemoOnHostileKafka: an answer that claims 2^31-1 elements ends the command with an error, not the process.
func TestDemoOnHostileKafka(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go claimMuch(conn)
		}
	}()
	if out, err := run(t.Context(), "demo", "--kafka", l.Addr().String(), "--duration", "1s"); err == nil ||
		!strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%q: %v, want an error that names the broker", out, err)
	}
}

// claimMuch answers each request but the first with a claim of more than there is.
func claimMuch(conn net.Conn) {
	defer conn.Close()
	var size [4]byte
	for {
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		answer := append(make([]byte, 4), request[4:8]...)
		if key, version := request[1], request[3]; key == 18 { // ApiVersions: it speaks Metadata up to version 8
			answer = append(answer, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 8)
			if version > 0 {
				answer = append(answer, 0, 0, 0, 0)
			}
		} else {
			answer = append(answer, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff)
		}
		binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// TestLag: of a group that has handled a part, once as a table and once as JSON, and of a durable consumer and a group by one
// file.
func TestLag(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := run(ctx, "produce", "--brokers", broker, "--count", "10", "--rate", "0"); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := commitOffset(ctx, t, client, "workers", "orders", 4); err != nil {
		t.Fatal(err)
	}
	table, err := run(ctx, "lag", "--brokers", broker, "--group", "workers")
	want := "CONSUMER  READS     AS       PROTOCOL  COMMITTED  END  LAG  FINISHED\n-         orders/0  workers  -         4       " +
		"   10   6    0\nlag 6, of these finished 0\n"
	if err != nil || table != want {
		t.Errorf("%v\n%s\nwant\n%s", err, table, want)
	}
	e, err := startNATS(t.Context(), zerolog.Nop(), t.TempDir(), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	if err := e.ensureStreams(ctx, []stream{{"ORDERS", []string{"orders.>"}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  a: {source: {kafka: {brokers: ["%s"], topics: [orders, later], group: workers}}, routes: [{handler: log}]}
  b: {source: {nats: {url: "%s", stream: ORDERS, durable: workers}}, routes: [{handler: log}]}
`, broker, e.url))
	out, err := run(ctx, "lag", "-c", filepath.Join(dir, "c.yaml"), "--json")
	var r lagReport
	if jerr := json.Unmarshal([]byte(out), &r); jerr != nil || err == nil || len(r.Rows) != 3 || r.Lag == nil || *r.Lag != 6 ||
		r.Unknown != 2 {
		t.Fatalf("%v %v\n%s", err, jerr, out)
	}
	// The topic that is not there yet, and the durable that nobody has made, are told; the rest is shown.
	if r.Rows[0].Topic != "later" || r.Rows[0].Error == "" || *r.Rows[1].Committed != 4 || r.Rows[1].Consumer != "a" ||
		!strings.Contains(err.Error(), "consumer workers of stream ORDERS") {
		t.Errorf("%v\n%s", err, out)
	}
	if v, err := time.Parse(time.RFC3339, r.Time); err != nil || time.Since(v) > time.Hour {
		t.Errorf("time %q", r.Time)
	}
}

// TestLagWatch: an object a line, until it is stopped.
func TestLagWatch(t *testing.T) {
	t.Parallel()
	_, broker := startKafka(t, kfake.SeedTopics(1, "orders"))
	p := launch(t, t.TempDir(), "lag", "--brokers", broker, "--group", "g", "--topic", "orders", "--watch", "--every", "10ms",
		"--json")
	p.eventually(t, "three looks", func() bool { return strings.Count(p.stdout.String(), "\n") >= 3 })
	p.signal(t, syscall.SIGINT)
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	for line := range strings.Lines(p.stdout.String()) {
		var r lagReport
		if err := json.Unmarshal([]byte(line), &r); err != nil || len(r.Rows) != 1 || r.Rows[0].Committed != nil ||
			*r.Rows[0].End != 0 {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestLagOfNothing: a group whose name is a slip, and a pattern that no topic matches, are unknown and not at 0.
func TestLagOfNothing(t *testing.T) {
	t.Parallel()
	_, at := startKafka(t, kfake.SeedTopics(1, "orders"))
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`consumers:
  o: {source: {kafka: {brokers: [%q], topics_pattern: "odrers.*", group: g}}, routes: [{handler: log}]}
`, at))
	for want, args := range map[string][]string{
		"group slip: has committed nothing":                  {"lag", "--brokers", at, "--group", "slip"},
		`group g: there is no topic that "odrers.*" matches`: {"lag", "-c", filepath.Join(dir, "c.yaml")},
	} {
		out, err := run(t.Context(), args...)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(out, "lag unknown\n") {
			t.Errorf("%q: %v, want %s\n%s", args, err, want, out)
		}
	}
}

func TestWrongFlagsForABroker(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"lag":                                       "lag needs -c FILE",
		"lag --group g --stream S":                  "--group and --stream are set",
		"lag --topic t":                             "--group is missing",
		"lag --stream S":                            "--stream and --durable are wanted both",
		"lag -c c.yaml --group g":                   "--config and --group are set",
		"lag --group g --every 0s --watch":          "--every is 0s, want more than 0",
		"lag --group g --every 1s":                  "--every is set and --watch is not",
		"lag --group g --brokers nohost":            `--brokers is "nohost"`,
		"lag --stream a.b --durable c*":             "--stream is \"a.b\": no dots, wildcards, blanks or slashes\n--durable is",
		"lag --url http://x --stream a --durable b": "--url is http://x: the scheme",
		"dlq list --brokers nohost --topic t":       `--brokers is "nohost"`,
		"dlq list --url http://x --subject s":       "--url is http://x: the scheme",
		"lag -c none.yaml":                          "none.yaml: no such file",
		"produce --brokers h:1 --subject s":         "--subject and --brokers are set: the first is for NATS, the second for Kafka",
		"produce --brokers u:pw@h:9092":             `--brokers has a user or a password in it`,
		"lag --group g --brokers u:pw@h:9092":       `--brokers has a user or a password in it`,
		"demo --kafka u:pw@h:9092":                  `--kafka has a user or a password in it`,
		"produce --topic a/b":                       `--topic is "a/b", want a topic's name`,
		"produce --subject a..b":                    `--subject is "a..b", want a subject without wildcards`,
		"produce --subject a.*":                     `--subject is "a.*", want a subject without wildcards`,
		"produce --brokers nohost":                  `--brokers is "nohost", want host:port`,
		"produce --brokers h:1 --topic= --rate -1":  "--topic is empty\n--rate is -1",
		"demo --kafka nohost --duration 1s":         `--kafka is "nohost", want host:port`,
	} {
		_, err := run(t.Context(), strings.Fields(args)...)
		var use usageError
		if !errors.As(err, &use) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a usage error with %q", args, err, want)
		}
	}
}

// TestKafkaInTheFilesWords: what the adapter alone finds has the file's names.
func TestKafkaInTheFilesWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "c.yaml", `consumers:
  orders:
    routes: [{handler: log}]
    source:
      kafka:
        brokers: ["h:1"]
        topics: [orders]
        group: g
        session_timeout: 10us
        heartbeat_interval: 1us
`)
	_, err := run(t.Context(), "config", "check", filepath.Join(dir, "c.yaml"))
	if err == nil || !strings.Contains(err.Error(),
		"c.yaml:9: consumers.orders.source.kafka.session_timeout: is 10µs, want at least 1ms") {
		t.Error(err)
	}
}
