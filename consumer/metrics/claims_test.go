package metrics_test

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
)

// Claims of the retry topics hide no consumer that has nothing to read: Stats does not count them either.
func TestClaimsOfRetryTopicsAreNotCounted(t *testing.T) {
	m := metrics.New("orders")
	for range 3 {
		m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Assigned}, Retries: true})
	}
	wantSeries(t, expose(t, m), `longshore_claims 0`)
	m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Assigned}})
	m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Ended}, Retries: true})
	wantSeries(t, expose(t, m), `longshore_claims 1`)
}
