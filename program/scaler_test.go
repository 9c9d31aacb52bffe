package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/internal/namedfile"
	"github.com/longshoremq/longshore/internal/replicas"
	pb "github.com/longshoremq/longshore/program/internal/externalscaler"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// fakeTargets are consumers that nothing looks at: a test says what was seen.
func fakeTargets(names ...string) map[string]*scalerTarget {
	all := map[string]*scalerTarget{}
	for _, name := range names {
		all[name] = &scalerTarget{name: name, log: zerolog.Nop(), next: make(chan struct{})}
	}
	return all
}

// dialScaler is a client of a scaler at an address.
func dialScaler(t *testing.T, at string) pb.ExternalScalerClient {
	t.Helper()
	c, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return pb.NewExternalScalerClient(c)
}

// serveScaler serves targets until the end of the test.
func serveScaler(t *testing.T, targets map[string]*scalerTarget, s replicas.Settings) pb.ExternalScalerClient {
	t.Helper()
	g, err := newScalerServer(targets, s, "", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveGRPC(ctx, g, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return dialScaler(t, l.Addr().String())
}

func ref(meta ...string) *pb.ScaledObjectRef {
	r := &pb.ScaledObjectRef{Name: "orders", Namespace: "default", ScalerMetadata: map[string]string{}}
	for i := 0; i < len(meta); i += 2 {
		r.ScalerMetadata[meta[i]] = meta[i+1]
	}
	return r
}

var perMinute = replicas.Settings{PerReplica: 100, Drain: time.Minute}

// TestScalerAnswersKEDA: each call, and what it says of what it does not know.
func TestScalerAnswersKEDA(t *testing.T) {
	t.Parallel()
	targets := fakeTargets("orders", "mails", "away", "out", "outside", "limited", "alone", "paused", "halted", "idle")
	c := serveScaler(t, targets, perMinute)
	targets["out"].saw(replicas.Figures{Known: true, In: 500, Members: 2, Open: true}, nil)
	targets["outside"].saw(replicas.Figures{Known: true, In: 500, Members: -1, Open: true}, nil)
	targets["limited"].saw(replicas.Figures{Known: true, In: 500, Members: 2, Limited: true}, nil)
	targets["alone"].saw(replicas.Figures{Known: true, In: 500, Members: -1, Limited: true}, nil)
	targets["paused"].saw(replicas.Figures{Known: true, In: 500, Each: 100, Members: 2, Paused: true}, nil)
	targets["halted"].saw(replicas.Figures{Known: true, In: 500, Each: 100, Members: -1, Paused: true}, nil)
	targets["idle"].saw(replicas.Figures{Known: true, Each: 100, Members: -1, Paused: true}, nil)
	targets["orders"].saw(replicas.Figures{Known: true, In: 160, Members: -1}, nil)
	targets["mails"].saw(replicas.Figures{Known: true, Members: -1}, nil)
	targets["away"].saw(replicas.Figures{Known: true, In: 500, Members: -1}, errors.New("no leader"))
	for name, want := range map[string]struct {
		ref    *pb.ScaledObjectRef
		active bool
		value  float64
		whole  int64
		code   codes.Code
	}{
		"work":                      {ref("consumer", "orders"), true, 2, 2, codes.OK},
		"its own number":            {ref("consumer", "orders", "perReplica", "64"), true, 3.125, 4, codes.OK},
		"none":                      {ref("consumer", "mails"), false, 0, 0, codes.OK},
		"a breaker is open":         {ref("consumer", "out"), true, 2, 2, codes.OK},
		"and how many, is unknown":  {ref("consumer", "outside"), false, 0, 0, codes.Unavailable},
		"at a limit that is shared": {ref("consumer", "limited"), true, 2, 2, codes.OK},
		"and how many, nobody says": {ref("consumer", "alone"), false, 0, 0, codes.Unavailable},
		"one is paused":             {ref("consumer", "paused"), true, 2, 2, codes.OK},
		"and of how many, unknown":  {ref("consumer", "halted"), false, 0, 0, codes.Unavailable},
		"nor is anything to do":     {ref("consumer", "idle"), false, 0, 0, codes.OK},
		"unknown":                   {ref("consumer", "away"), false, 0, 0, codes.Unavailable},
		"no consumer":               {ref("consumer", "order"), false, 0, 0, codes.NotFound},
		"which one":                 {ref(), false, 0, 0, codes.NotFound},
		"nothing can be done":       {ref("consumer", "orders", "perReplica", "0"), false, 0, 0, codes.InvalidArgument},
		"not a number":              {ref("consumer", "orders", "perReplica", "NaN"), false, 0, 0, codes.InvalidArgument},
		"a drain of no time":        {ref("consumer", "orders", "drainSeconds", "0.5"), false, 0, 0, codes.InvalidArgument},
		"a drain of a year":         {ref("consumer", "orders", "drainSeconds", "31536000"), false, 0, 0, codes.InvalidArgument},
		"what others have to say":   {ref("consumer", "orders", "scalerAddress", "x:1"), true, 2, 2, codes.OK},
	} {
		active, err := c.IsActive(t.Context(), want.ref)
		if status.Code(err) != want.code || active.GetResult() != want.active {
			t.Errorf("%s: IsActive: %v, %v", name, active, err)
		}
		m, err := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: want.ref, MetricName: "replicas"})
		if status.Code(err) != want.code {
			t.Errorf("%s: GetMetrics: %v, %v", name, m, err)
		}
		if want.code == codes.OK {
			if v := m.MetricValues; len(v) != 1 || v[0].MetricName != "replicas" || v[0].MetricValueFloat != want.value ||
				v[0].MetricValue != want.whole {
				t.Errorf("%s: GetMetrics: %v, want %v", name, v, want.value)
			}
		}
		spec, err := c.GetMetricSpec(t.Context(), want.ref)
		if want.code == codes.NotFound || want.code == codes.InvalidArgument {
			if status.Code(err) != want.code {
				t.Errorf("%s: GetMetricSpec: %v", name, err)
			}
		} else if err != nil || len(spec.MetricSpecs) != 1 || spec.MetricSpecs[0].TargetSize != 1 ||
			spec.MetricSpecs[0].TargetSizeFloat != 1 || spec.MetricSpecs[0].MetricName != "replicas" {
			t.Errorf("%s: GetMetricSpec: %v, %v", name, spec, err)
		}
	}
	if _, err := c.IsActive(t.Context(), ref("consumer", "order")); !strings.Contains(status.Convert(err).Message(),
		"alone, away, halted, idle, limited, mails, orders, out, outside, paused") {
		t.Errorf("who does not know the name is not told of those that are there: %v", err)
	}
}

