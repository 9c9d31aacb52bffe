package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
)

// The collector hears of each message as an observer, and asks the consumer for its figures at each scrape.
func Example() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")}, broker.Outgoing{Topic: "orders", Value: []byte("salt")})

	ctx, stop := context.WithCancel(context.Background())
	m, handled := metrics.New("orders"), 0
	c, err := consumer.New(consumer.Config{
		Name:      "orders",
		Source:    b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Pool:      consumer.Pool{Max: 1},
		Observers: []consumer.Observer{m.Observe},
		Handler: func(context.Context, *consumer.Message) error {
			if handled++; handled == 2 {
				stop()
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Watch(c)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "longshore_handled_messages_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output: longshore_handled_messages_total 2
}
