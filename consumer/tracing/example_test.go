package tracing_test

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func Example() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1, "invoices": 1}})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("two crates of tea")})

	spans := tracetest.NewInMemoryExporter() // yours is an OTLP exporter, with sdk.WithBatcher
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	source := b.Source(membroker.SourceConfig{Topics: []string{"orders"}})
	traces, err := tracing.New(tracing.Config{Name: "orders", Source: source, Provider: provider, Sample: 1})
	if err != nil {
		panic(err)
	}
	invoices := traces.Publisher(b.Publisher())

	ctx, stop := context.WithCancel(context.Background())
	c, err := consumer.New(consumer.Config{
		Source: source,
		Around: traces.Around,
		Handler: func(ctx context.Context, m *consumer.Message) error {
			defer stop()
			return invoices.Publish(ctx, []broker.Outgoing{{Topic: "invoices", Value: m.Value}}) // with ctx, or it is in no trace
		},
	})
	if err != nil {
		panic(err)
	}
	if err := c.Run(ctx); err != nil {
		panic(err)
	}
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.SpanKind)
	}
	// Output:
	// send invoices producer
	// process orders consumer
}
