package tracing

import (
	"bytes"
	"context"
	"encoding/binary"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// theirs is what OpenTelemetry's own propagator reads.
func theirs(parent, state string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

func headers(pairs ...string) broker.Headers {
	var hs []broker.Header
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, broker.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return broker.NewHeaders(hs...)
}

var parents = []string{
	sampled, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "", "00", "00-", "-", "---", sampled + "-", sampled +
		"-x", sampled + "-00", "cc" + sampled[2:], "cc" + sampled[2:] + "-what is new",
	"ff" + sampled[2:], "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	"00-00000000000000000000000000000000-b7ad6b7169203331-01",
	"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", sampled[:53] + "02", sampled[:53] + "03", sampled[:53] +
		"04", sampled[:53] + "ff", "01" + sampled[2:53] + "ff", " " + sampled, sampled + " ",
	strings.Repeat("0", 55), strings.Repeat("-", 55), sampled[:54], sampled[:54] + "\xff", sampled + sampled,
}

var states = []string{"", "a=b", "a=b,c=d", "a=b,a=c", "a", "=", ",,,", strings.Repeat("a=b,", 40), "A=b", "a=" +
	strings.Repeat("x", 300), "a=b,\x00"}

// What is read of a traceparent and a tracestate is what OpenTelemetry's propagator reads.
func TestExtractAsOpenTelemetry(t *testing.T) {
	for _, parent := range parents {
		for _, state := range states {
			got, want := Extract(headers("traceparent", parent, "tracestate", state)), theirs(parent, state)
			if !got.Equal(want) {
				t.Errorf("%q %q: %+v, want %+v", parent, state, got, want)
			}
		}
	}
}

func FuzzExtract(f *testing.F) {
	for i, parent := range parents {
		f.Add(parent, states[i%len(states)])
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		if len(state) > maxState {
			return
		}
		got, want := Extract(headers("traceparent", parent, "tracestate", state)), theirs(parent, state)
		if !got.Equal(want) {
			t.Fatalf("%q %q: %+v, want %+v", parent, state, got, want)
		}
		if again := Extract(broker.NewHeaders(headersOf(got)...)); got.IsValid() && !again.Equal(got) {
			t.Fatalf("%+v written and read again is %+v", got, again)
		}
	})
}

// Whoever may publish may write anything: the last of many headers counts, either way of writing the name is taken, and what is
// too long is left.
func TestExtractHostile(t *testing.T) {
	var many []broker.Header
	for range 10_000 {
		many = append(many, broker.Header{Key: "traceparent", Value: []byte("no")})
	}
	many = append(many, broker.Header{Key: "traceparent", Value: []byte(sampled)})
	want := theirs(sampled, "")
	for name, h := range map[string]broker.Headers{
		"10,000 of them":      broker.NewHeaders(many...),
		"a capital":           headers("Traceparent", sampled),
		"both":                headers("Traceparent", "no", "traceparent", sampled),
		"a tracestate of 1MB": headers("traceparent", sampled, "tracestate", strings.Repeat("a=b,", 1<<18)),
		"a member of 1 MB":    headers("traceparent", sampled, "tracestate", "a="+strings.Repeat("b", 1<<20)),
		"nil tracestate": broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(sampled)},
			broker.Header{Key: "tracestate"}),
	} {
		if got := Extract(h); !got.Equal(want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	cut := broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(sampled)})
	cut.Raw = binary.AppendUvarint(cut.Raw, 1<<40)
	if got := Extract(cut); !got.Equal(want) {
		t.Errorf("with a header cut short behind it: %+v", got)
	}
}

// A span goes into headers in place of what stood there, and the caller's headers stay as they are.
func TestInject(t *testing.T) {
	ctx := trace.ContextWithSpanContext(t.Context(), theirs(sampled, "a=b"))
	hs := []broker.Header{{Key: "Traceparent", Value: []byte("x")}, {Key: "a", Value: []byte("1")},
		{Key: "tracestate", Value: []byte("old=1")}, {Key: "traceparent", Value: []byte("y")}}
	got := Inject(ctx, hs)
	if len(got) != 3 || got[0].Key != "a" || string(got[1].Value) != sampled || string(got[2].Value) != "a=b" {
		t.Errorf("%q", got)
	}
	if len(hs) != 4 || string(hs[3].Value) != "y" {
		t.Errorf("the caller's: %q", hs)
	}
	if got := Inject(t.Context(), hs); len(got) != 4 {
		t.Errorf("without a span: %q", got)
	}
	noState := trace.ContextWithSpanContext(t.Context(), theirs(sampled, ""))
	if got := Inject(noState, hs); len(got) != 2 || !bytes.Equal(got[1].Value, []byte(sampled)) {
		t.Errorf("another's tracestate stays: %q", got)
	}
}

// The package brings its users OpenTelemetry's API, and neither the SDK nor an exporter.
func TestImportsTheAPIOnly(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if path := imp.Path.Value; !strings.HasSuffix(file, "_test.go") &&
				(strings.Contains(path, "/otel/sdk") || strings.Contains(path, "exporters")) {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
