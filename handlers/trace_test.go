package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/handlers"
	"go.opentelemetry.io/otel/trace"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// inSpan is a context in a span.
func inSpan(ctx context.Context) context.Context {
	h := broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(traceparent)},
		broker.Header{Key: "tracestate", Value: []byte("a=b")})
	return trace.ContextWithSpanContext(ctx, tracing.Extract(h))
}

// A webhook's server learns in which span it is called; without one nothing is said.
func TestWebhookPassesTheTraceOn(t *testing.T) {
	var got http.Header
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, ForwardHeaders: []string{"traceparent"}})
	m := &consumer.Message{Topic: "in", Headers: broker.NewHeaders(broker.Header{Key: "traceparent",
		Value: []byte("the producer's")})}
	if err := w.Handle(inSpan(t.Context()), m); err != nil {
		t.Fatal(err)
	}
	if v := got.Values("Traceparent"); len(v) != 1 || v[0] != traceparent || got.Get("Tracestate") != "a=b" {
		t.Errorf("%q %q", v, got.Get("Tracestate"))
	}
	if err := w.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if v := got.Values("Traceparent"); len(v) != 1 || v[0] != "the producer's" || got.Get("Tracestate") != "" {
		t.Errorf("without a span: %q %q", v, got.Get("Tracestate"))
	}
}

// A span that has no state goes without one: the producer's belongs to the producer's traceparent, which is replaced. Without a
// span both are the producer's.
func TestWebhookMixesNoTraces(t *testing.T) {
	var got http.Header
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, ForwardHeaders: []string{"traceparent", "TraceState"}})
	m := &consumer.Message{Topic: "in", Headers: broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte("producer")},
		broker.Header{Key: "TraceState", Value: []byte("p=q")})}
	span := tracing.Extract(broker.NewHeaders(broker.Header{Key: "traceparent", Value: []byte(traceparent)}))
	for want, ctx := range map[string]context.Context{
		traceparent + " []": trace.ContextWithSpanContext(t.Context(), span), "producer [p=q]": t.Context(),
	} {
		if err := w.Handle(ctx, m); err != nil {
			t.Fatal(err)
		}
		if sent := fmt.Sprint(got.Get("Traceparent"), " ", got.Values("Tracestate")); sent != want {
			t.Errorf("sent %q, want %q", sent, want)
		}
	}
}

// A command learns the same from its environment.
func TestExecPassesTheTraceOn(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c", `echo "<$TRACEPARENT $TRACESTATE>"; exit 1`}})
	if err != nil {
		t.Fatal(err)
	}
	for want, ctx := range map[string]context.Context{"<" + traceparent + " a=b>": inSpan(t.Context()), "< >": t.Context()} {
		if err := e.Handle(ctx, &consumer.Message{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}
