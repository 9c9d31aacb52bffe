package tracing

import (
	"bytes"
	"context"
	"encoding/hex"

	"github.com/longshoremq/longshore/broker"
	"go.opentelemetry.io/otel/trace"
)

// The headers of W3C Trace Context.
const (
	parentHeader = "traceparent"
	stateHeader  = "tracestate"
)

// capital is parentHeader as some clients write it: names of headers are compared exactly on Kafka and NATS.
const capital = "Traceparent"

// maxState is the longest tracestate that is read: 32 members of two times 256 characters.
const maxState = 32 * 514

// Extract reads the span that a message's producer was in; an invalid one where there is none, or none that is well-formed. It
// allocates for a tracestate only.
func Extract(h broker.Headers) trace.SpanContext {
	raw, ok := h.Get(parentHeader)
	if !ok {
		if raw, ok = h.Get(capital); !ok {
			return trace.SpanContext{}
		}
	}
	c, ok := parse(raw)
	if !ok {
		return trace.SpanContext{}
	}
	if s, ok := h.Get(stateHeader); ok && len(s) <= maxState {
		c.TraceState, _ = trace.ParseTraceState(string(s)) // what is malformed does not make the parent so
	}
	return trace.NewSpanContext(c)
}

// Inject is hs with the span of ctx, in place of any that stood there. Without a span it is hs. It does not write to hs.
func Inject(ctx context.Context, hs []broker.Header) []broker.Header {
	return put(hs, Headers(ctx))
}

// Headers are the span of ctx as headers: traceparent, and tracestate where it has one; nil where there is no span.
func Headers(ctx context.Context) []broker.Header {
	return headersOf(trace.SpanContextFromContext(ctx))
}

func headersOf(sc trace.SpanContext) []broker.Header {
	if !sc.IsValid() {
		return nil
	}
	hs := []broker.Header{{Key: parentHeader, Value: format(sc)}}
	if s := sc.TraceState().String(); s != "" {
		hs = append(hs, broker.Header{Key: stateHeader, Value: []byte(s)})
	}
	return hs
}

// put is hs with others in place of those of the same meaning.
func put(hs, others []broker.Header) []broker.Header {
	if len(others) == 0 {
		return hs
	}
	replaced := map[string]bool{}
	for _, h := range others {
		if replaced[h.Key] = true; h.Key == parentHeader {
			replaced[capital], replaced[stateHeader] = true, true
		}
	}
	out := make([]broker.Header, 0, len(hs)+len(others))
	for _, h := range hs {
		if !replaced[h.Key] {
			out = append(out, h)
		}
	}
	return append(out, others...)
}

// parse reads a traceparent: version-traceid-spanid-flags, in lower case. Versions above 00 may go on after the flags.
func parse(b []byte) (c trace.SpanContextConfig, ok bool) {
	var version, flags [1]byte
	for _, part := range [][]byte{version[:], c.TraceID[:], c.SpanID[:], flags[:]} {
		var text []byte
		text, b, _ = bytes.Cut(b, []byte{'-'})
		if !decode(part, text) {
			return c, false
		}
	}
	if version[0] == 0xff || version[0] == 0 && (len(b) > 0 || flags[0] > byte(knownFlags)) {
		return c, false
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&knownFlags, true
	return c, c.TraceID.IsValid() && c.SpanID.IsValid()
}

// knownFlags are those that the specification has.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

// decode reads lower-case hexadecimal of just the length of dst.
func decode(dst, text []byte) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	for _, x := range text {
		if x >= 'A' && x <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, text)
	return err == nil
}

// format writes a traceparent.
func format(sc trace.SpanContext) []byte {
	t, s, f := sc.TraceID(), sc.SpanID(), sc.TraceFlags()&knownFlags
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, s[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{byte(f)})
}