// TestScalerHasOneConsumer: whose name need not be said.
func TestScalerHasOneConsumer(t *testing.T) {
	t.Parallel()
	targets := fakeTargets("orders")
	c := serveScaler(t, targets, perMinute)
	targets["orders"].saw(replicas.Figures{Known: true, Backlog: 1, Members: -1}, nil)
	if a, err := c.IsActive(t.Context(), ref()); err != nil || !a.Result {
		t.Errorf("%v, %v", a, err)
	}
}

// TestScalerHasJustBegun: who asks before the second look waits for it, and gets no 0.
func TestScalerHasJustBegun(t *testing.T) {
	t.Parallel()
	targets := fakeTargets("orders")
	c := serveScaler(t, targets, perMinute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := c.IsActive(ctx, ref()); err == nil {
		t.Errorf("nothing was looked at, and the answer is %v", a)
	}
	targets["orders"].saw(replicas.Figures{Members: -1}, nil)
	got := make(chan error, 1)
	go func() {
		m, err := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref()})
		if err == nil && m.MetricValues[0].MetricValueFloat != 2 {
			err = fmt.Errorf("the answer is %v", m)
		}
		got <- err
	}()
	targets["orders"].saw(replicas.Figures{Known: true, In: 160, Members: -1}, nil)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestScalerBesideOneProcess: a process that answers itself, and has nothing to go by yet, does not know how many there are
// beside it: that is no answer of 1, which would take the others away. What the trigger says serves.
func TestScalerBesideOneProcess(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]replicas.Figures{
		"it has handled nothing":  {Known: true, In: 500, Backlog: 96000, Members: -1},
		"a durable was deleted":   {Known: true, Missing: true, In: 500, Each: 100, Members: -1},
		"there is no durable yet": {Missing: true, Members: -1},
	} {
		target := fakeTargets("orders")["orders"]
		target.members = &memberView{sample: true}
		target.saw(f, nil)
		a, _, err := target.answer(t.Context(), replicas.Settings{Drain: time.Minute})
		if err == nil || !strings.Contains(err.Error(), "how many there are is not known") {
			t.Errorf("%s: %+v %v", name, a, err)
		}
		if a, _, err := target.answer(t.Context(), perMinute); f.Each == 0 && !f.Missing && (err != nil || a.Reason != replicas.Load) {
			t.Errorf("%s, and what a process does is said: %+v %v", name, a, err)
		}
	}
}

