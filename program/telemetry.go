package program

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	meters "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// A telemetry sends spans and metrics to a collector, over OTLP. What cannot be sent is dropped: no message waits for it.
type telemetry struct {
	exporting
	tracers *trace.TracerProvider // nil: there are no spans
	out     meters.Exporter       // nil: metrics are at /metrics only
	from    prometheus.Gatherer   // the metrics that go there
	as      *resource.Resource
	meters  *meters.MeterProvider // nil: it has not begun
	log     zerolog.Logger
}

// newTelemetry makes what sends what x says. It connects to nothing, and where nothing is begun, nothing is sent.
func newTelemetry(x exporting, registry prometheus.Gatherer, log zerolog.Logger) (*telemetry, error) {
	t := &telemetry{exporting: x, from: registry, log: log}
	if !x.spans && !x.metrics {
		return t, nil
	}
	ctx := context.Background()
	res, err := x.describe(ctx)
	if err != nil {
		return nil, err
	}
	t.as = res
	otel.SetErrorHandler(&exportErrors{log: log})
	if x.spans {
		var opts []otlptracehttp.Option
		if x.endpoint != "" {
			opts = append(opts, otlptracehttp.WithEndpointURL(x.target("traces")), otlptracehttp.WithHeaders(x.headers))
		}
		e, err := otlptracehttp.New(ctx, opts...)
		if err != nil {
			return nil, fmt.Errorf("making the exporter of spans: %w", err)
		}
		t.tracers = trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithResource(res), trace.WithBatcher(e))
	}
	if x.metrics {
		var opts []otlpmetrichttp.Option
		if x.endpoint != "" {
			opts = append(opts, otlpmetrichttp.WithEndpointURL(x.target("metrics")), otlpmetrichttp.WithHeaders(x.headers))
		}
		e, err := otlpmetrichttp.New(ctx, opts...)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("making the exporter of metrics: %w", err)
		}
		t.out = e
	}
	return t, nil
}

// begin begins to send metrics, once: spans are sent where there are some, and metrics there always are.
func (t *telemetry) begin() {
	if t == nil || t.out == nil {
		return
	}
	reader := meters.NewPeriodicReader(t.out, meters.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(t.from))))
	t.meters = meters.NewMeterProvider(meters.WithReader(reader), meters.WithResource(t.as))
}

// tracing is that of a consumer, which reads from a source; nil: there are no spans.
func (t *telemetry) tracing(name string, from broker.Source) (*tracing.Tracing, error) {
	if t == nil || t.tracers == nil {
		return nil, nil
	}
	cfg := t.config()
	cfg.Name, cfg.Source, cfg.Provider = name, from, t.tracers
	return tracing.New(cfg)
}

// describe says who we are: the file before the variables, and these before what is known anyway.
func (x *exporting) describe(ctx context.Context) (*resource.Resource, error) {
	var own []attribute.KeyValue
	for k, v := range x.resource {
		own = append(own, attribute.String(k, v))
	}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "longshore"),
			attribute.String("service.version", readVersion().Version)),
		resource.WithFromEnv(), resource.WithAttributes(own...))
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describing this process: %w", err)
	}
	return res, nil
}

// close sends what is left, for at most config.FlushTimeout. A collector that hangs costs no more.
func (t *telemetry) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.FlushTimeout)
	defer cancel()
	var err error
	if t.tracers != nil {
		err = t.tracers.Shutdown(ctx)
	}
	switch {
	case t.meters != nil:
		err = errors.Join(err, t.meters.Shutdown(ctx))
	case t.out != nil:
		err = errors.Join(err, t.out.Shutdown(ctx))
	}
	if err != nil {
		t.log.Warn().Str("event", "export_failed").Err(err).Msg("the last spans or metrics did not arrive")
	}
}

// exportErrors logs what the SDK could not send: the first, and then at most one in a minute.
type exportErrors struct {
	log zerolog.Logger

	mu   sync.Mutex
	next time.Time // when one is logged again
	left int64     // not logged since
}

// Handle implements otel.ErrorHandler.
func (h *exportErrors) Handle(err error) {
	if left, due := h.due(time.Now()); due {
		h.log.Warn().Str("event", "export_failed").Err(err).Int64("suppressed", left).Send()
	}
}

// due says whether one is to be logged, and how many were not since the last one.
func (h *exportErrors) due(now time.Time) (left int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.next) {
		h.left++
		return 0, false
	}
	left, h.left, h.next = h.left, 0, now.Add(time.Minute)
	return left, true
}
