package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/longshoremq/longshore"

// layers is the architecture: what each package may import. Inside the module by path below it, outside by module prefix; "std"
// is the standard library, which all may import. A package that is not listed fails the test, so that a new one gets its place on
// purpose. Tests of a package may import more (see testsAlso).
var layers = []layer{
	{"broker", []string{"internal/namedfile"}},
	{"pool", nil},
	{"consumer", []string{"broker", "internal/absence", "internal/chance", "internal/letterheader", "pool", "internal/conftag",
		"internal/joined", "internal/published", "github.com/rs/zerolog"}},

	// Around the engine: none of them knows an adapter.
	{"consumer/admin", []string{"broker", "consumer", "pool", "github.com/prometheus", "github.com/rs/zerolog"}},
	{"consumer/admin/page", []string{"broker", "consumer", "consumer/admin", "consumer/admin/page/internal/chart",
		"consumer/metrics", "deadletters", "internal/panicked", "github.com/rs/zerolog", "golang.org/x/time"}},
	{"consumer/admin/page/internal/chart", nil},
	{"consumer/metrics", []string{"broker", "consumer", "pool", "github.com/prometheus"}},
	{"consumer/tracing", []string{"broker", "consumer", "internal/conftag", "github.com/hashicorp/golang-lru/v2",
		"github.com/rs/zerolog", "go.opentelemetry.io/otel"}},
	{"deadletters", []string{"broker", "internal/letterheader", "internal/published", "golang.org/x/time"}},
	{"handlers", []string{"broker", "consumer", "consumer/tracing", "internal/absence", "internal/namedfile", "internal/panicked",
		"internal/plaintext", "github.com/rs/zerolog"}},
	{"handlers/protobuf", []string{"consumer", "handlers", "google.golang.org/protobuf"}},
	{"handlers/middleware", []string{"broker", "consumer", "handlers", "internal/conftag", "github.com/hashicorp/golang-lru/v2",
		"github.com/rs/zerolog",
		"golang.org/x/time"}},

	// Beside the engine, for handlers: it knows a database, and of messages what the contract says.
	{"inbox", []string{"broker"}},

	// Adapters: the contract, the parts that they share, and their client, never each other.
	{"broker/kit", []string{"broker", "broker/internal/contact"}},
	{"broker/membroker", []string{"broker", "broker/kit"}},
	{"broker/natsbroker", []string{"broker", "broker/kit", "internal/chance", "internal/dialer", "internal/plaintext",
		"internal/conftag", "internal/namedfile", "internal/natssubject", "github.com/nats-io"}},
	{"broker/kafkabroker", []string{"broker", "broker/kit", "internal/chance", "internal/dialer", "internal/plaintext",
		"internal/conftag", "internal/namedfile",
		"github.com/segmentio/kafka-go", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4"}},
	{"broker/internal/contact", nil},
	// One memory for all that publish to topics which may not exist.
	{"internal/absence", []string{"broker"}},
	// One reading of what a publisher returned.
	{"internal/published", []string{"broker", "internal/joined"}},
	// Errors that were joined.
	{"internal/joined", nil},
	// Jitter, which a simulation repeats.
	{"internal/chance", nil},
	// How tests of the whole let them connect.
	{"internal/dialer", nil},
	// What Configs say of themselves, for Go and for the file.
	{"internal/conftag", []string{"broker"}},
	// What the consumer writes on a dead letter, and deadletters reads.
	{"internal/letterheader", []string{"broker"}},
	// How many processes a consumer needs: a decision, which asks nobody.
	{"internal/replicas", nil},
	// One rule for all that send secrets.
	{"internal/plaintext", nil},
	// One rule for all that compare subjects.
	{"internal/natssubject", nil},
	// Where it was, for an error.
	{"internal/panicked", nil},
	// One bound for all that read files which somebody names.
	{"internal/namedfile", nil},
	// The conformance suite: a library for tests.
	{"broker/brokertest", []string{"broker", "broker/brokertest/ledger", "go.uber.org/goleak"}},
	{"broker/brokertest/faultproxy", nil},
	{"broker/brokertest/ledger", []string{"broker"}},

	// The program: the only place that knows all parts.
	{"program", []string{"broker", "broker/kafkabroker", "broker/membroker", "broker/natsbroker", "consumer", "consumer/admin",
		"consumer/admin/page", "consumer/metrics", "consumer/tracing", "deadletters",
		"handlers", "handlers/middleware", "pool", "program/internal/config", "program/internal/externalscaler", "internal/conftag",
		"internal/namedfile", "internal/natssubject", "internal/panicked", "internal/plaintext", "internal/published",
		"internal/replicas", "github.com", "golang.org/x",
		"go.opentelemetry.io", "google.golang.org/grpc"}},
	// Generated from KEDA's interface.
	{"program/internal/externalscaler", []string{"google.golang.org/grpc", "google.golang.org/protobuf"}},
	{"program/internal/config", []string{"broker", "consumer", "handlers", "internal/namedfile", "internal/plaintext", "pool",
		"internal/conftag", "internal/natssubject",
		"broker/kafkabroker", "broker/natsbroker", "github.com", "go.yaml.in", "gopkg.in"}},
	{"cmd/longshore", []string{"handlers", "program"}},

	// Tests across packages, and what they need to break things.
	{"integration", []string{"*"}},
	{"integration/sim", []string{"*"}},
	{"integration/autoscaler", nil},
	{"integration/daemon", nil},
	{"integration/natsd", []string{"integration/daemon"}},
	{"integration/kafkad", []string{"integration/daemon", "broker/brokertest/faultproxy", "github.com/gofrs/flock",
		"github.com/twmb/franz-go", "golang.org/x/sync"}},
	{"integration/ledger", nil},
	{"integration/sim/memnet", nil},
}

// testsAlso is what tests may import besides what their package may, and besides the package itself.
var testsAlso = []string{"broker", "broker/brokertest", "broker/membroker", "consumer", "integration/autoscaler",
	"integration/daemon", "integration/kafkad", "pool",
	"go.uber.org/goleak", "golang.org/x/net/html", "golang.org/x/net/http2", "pgregory.net/rapid",
	"github.com/nats-io", "github.com/prometheus",
	"github.com/rs/zerolog",
	"github.com/segmentio/kafka-go", "github.com/twmb/franz-go", "go.opentelemetry.io/otel", "google.golang.org/protobuf"}

type layer struct {
	path string
	may  []string
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		i := slices.IndexFunc(layers, func(l layer) bool { return l.path == path })
		if i < 0 {
			t.Errorf("package %s is not in the table of layers: give it a place there", path)
			continue
		}
		seen[path] = true
		for _, imp := range p.Imports {
			if !allowed(imp, layers[i].may) {
				t.Errorf("%s imports %s; it may import: std %s", path, imp, strings.Join(layers[i].may, " "))
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if imp != p.ImportPath && !allowed(imp, layers[i].may) && !allowed(imp, testsAlso) {
				t.Errorf("tests of %s import %s; they may import also: %s", path, imp, strings.Join(testsAlso, " "))
			}
		}
	}
	for _, l := range layers {
		if !seen[l.path] {
			t.Errorf("the table of layers has %s, which does not exist", l.path)
		}
	}
}

// TestLayersSeesBreaches is the proof that the test above can fail.
func TestLayersSeesBreaches(t *testing.T) {
	for _, c := range []struct {
		imp  string
		may  []string
		want bool
	}{
		{"fmt", nil, true},
		{"encoding/json", nil, true},
		{"github.com/rs/zerolog", nil, false},
		{"github.com/rs/zerolog/log", []string{"github.com/rs/zerolog"}, true},
		{"github.com/rs/zerologger", []string{"github.com/rs/zerolog"}, false},
		{module + "/broker", []string{"broker"}, true},
		{module + "/broker/natsbroker", []string{"broker"}, false},
		{module + "/consumer", []string{"github.com"}, false},
		{module + "/integration/natsd", []string{"*"}, true},
	} {
		if got := allowed(c.imp, c.may); got != c.want {
			t.Errorf("allowed(%q, %q) = %v, want %v", c.imp, c.may, got, c.want)
		}
	}
}

func allowed(imp string, may []string) bool {
	if slices.Contains(may, "*") {
		return true
	}
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		return slices.Contains(may, own)
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(may, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var ps []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatalf("go list's output: %v", err)
		}
		ps = append(ps, p)
	}
}