// TestScalerStream: tells at once, then of changes only; nothing while it does not know.
func TestScalerStream(t *testing.T) {
	t.Parallel()
	targets := fakeTargets("orders")
	orders := targets["orders"]
	c := serveScaler(t, targets, perMinute)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.StreamIsActive(ctx, ref())
	if err != nil {
		t.Fatal(err)
	}
	idle, busy := replicas.Figures{Known: true, Members: -1}, replicas.Figures{Known: true, Backlog: 5, Members: -1}
	for _, step := range []struct {
		tell func()
		want bool
	}{
		{func() { orders.saw(replicas.Figures{Members: -1}, nil); orders.saw(idle, nil) }, false},
		{func() { orders.saw(idle, nil); orders.saw(idle, errors.New("away")); orders.saw(busy, nil) }, true},
		{func() { orders.saw(busy, nil); orders.saw(idle, errors.New("away")); orders.saw(idle, nil) }, false},
	} {
		step.tell()
		a, err := s.Recv()
		if err != nil || a.Result != step.want {
			t.Fatalf("%v, %v, want %v", a, err, step.want)
		}
	}
	cancel()
	if _, err := s.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the end of the stream: %v", err)
	}
	if s, err := c.StreamIsActive(t.Context(), ref("consumer", "x")); err == nil {
		if _, err = s.Recv(); status.Code(err) != codes.NotFound {
			t.Errorf("a stream of no consumer: %v", err)
		}
	}
}

