package program

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spanproto "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector takes what is sent by OTLP over HTTP, and keeps it.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*spanproto.Span
	resource map[string]string
	metrics  map[string]bool
	tokens   map[string]bool // what it was sent as its header
	problems []string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{resource: map[string]string{}, metrics: map[string]bool{}, tokens: map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[r.Header.Get("X-Token")] = true
	switch {
	case err != nil:
	case r.URL.Path == "/v1/traces":
		var req collecttrace.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &req); err == nil {
			for _, rs := range req.ResourceSpans {
				attributes(c.resource, rs.Resource.Attributes)
				for _, ss := range rs.ScopeSpans {
					c.spans = append(c.spans, ss.Spans...)
				}
			}
		}
	case r.URL.Path == "/v1/metrics":
		var req collectmetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &req); err == nil {
			for _, rm := range req.ResourceMetrics {
				for _, sm := range rm.ScopeMetrics {
					for _, m := range sm.Metrics {
						c.metrics[m.Name] = true
					}
				}
			}
		}
	default:
		err = fmt.Errorf("nothing is at %s", r.URL.Path)
	}
	if err != nil {
		c.problems = append(c.problems, err.Error())
	}
}

func attributes(to map[string]string, from []*common.KeyValue) {
	for _, kv := range from {
		to[kv.Key] = kv.Value.GetStringValue()
	}
}

