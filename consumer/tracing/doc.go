// Package tracing makes OpenTelemetry spans of handler calls, and carries the context of a trace through the broker.
//
//	traces, err := tracing.New(tracing.Config{Name: "orders", Source: source})
//	letters = traces.Publisher(letters)
//	c, err := consumer.New(consumer.Config{Source: source, Around: traces.Around, …})
//
// It imports OpenTelemetry's API only. The SDK, an exporter and what they cost come with the provider, which is the program's.
//
// # Spans
//
// Names, kinds and attributes are those of the semantic conventions 1.44, of which messaging is still in development: they may
// change.
//
//	process orders     consumer   a handler call, of one message or of a batch
//	send orders-dead   client     the publish of a dead letter, or to a retry topic, below the call that failed
//	send invoices      producer   a publish from a handler, below its call
//
// There is no span for a receive, since messages are prefetched, nor for a settle, since one commit is of many messages. On NATS,
// where there are as many subjects as one likes, a span is named for the pattern of Source that takes the subject.
//
// A span of a call is in a trace of its own, linked to the producer's span, and to the call before where that failed: eight tries
// in ten minutes are not one trace in any backend. Config.Relation has the other way. The call that failed before is known where
// this process made it, and through retry topics, dead letters and replays by the header Longshore-Trace.
//
// The traceparent and tracestate that a message came with are never changed, through retry topics, dead letters, edit and replay.
// What a handler publishes has its own.
//
// # Sampling
//
// To ask the SDK about each message costs more than the engine does. So it is decided here, and the provider should have a
// sampler that samples always: a message whose producer said whether it is sampled follows that; of the others Config.Sample
// are. One that is not costs at most two allocations, for the context that its handler hands on.
package tracing
