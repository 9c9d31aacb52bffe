package metrics

import (
	"github.com/longshoremq/longshore/broker"
	"github.com/prometheus/client_golang/prometheus"
)

// operations are the times of requests to the broker, by kind and outcome.
type operations struct{ fetched, fetchFailed, settled, settleFailed histogram }

// of returns the histogram of a kind; nil: there is none.
func (o *operations) of(kind broker.OperationKind, failed bool) *histogram {
	switch {
	case kind == broker.Fetch && failed:
		return &o.fetchFailed
	case kind == broker.Fetch:
		return &o.fetched
	case kind == broker.Settle && failed:
		return &o.settleFailed
	case kind == broker.Settle:
		return &o.settled
	}
	return nil
}

func (o *operations) observe(op broker.Operation) {
	if h := o.of(op.Kind, op.Err != nil); h != nil {
		h.observe(1, op.Took)
	}
}

func (o *operations) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	for _, kind := range broker.OperationKinds() {
		ch <- o.of(kind, false).metric(desc, kind.String(), "ok")
		ch <- o.of(kind, true).metric(desc, kind.String(), "failed")
	}
}