// TestScalerPage: what is known as numbers, what is not as null and 503, and absent in /metrics.
func TestScalerPage(t *testing.T) {
	t.Parallel()
	targets := fakeTargets("orders", "away", "new")
	targets["orders"].saw(replicas.Figures{Known: true, In: 200, Out: 150, Backlog: 60, Members: 2, Each: 100, Most: 12}, nil)
	targets["away"].saw(replicas.Figures{Known: true, In: 500, Members: 2}, errors.New("no leader"))
	s := httptest.NewServer(newScalerPage(targets, perMinute, zerolog.Nop()).routes())
	defer s.Close()
	get := func(path string) (int, string) {
		a, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(body)
	}
	code, body := get("/scaler/orders")
	want := `{"consumer":"orders","replicas":3,"need":2.513,"active":true,"reason":"load","why":"200/s come, 60 wait, one process ` +
		`is to do 80/s",` +
		`"arrivals_per_second":200,"settled_per_second":150,"backlog":60,"in_retry_topics":0,"held":0,` +
		`"processes":2,"per_replica":100}` + "\n"
	if code != 200 || body != want {
		t.Errorf("%d %s want %s", code, body, want)
	}
	for _, name := range []string{"away", "new"} {
		var row map[string]any
		code, body := get("/scaler/" + name)
		if err := json.Unmarshal([]byte(body), &row); err != nil || code != 503 || row["replicas"] != nil || row["need"] != nil ||
			row["active"] != nil || row["error"] == "" {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	var list struct{ Consumers []scalerRow }
	if code, body := get("/scaler"); json.Unmarshal([]byte(body), &list) != nil || code != 200 || len(list.Consumers) != 3 ||
		*list.Consumers[2].Replicas != 3 {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get("/scaler/nobody"); code != 404 {
		t.Error(code)
	}
	if _, body := get("/metrics"); !strings.Contains(body, `longshore_replicas_needed{consumer="orders"} 2.513`) ||
		strings.Contains(body, "away") {
		t.Error(body)
	}
}

// TestRoundedFigures: what is not nothing is not told as 0, which an autoscaler takes for no work.
func TestRoundedFigures(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]float64{0: 0, 1.0 / 60 / 80: 0.001, 1e-12: 0.001, 0.0014: 0.001, 2.5125: 2.513, 3: 3,
		math.MaxInt32: math.MaxInt32} {
		if got := round(n); got != want {
			t.Errorf("%v: %v, want %v", n, got, want)
		}
	}
	targets := fakeTargets("orders")
	targets["orders"].saw(replicas.Figures{Known: true, Backlog: 1, Each: 100}, nil)
	row := newScalerPage(targets, perMinute, zerolog.Nop()).row(t.Context(), targets["orders"])
	if row.Need == nil || *row.Need != 0.001 || *row.Replicas != 1 {
		t.Errorf("one message waits: %+v", row)
	}
}

// TestSourcesOfOneName: the same topic and group on two clusters, as while one is left for the other, are two.
func TestSourcesOfOneName(t *testing.T) {
	of := func(arrived int64) workView {
		return workView{read: func(context.Context) (sourceWork, error) {
			return sourceWork{parts: []replicas.Part{{Name: "orders/in/0", Arrived: arrived}}, most: 1}, nil
		}}
	}
	target := fakeTargets("orders")["orders"]
	target.views = []workView{of(1_000_000), of(1000)}
	tracker := &replicas.Tracker{}
	for range 3 {
		r, err := target.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tracker.Add(r)
	}
	if f := tracker.Figures(); !f.Known || f.In != 0 || f.Out != 0 || f.Most != 2 {
		t.Errorf("nothing comes, and %+v", f)
	}
}

// TestScalerOnKafka: wakes from zero for a group that nobody has joined, follows what is done, and says so when it cannot see.
func TestScalerOnKafka(t *testing.T) {
	t.Parallel()
	cluster, broker := startKafka(t, kfake.SeedTopics(3, "orders", "orders-retry-1s"))
	dir, grpcPort, httpPort, admin := t.TempDir(), freePort(t), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", `admin: {listen: "127.0.0.1:`+admin+`"}
consumers:
  orders:
    source: {kafka: {brokers: ["`+broker+`"], topics: [orders], group: workers}}
    retry: {topics: [{topic: orders-retry-1s, delay: 1s}]}
    routes: [{handler: log}]
`)
	produceKafka(t, broker, "orders", 600)
	p := launch(t, dir, "scaler", "-c", "c.yaml", "--listen", "127.0.0.1:"+grpcPort, "--http", "127.0.0.1:"+httpPort, "--every",
		"100ms",
		"--per-replica", "10", "--processes", "127.0.0.1:"+admin)
	p.eventually(t, "it listens", func() bool { return strings.Contains(p.stderr.String(), `"event":"scaler"`) })
	c := dialScaler(t, "127.0.0.1:"+grpcPort)
	if a, err := c.IsActive(t.Context(), ref()); err != nil || !a.Result {
		t.Fatalf("600 wait: %v, %v", a, err)
	}
	m, err := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref("drainSeconds", "10")})
	if err != nil || m.MetricValues[0].MetricValueFloat != 3 {
		t.Errorf("600 in 10 s at 8/s is more than 3 partitions: %v, %v", m, err)
	}
	run := launch(t, dir, "run", "-c", "c.yaml")
	row := func() (r scalerRow) {
		_, body, _ := strings.Cut(fetch("http://127.0.0.1:"+httpPort+"/scaler/orders"), "\n")
		_ = json.Unmarshal([]byte(body), &r)
		return r
	}
	run.eventually(t, "all is done, one process told what it does", func() bool {
		r := row()
		return r.Backlog != nil && *r.Backlog == 0 && r.Processes != nil && *r.Processes == 1 && r.PerReplica != nil
	})
	cluster.Close()
	p.eventually(t, "nothing is known", func() bool {
		_, err := c.IsActive(t.Context(), ref())
		_, err2 := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref()})
		return status.Code(err) == codes.Unavailable && status.Code(err2) == codes.Unavailable &&
			strings.HasPrefix(fetch("http://127.0.0.1:"+httpPort+"/scaler/orders"), "503")
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	if events := wantJSONLines(t, p.stderr.String()); events["scaler"] != 1 || events["scaler_blind"] != 1 ||
		events["stopped"] != 1 {
		t.Error(p.stderr.String())
	}
}

func produceKafka(t *testing.T, broker, topic string, n int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Value: []byte("{}")}
	}
	if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// TestScalerOnJetStream: a durable that is not there yet asks for a process that makes it, one with an order for one process,
// whatever waits.
func TestScalerOnJetStream(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	file := func(name, order, rest string) {
		writeFile(t, dir, name, `embedded: {port: `+port+`}
consumers:
  orders:
    source: {nats: {`+rest+`stream: ORDERS, subjects: ["orders.>"], durable: workers}}
    order: `+order+`
    routes: [{handler: exec, with: {command: [sleep, "600"]}}]
`)
	}
	file("none.yaml", "none", `url: "nats://127.0.0.1:`+port+`", create_stream: true, `)
	file("key.yaml", "key", `url: "nats://127.0.0.1:`+port+`", `)
	file("embedded.yaml", "none", "")
	writeFile(t, dir, "other.yaml", `embedded: {port: `+port+`}
consumers:
  other:
    source: {nats: {stream: OTHER, subjects: [other], durable: other}}
    routes: [{handler: log}]
`)
	server := launch(t, dir, "run", "-c", "other.yaml")
	server.eventually(t, "running", func() bool { return strings.Contains(server.stderr.String(), `"state":"running"`) })

	scaler := func(file string) (*program, pb.ExternalScalerClient) {
		at := freePort(t)
		p := launch(t, dir, "scaler", "-c", file, "--listen", "127.0.0.1:"+at, "--every", "100ms", "--per-replica", "1")
		p.eventually(t, "it listens", func() bool { return strings.Contains(p.stderr.String(), `"event":"scaler"`) })
		return p, dialScaler(t, "127.0.0.1:"+at)
	}
	value := func(c pb.ExternalScalerClient) float64 {
		m, err := c.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: ref()})
		if err != nil {
			return -1
		}
		return m.MetricValues[0].MetricValueFloat
	}
	p, free := scaler("none.yaml")
	if v := value(free); v != 1 {
		t.Fatalf("no stream and no durable: %v; %s", v, p.stderr.String())
	}
	server.signal(t, syscall.SIGTERM)
	server.code(t)
	run := launch(t, dir, "run", "-c", "embedded.yaml")
	run.eventually(t, "running", func() bool { return strings.Contains(run.stderr.String(), `"state":"running"`) })
	if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "480", "--rate", "0"); p.code(t) != 0 {
		t.Fatalf("produce: %s", p.stderr.String())
	}
	p.eventually(t, "480 in a minute, and what comes", func() bool { return value(free) >= 480.0/60/0.8 })
	pauseUntil := func(until time.Time) {
		nc, err := nats.Connect("nats://127.0.0.1:" + port)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PauseConsumer(t.Context(), "ORDERS", "workers", until); err != nil {
			t.Fatal(err)
		}
	}
	pauseUntil(time.Now().Add(time.Hour))
	p.eventually(t, "what is paused at the server asks for no more", func() bool { return value(free) == 1 })
	pauseUntil(time.Time{})
	p.eventually(t, "it is not any more", func() bool { return value(free) >= 480.0/60/0.8 })
	_, ordered := scaler("key.yaml")
	p.eventually(t, "one process has the turn", func() bool { return value(ordered) == 1 })
	_, embedded := scaler("embedded.yaml")
	p.eventually(t, "the embedded server has one process", func() bool { return value(embedded) == 1 })
}

// TestScalerFlags: all that is wrong at once.
func TestScalerFlags(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), "scaler", "--listen", "9091", "--http", "x", "--processes", ":8080", "--tls-cert", "c",
		"--per-replica", "-1", "--drain", "0s", "--every", "1h")
	for _, want := range []string{"--config", "--listen", "--http", "--processes", "--tls-key", "--per-replica", "--drain",
		"--every"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	var use usageError
	if !errors.As(err, &use) {
		t.Errorf("%v is not about the use", err)
	}
	for args, want := range map[string]string{
		"run -c c.yaml --scaler here --scaler-http there": "--scaler is \"here\", want host:port\n" +
			"--scaler-http is \"there\", want host:port",
		"scaler -c c.yaml --listen :99999 --http :http --processes h:0": "--listen is \":99999\", want host:port\n" +
			"--http is \":http\", want host:port\n--processes is \"h:0\", want host:port",
		"scaler -c c.yaml --per-replica 2e9": "--per-replica is 2e+09, want 0 to 1e+09",
	} {
		if _, err := run(t.Context(), strings.Fields(args)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestScalerCertificateWithoutEnd: of what is no certificate not more is read than one has.
func TestScalerCertificateWithoutEnd(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long")
	if err := errors.Join(os.WriteFile(long, nil, 0o600), os.Truncate(long, namedfile.Most+1)); err != nil {
		t.Fatal(err)
	}
	_, err := newScalerServer(fakeTargets("orders"), replicas.Settings{}, long, long)
	if err == nil || !strings.Contains(err.Error(), long+" has more than") {
		t.Errorf("%v", err)
	}
}

// TestRunAndScale: a process that runs consumers answers, too; what it does itself is what one process does, and it does not
// say how many there are.
func TestRunAndScale(t *testing.T) {
	t.Parallel()
	dir, port, at, page := t.TempDir(), freePort(t), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", `admin: {listen: "0.0.0.0:0"} # any free port: it asks where it is served
embedded: {port: `+port+`}
consumers:
  orders:
    source: {nats: {stream: ORDERS, subjects: ["orders.>"], durable: workers}}
    routes: [{handler: exec, with: {command: ["true"]}}]
`)
	p := launch(t, dir, "run", "-c", "c.yaml", "--scaler", "127.0.0.1:"+at, "--scaler-http", "127.0.0.1:"+page)
	p.eventually(t, "running", func() bool { return strings.Contains(p.stderr.String(), `"state":"running"`) })
	produce := func() {
		if p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "20", "--rate", "0"); p.code(t) != 0 {
			t.Fatalf("produce: %s", p.stderr.String())
		}
	}
	produce()
	p.eventually(t, "it tells what a process does", func() bool {
		var row scalerRow
		_, body, _ := strings.Cut(fetch("http://127.0.0.1:"+page+"/scaler/orders"), "\n")
		return json.Unmarshal([]byte(body), &row) == nil && row.PerReplica != nil && row.Processes == nil && row.Replicas != nil
	})
	produce() // the first may have come before it looked for the first time
	client := dialScaler(t, "127.0.0.1:"+at)
	p.eventually(t, "it has seen that some came", func() bool {
		a, err := client.IsActive(t.Context(), ref())
		return err == nil && a.Result
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.code(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	before, _, began := strings.Cut(p.stderr.String(), `"event":"scaler"`)
	if !began || !strings.Contains(before, `"event":"embedded_nats"`) || strings.Contains(p.stderr.String(), "scaler_blind") {
		t.Errorf("it was asked before its streams were there:\n%s", p.stderr.String())
	}
	taken := launch(t, dir, "run", "-c", "c.yaml", "--scaler", "192.0.2.1:"+at) // for documents
	if code := taken.code(t); code != 1 || !strings.Contains(taken.stderr.String(), "scaler: listening") {
		t.Errorf("an address that is not ours: exit code %d: %s", code, taken.stderr.String())
	}
	if _, err := run(t.Context(), "run", "-c", "c.yaml", "--scaler-http", ":1"); err == nil ||
		!strings.Contains(err.Error(), "--scaler is not") {
		t.Errorf("%v", err)
	}
}

// TestRunWithScalerEndsWithItsConsumers: what ends a run ends the scaler beside it, too. It has nothing to wait for any more, and
// as long as the process is there nobody starts another one.
func TestRunWithScalerEndsWithItsConsumers(t *testing.T) {
	t.Parallel()
	nats := testNATS(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for name, c := range map[string]struct{ more, source, want string }{
		"a consumer that fails":    {"", "stream: NONE, missing: stop", "NONE"},
		"an address that is taken": {"admin: {listen: " + taken.Addr().String() + "}\n", "stream: NONE", "admin.listen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, dir, "c.yaml", fmt.Sprintf(
				"%sconsumers:\n  orders:\n    source: {nats: {url: %q, durable: d, %s}}\n    routes: [{handler: log}]\n", c.more,
				"nats://"+nats, c.source))
			p := launch(t, dir, "run", "-c", "c.yaml", "--scaler", "127.0.0.1:"+freePort(t))
			if code := p.code(t); code != exitFailed || !strings.Contains(p.stderr.String(), c.want) {
				t.Errorf("exit code %d; stderr:\n%s", code, p.stderr.String())
			}
		})
	}
}

// TestScalerThatEndsARunIsToldOnce: the consumers end for its sake, and say so; that it ended says the same.
func TestScalerThatEndsARunIsToldOnce(t *testing.T) {
	t.Parallel()
	dir, nats := t.TempDir(), testNATS(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	writeFile(t, dir, "c.yaml", "consumers:\n  orders:\n    source: {nats: {url: \"nats://"+nats+
		"\", durable: d, stream: NONE}}\n    routes: [{handler: log}]\n")
	p := launch(t, dir, "run", "-c", "c.yaml", "--scaler", taken.Addr().String())
	if code := p.code(t); code != exitFailed || strings.Count(p.stderr.String(), "scaler: listening") != 1 {
		t.Errorf("exit code %d; stderr:\n%s", code, p.stderr.String())
	}
}
