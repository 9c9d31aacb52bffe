package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/consumer/tracing"
	"go.opentelemetry.io/otel/sdk/trace"
)

// notSampled is the context of a producer that decided against a trace.
var notSampled = broker.Header{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")}

// follow is what a system has beside the engine.
type follow func(*consumer.Config)

func nobody(*consumer.Config) {}

// followed is the whole consumer with what follows its messages, until its last ack.
func followed(set follow, headers ...broker.Header) func(n int) sample {
	return inHeap(serviceHeap, func(n int) sample {
		cfg := consumer.Config{
			Source: memory(n, headers...), Pool: consumer.Pool{Min: 1, Max: workers}, Chunk: 64,
			Budget:  broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		}
		set(&cfg)
		return untilHandled(must(consumer.New(cfg)), n)
	})
}

// around is called around each call, and does nothing.
func around(cfg *consumer.Config) {
	cfg.Around = func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) { return ctx, nil }
}

// ended is, and is told the end.
func ended(cfg *consumer.Config) {
	end := func([]consumer.Outcome) {}
	cfg.Around = func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) { return ctx, end }
}

// observed is told of each hand-off and of each request to the broker.
func observed(cfg *consumer.Config) { cfg.Observers = []consumer.Observer{func(consumer.Event) {}} }

// traced makes spans of a share of the messages, which the SDK puts together and drops.
func traced(share float64) follow {
	return func(cfg *consumer.Config) {
		spans := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithBatcher(dropped{}))
		cfg.Around = must(tracing.New(tracing.Config{Name: "orders", Source: cfg.Source, Provider: spans, Sample: share})).Around
	}
}

// dropped is an exporter that sends nothing.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                          { return nil }

// counted has the metrics of a service, without which there is no page either.
func counted(cfg *consumer.Config) {
	cfg.Observers = []consumer.Observer{metrics.New("orders").Observe}
}

// paged is a consumer whose page is served, with so many tabs that look at it, once a second each. They are in the same process,
// so what they compute counts, too.
func paged(tabs int) func(n int) sample {
	return inHeap(serviceHeap, func(n int) sample {
		ui, times := page.New(page.Config{}), metrics.New("orders")
		c := must(consumer.New(consumer.Config{
			Source: memory(n), Pool: consumer.Pool{Min: 1, Max: workers}, Chunk: 64,
			Budget:    broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
			Handler:   func(context.Context, *consumer.Message) error { return nil },
			Observers: []consumer.Observer{times.Observe, ui.Watch("orders", page.Sources{Times: times})},
		}))
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		server := must(admin.New(admin.Config{Listen: "127.0.0.1:0", Targets: map[string]admin.Target{"orders": c}, Page: ui}))
		check(server.Listen(ctx))
		go func() { served <- server.Run(ctx) }()
		var looking sync.WaitGroup
		for range tabs {
			looking.Go(func() { look(ctx, fmt.Sprintf("http://%s/ui/c/orders/live", server.Addr())) })
		}
		s := untilHandled(c, n)
		cancel()
		looking.Wait()
		check(<-served)
		return s
	})
}

// look asks for what a tab of a browser asks for.
func look(ctx context.Context, url string) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
		answer, err := client.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil)))
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			check(answer.Body.Close())
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			panic(err)
		case answer.StatusCode != http.StatusOK:
			panic(answer.Status)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func hookFigures(m map[string]sample) []figure {
	above := func(name, base string) float64 { return m[name].CPUNS - m[base].CPUNS }
	return []figure{
		atMost("tracing_1_percent_cpu_ns", above("traced_1_percent", "nobody"), 1000),
		atMost("tracing_unsampled_cpu_ns", above("traced_unsampled", "nobody_with_header"), 1000),
		atMost("tracing_unsampled_allocs", round(m["traced_unsampled"].Allocs-m["nobody_with_header"].Allocs, 1), 2),
		atMost("around_nil_allocs", round(m["hooked"].Allocs-m["unhooked"].Allocs, 1), 0),
		atMost("around_nil_cpu_ratio", m["hooked"].CPUNS/m["unhooked"].CPUNS, 1.05),
		show("around_nil_cpu_ns", above("hooked", "unhooked")),
		show("tracing_1_percent_cpu_ratio", m["traced_1_percent"].CPUNS/m["nobody"].CPUNS),
		show("tracing_none_cpu_ns", above("traced_none", "nobody")),
		show("tracing_all_cpu_ns", above("traced_all", "nobody")),
		show("around_cpu_ns", above("around", "nobody")), show("around_with_end_cpu_ns", above("ended", "nobody")),
		show("observer_cpu_ns", above("observed", "nobody")),
		show("nobody_cpu_ns", m["nobody"].CPUNS), show("nobody_allocs", m["nobody"].Allocs),
	}
}

func pageFigures(m map[string]sample) []figure {
	return []figure{
		atMost("page_3_tabs_cpu_ratio", m["page_3_tabs"].CPUNS/m["page_none"].CPUNS, 1.05),
		show("page_no_tab_cpu_ratio", m["page_no_tab"].CPUNS/m["page_none"].CPUNS),
		show("page_3_tabs_cpu_ns", m["page_3_tabs"].CPUNS), show("page_none_cpu_ns", m["page_none"].CPUNS),
	}
}