// named are the spans of a name.
func (c *collector) named(name string) (all []*spanproto.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

// TestTracesOfARun: what a run sends to a collector: a span for each call, linked to the producer's, one for what its handler
// publishes and for the dead letter, as who the file says, with its headers; its metrics; and the same ids in the log.
func TestTracesOfARun(t *testing.T) {
	t.Parallel()
	to := newCollector(t)
	dir, admin, port := t.TempDir(), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
embedded: {port: %s}
tracing:
  endpoint: %s
  headers: {X-Token: "${TOKEN:-sesame}"}
  sample: 0
  resource: {deployment.environment.name: test}
metrics: {otlp: true}
consumers:
  orders:
    source: {nats: {stream: ORDERS, subjects: ["orders.>"], durable: workers}}
    dead_letter: {to: dead.orders}
    routes:
      - {match: orders.copy, handler: publish, with: {to: copies.orders}}
      - {handler: exec, with: {command: ["sh", "-c", "echo $TRACEPARENT; exit 65"]}}
  copies:
    source: {nats: {stream: COPIES, subjects: ["copies.>"], durable: copiers}}
    routes: [{handler: log}]
`, admin, port, to.URL))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	const made = "0af7651916cd43dd8448eb211c80319c"
	for subject, flags := range map[string]string{"orders.copy": "01", "orders.bad": "01", "orders.copy.not": "00"} {
		p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--subject", subject, "--count", "1", "--header",
			"traceparent=00-"+made+"-b7ad6b7169203331-"+flags)
		if p.code(t) != 0 {
			t.Fatal(p.stderr.String())
		}
	}
	run.eventually(t, "all handled", func() bool {
		return metric(admin, "dead_lettered_messages_total", "orders", 2) && metric(admin, "handled_messages_total", "copies", 1)
	})
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Fatalf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
	calls := to.named("process orders.>")
	if len(calls) != 2 || len(to.named("send copies.orders")) != 1 || len(to.named("send dead.orders")) != 1 ||
		len(to.named("process copies.>")) != 1 {
		t.Fatalf("the spans are %v", to.spans)
	}
	failed := ""
	for _, s := range calls {
		if len(s.Links) != 1 || fmt.Sprintf("%x", s.Links[0].TraceId) != made || s.Kind != spanproto.Span_SPAN_KIND_CONSUMER {
			t.Errorf("%v", s)
		}
		if s.Status.Code == spanproto.Status_STATUS_CODE_ERROR {
			failed = fmt.Sprintf(`"trace_id":"%x","span_id":"%x"`, s.TraceId, s.SpanId)
			if !strings.Contains(s.Status.Message, fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId)) {
				t.Errorf("the command was told of another span than %x-%x: %s", s.TraceId, s.SpanId, s.Status.Message)
			}
		}
	}
	send, next := to.named("send copies.orders")[0], to.named("process copies.>")[0]
	if len(next.Links) != 1 || string(next.Links[0].SpanId) != string(send.SpanId) {
		t.Errorf("the call of what was published is linked to %v, want %x", next.Links, send.SpanId)
	}
	for _, event := range []string{"failed", "dead_lettered"} {
		found := false
		for line := range strings.Lines(run.stderr.String()) {
			found = found || strings.Contains(line, `"event":"`+event+`"`) && strings.Contains(line, failed)
		}
		if !found || failed == "" {
			t.Errorf("no event %s with %s in\n%s", event, failed, run.stderr.String())
		}
	}
	if to.resource["service.name"] != "longshore" || to.resource["deployment.environment.name"] != "test" || !to.tokens["sesame"] ||
		len(to.tokens) != 1 {
		t.Errorf("resource %v, tokens %v", to.resource, to.tokens)
	}
	if !to.metrics["longshore_handled_messages_total"] || len(to.problems) > 0 {
		t.Errorf("metrics %v, problems %v", to.metrics, to.problems)
	}
}

// TestCollectorThatHangs: a collector that takes requests and never answers holds up neither messages nor the stop, and the log
// says that nothing arrives.
func TestCollectorThatHangs(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(hang)
	dir, admin, port := t.TempDir(), freePort(t), freePort(t)
	writeFile(t, dir, "c.yaml", fmt.Sprintf(`admin: {listen: "127.0.0.1:%s"}
embedded: {port: %s}
kill_grace: 20s
tracing: {endpoint: "%s", sample: 1}
consumers:
  orders:
    source: {nats: {stream: ORDERS, subjects: ["orders.>"], durable: workers}}
    routes: [{handler: log}]
`, admin, port, s.URL))
	run := launch(t, dir, "run", "-c", "c.yaml")
	run.eventually(t, "ready", func() bool { return strings.HasPrefix(fetch("http://127.0.0.1:"+admin+"/readyz"), "200") })
	p := launch(t, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "5000", "--rate", "0")
	if p.code(t) != 0 {
		t.Fatal(p.stderr.String())
	}
	run.eventually(t, "all handled", func() bool { return metric(admin, "handled_messages_total", "orders", 5000) })
	run.signal(t, syscall.SIGTERM)
	if code := run.code(t); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, run.stderr.String())
	}
	if !strings.Contains(run.stderr.String(), `"event":"export_failed"`) {
		t.Errorf("nothing says that no span arrives:\n%s", run.stderr.String())
	}
}

const someConsumer = "consumers: {orders: {source: {nats: {stream: ORDERS, subjects: [\"orders.>\"], durable: w}}, routes: " +
	"[{handler: log}]}}\n"

// exportingFrom is what a file and an environment say, and what is wrong with them.
func exportingFrom(t *testing.T, text string, env map[string]string) (exporting, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text+someConsumer), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	doc, err := config.Load(file, look)
	if err != nil {
		return exporting{}, err
	}
	x := exportingOf(doc, look)
	return x, doc.Err()
}

// TestWhatIsExported: the file decides, and where it says nothing, the variables of OpenTelemetry do.
func TestWhatIsExported(t *testing.T) {
	const at = "http://127.0.0.1:4318"
	type vars = map[string]string
	for name, c := range map[string]struct {
		file           string
		env            vars
		spans, metrics bool
		sampling
	}{
		"nothing":  {"", nil, false, false, sampling{}},
		"the file": {"tracing: {endpoint: " + at + "}\n", nil, true, false, sampling{}},
		"the file's share": {"tracing: {endpoint: " + at + ", sample: 0.5}\n", vars{"OTEL_TRACES_SAMPLER": "always_on"}, true,
			false, sampling{0.5, false}},
		"the file's none": {"tracing: {endpoint: " + at + ", sample: 0}\n", nil, true, false, sampling{-1, false}},
		"a variable":      {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at}, true, false, sampling{}},
		"that of spans": {"tracing: {sample: 1}\n", vars{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": at}, true, false,
			sampling{1, false}},
		"that of metrics": {"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at}, false, true, sampling{}},
		"both":            {"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at}, true, true, sampling{}},
		"headers": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_HEADERS": " a = b%20c,x=y=z%0a, "}, true, false,
			sampling{}},
		"disabled": {"tracing: {endpoint: " + at + "}\nmetrics: {otlp: true}\n", vars{"OTEL_SDK_DISABLED": "true"}, false,
			false, sampling{}},
		"of spans that go nowhere": {"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "pw",
			"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": at}, false, true, sampling{}},
		"a sampler, and no spans": {"", vars{"OTEL_TRACES_SAMPLER": "jaeger_remote"}, false, false, sampling{}},
		"a sampler of spans that go nowhere": {"metrics: {otlp: true}\n", vars{"OTEL_TRACES_SAMPLER": "jaeger_remote",
			"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": at}, false, true, sampling{}},
		"a protocol of spans that go nowhere": {"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
			"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": at}, false, true, sampling{}},
		"no exporter of spans": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_EXPORTER": "none"}, false, false,
			sampling{}},
		"headers to this machine": {"tracing: {endpoint: " + at + ", headers: {a: b}}\n", nil, true, false, sampling{}},
		"headers with TLS":        {"tracing: {endpoint: \"https://host\", headers: {a: b}}\n", nil, true, false, sampling{}},
		"headers in clear, as the file allows": {"tracing: {endpoint: \"http://host\", headers: {a: b}, plaintext_auth: true}\n", nil,
			true, false, sampling{}},
		"no headers in clear": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=b"},
			true, false, sampling{}},
		"a variable's headers with TLS": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://host", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, true, false, sampling{}},
		"a variable's headers with TLS, as another one says": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host",
			"OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "false", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"},
			true, false, sampling{}},
		"a variable's headers in clear, as the file allows": {"tracing: {plaintext_auth: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, true, false, sampling{}},
		"a variable's headers to this machine": {"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
			"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://[::1]:4318/v1/metrics", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, true, true,
			sampling{}},
		"headers of metrics alone in clear, as the file allows": {"metrics: {otlp: true}\ntracing: {plaintext_auth: true}\n",
			vars{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://host", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, false, true, sampling{}},
		"a resource of metrics alone": {"metrics: {otlp: true}\ntracing: {resource: {a: b}}\n",
			vars{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at}, false, true, sampling{}},
		"a variable's headers, which the file's endpoint does not get": {"tracing: {endpoint: \"http://host\"}\n",
			vars{"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, true, false, sampling{}},
		"the file's is all HTTP": {"tracing: {endpoint: " + at + "}\n", vars{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, false,
			sampling{}},
	} {
		x, err := exportingFrom(t, c.file, c.env)
		if err != nil || x.spans != c.spans || x.metrics != c.metrics || x.sampling != c.sampling {
			t.Errorf("%s: %+v %v", name, x, err)
		}
	}
	for want, c := range map[string]struct {
		file string
		env  vars
	}{
		"c.yaml:1: tracing.endpoint: is missing": {"tracing: {sample: 1}\n", nil},
		"c.yaml:2: tracing.endpoint: is missing": {"metrics: {otlp: true}\ntracing: {plaintext_auth: true, keys: true}\n",
			vars{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": at}},
		"c.yaml:1: metrics.otlp: is true, and there is no endpoint": {"metrics: {otlp: true}\n", nil},
		"tracing.endpoint: is not a URL of OTLP over HTTP":          {"tracing: {endpoint: \"127.0.0.1:4318\"}\n", nil},
		"tracing.endpoint: has a query or a fragment":               {"tracing: {endpoint: \"http://host/otlp?key=pw\"}\n", nil},
		"tracing.endpoint: has a query or a fragment, and":          {"tracing: {endpoint: \"http://host/#otlp\"}\n", nil},
		"tracing.headers: has a header that cannot be sent: ":       {"tracing: {endpoint: " + at + ", headers: {api key: x}}\n", nil},
		"tracing.endpoint: has a login":                             {"tracing: {endpoint: \"http://me:pw@host\"}\n", nil},
		"tracing.sample: is 2":                                      {"tracing: {endpoint: " + at + ", sample: 2}\n", nil},
		"tracing.relation: is \"child\"":                            {"tracing: {endpoint: " + at + ", relation: child}\n", nil},
		"tracing.headers: has a header that cannot be sent": {"tracing: {endpoint: " + at +
			", headers: {a: \"b\\nc\"}}\n", nil},
		"OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\", want http/protobuf": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}},
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is \"grpc\", want http/protobuf": {"metrics: {otlp: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"}},
		"OTEL_SDK_DISABLED to true to send nothing": {"", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}},
		"c.yaml: tracing: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL of OTLP over HTTP, as http://127.0.0.1:4318": {
			"metrics: {otlp: true}\n", vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "pw.example.com:4317"}},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is not a URL": {"metrics: {otlp: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http//pw"}},
		"c.yaml: tracing: OTEL_EXPORTER_OTLP_HEADERS has a header that cannot be sent": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_HEADERS": "a=b,Authorization: Bearer pw"}},
		"OTEL_EXPORTER_OTLP_METRICS_HEADERS has a header": {"metrics: {otlp: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
				"OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=100%pw"}},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS has a header": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=pw%0ab"}},
		"c.yaml:1: tracing.endpoint: is plain http, and headers would go there without TLS; use https:// or set plaintext_auth": {
			"tracing: {endpoint: \"http://otel.example.com:4318\", headers: {Authorization: Bearer pw}}\n", nil},
		"c.yaml: tracing: OTEL_EXPORTER_OTLP_HEADERS would go to OTEL_EXPORTER_OTLP_ENDPOINT without TLS; use https:// or set " +
			"tracing.plaintext_auth": {"metrics: {otlp: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel.example.com:4318", "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=pw"}},
		"OTEL_EXPORTER_OTLP_METRICS_HEADERS would go to OTEL_EXPORTER_OTLP_METRICS_ENDPOINT without TLS": {"metrics: {otlp: true}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example.com", "OTEL_EXPORTER_OTLP_HEADERS": "a=pw",
				"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://otel.example.com/m", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "b=pw"}},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS would go to OTEL_EXPORTER_OTLP_ENDPOINT without TLS": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example.com", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=pw",
				"OTEL_EXPORTER_OTLP_INSECURE": "True"}},
		"c.yaml:1: tracing.headers: go to tracing.endpoint only, which is missing": {"tracing: {headers: {a: pw}}\n",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at}},
		"OTEL_TRACES_SAMPLER is \"jaeger_remote\", want one of always_on": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_SAMPLER": "jaeger_remote"}},
		"OTEL_TRACES_SAMPLER_ARG is \"much\"": {"",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "much"}},
	} {
		if _, err := exportingFrom(t, c.file, c.env); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "pw") {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// TestSamplers: the six samplers that OpenTelemetry has.
func TestSamplers(t *testing.T) {
	for name, want := range map[string]sampling{
		"": {}, "always_on": {1, true}, "always_off": {-1, true}, "traceidratio": {0.25, true}, "parentbased_always_on": {1, false},
		"parentbased_always_off": {-1, false}, "parentbased_traceidratio": {0.25, false},
	} {
		if got, err := samplerOf(name, "0.25"); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, want)
		}
	}
	if got, err := samplerOf("traceidratio", ""); err != nil || got.sample != 1 {
		t.Errorf("without an argument: %+v %v", got, err)
	}
	for _, arg := range []string{"-0.1", "1.1", "NaN", "x"} {
		if got, err := samplerOf("traceidratio", arg); err == nil {
			t.Errorf("%s: %+v", arg, got)
		}
	}
}
