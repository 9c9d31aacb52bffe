package main

import (
	"context"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

const (
	orderPartitions = 4
	orderKeys       = 10_000
	orderWorkers    = 256
)

func fiveMilliseconds(int) { time.Sleep(5 * time.Millisecond) }

// keyed makes a broker with n messages of 100 bytes and 10,000 keys, and a source of it.
func keyed(n int) *membroker.Source {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": orderPartitions}})
	for p := range orderPartitions {
		ms := make([]broker.Outgoing, orderKeys/orderPartitions)
		for i := range ms {
			ms[i] = broker.Outgoing{Topic: "orders", Key: fmt.Appendf(nil, "key-%d", i*orderPartitions+p), Value: make([]byte, 100)}
		}
		check(b.Fill(p, int64(n/orderPartitions), ms...))
	}
	return b.Source(membroker.SourceConfig{Group: "workers", Prefetch: 4096})
}

// inOrder is the whole consumer in an order.
func inOrder(n int, order consumer.Order, do func(int)) sample {
	return untilHandled(must(consumer.New(consumer.Config{
		Source: keyed(n), Order: order, Pool: consumer.Pool{Max: orderWorkers}, Budget: broker.Budget{Messages: engineBudget,
			Bytes: 64 << 20},
		Handler: func(context.Context, *consumer.Message) error { do(0); return nil },
	})), n)
}

func orderFigures(m map[string]sample) []figure {
	return []figure{
		atMost("order_key_cpu_ns_above_none", m["key"].CPUNS-m["none"].CPUNS, 350),
		show("order_none_cpu_ns", m["none"].CPUNS), show("order_key_cpu_ns", m["key"].CPUNS), show("order_partition_cpu_ns",
			m["partition"].CPUNS),
		show("order_key_allocs", m["key"].Allocs), show("order_key_wall_ns", m["key"].WallNS),
		atLeast("order_5ms_key_throughput_vs_partition", m["partition_5ms"].WallNS/m["key_5ms"].WallNS, 20),
		show("order_5ms_messages_per_second_key", 1e9/m["key_5ms"].WallNS), show("order_5ms_messages_per_second_partition",
			1e9/m["partition_5ms"].WallNS),
	}
}
