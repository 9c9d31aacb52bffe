package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
)

func TestBrokerOperations(t *testing.T) {
	m := metrics.New("orders")
	for _, op := range []broker.Operation{
		{Kind: broker.Fetch, Took: 500 * time.Millisecond},
		{Kind: broker.Fetch, Took: time.Second},
		{Kind: broker.Settle, Took: 2 * time.Millisecond},
		{Kind: broker.Settle, Took: 20 * time.Second, Err: errors.New("no answer")},
	} {
		m.Observe(consumer.Operated{Operation: op})
	}
	text := expose(t, m)
	wantSeries(t, text, `longshore_broker_operation_duration_seconds_count{operation="fetch",outcome="ok"} 2`)
	wantSeries(t, text, `longshore_broker_operation_duration_seconds_sum{operation="fetch",outcome="ok"} 1.5`)
	wantSeries(t, text, `longshore_broker_operation_duration_seconds_count{operation="fetch",outcome="failed"} 0`)
	wantSeries(t, text, `longshore_broker_operation_duration_seconds_count{operation="settle",outcome="ok"} 1`)
	wantSeries(t, text, `longshore_broker_operation_duration_seconds_count{operation="settle",outcome="failed"} 1`)
}
