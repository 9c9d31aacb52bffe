package metrics

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/prometheus/client_golang/prometheus"
)

// A Breaker has a state: a *middleware.CircuitBreaker.
type Breaker interface {
	// State is closed, open or half-open.
	State() string
}

// breakerStates are the states that a Breaker may have.
var breakerStates = []string{"closed", "half-open", "open"}

// WatchBreakers says which circuit breakers are around the consumer's handlers, by name.
func (c *Collector) WatchBreakers(breakers map[string]Breaker) { c.breakers.Store(&breakers) }

// Route is a Middleware that counts the time of each call of a handler, of those that fail, too, under the names of its route and
// of the handler. A call that was put off (consumer.Defer) handled nothing, and is not counted. It costs two clock readings for
// each call. Put it around the handler, inside whatever waits. Names become labels, so they must be few.
func (c *Collector) Route(route, handler string) consumer.Middleware {
	t := c.routes.of(route, handler)
	return func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) (err error) {
			begin, returned := time.Now(), false
			defer func() { t.count(time.Since(begin), returned, err) }()
			err = next(ctx, m)
			returned = true
			return err
		}
	}
}

// RouteBatch is Route for a batch handler. A batch is one call, and it failed where one of its messages did.
func (c *Collector) RouteBatch(route, handler string) func(consumer.BatchHandler) consumer.BatchHandler {
	t := c.routes.of(route, handler)
	return func(next consumer.BatchHandler) consumer.BatchHandler {
		return func(ctx context.Context, ms []*consumer.Message) (err error) {
			begin, returned := time.Now(), false
			defer func() {
				t.count(time.Since(begin), returned, consumer.BatchErrors(err, len(ms))...)
			}()
			err = next(ctx, ms)
			returned = true
			return err
		}
	}
}

// routeTimes are those of one route's handler.
type routeTimes struct {
	route, handler string
	ok, failed     histogram
}

// count takes what a call returned of its messages. One that did not return panicked: a failure.
func (t *routeTimes) count(took time.Duration, returned bool, errs ...error) {
	handled, failed := !returned, !returned
	for _, err := range errs {
		deferred := consumer.IsDeferred(err)
		handled = handled || !deferred
		failed = failed || err != nil && !deferred && !consumer.IsSkip(err)
	}
	switch {
	case failed:
		t.failed.observe(1, took)
	case handled:
		t.ok.observe(1, took)
	}
}

// routes are the times of all routes, in the order in which they were asked for.
type routes struct {
	mu  sync.Mutex
	all []*routeTimes
}

func (r *routes) of(route, handler string) *routeTimes {
	route, handler = text(route), text(handler)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		if t.route == route && t.handler == handler {
			return t
		}
	}
	t := &routeTimes{route: route, handler: handler}
	r.all = append(r.all, t)
	return t
}

func (r *routes) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		ch <- t.ok.metric(desc, t.route, t.handler, "ok")
		ch <- t.failed.metric(desc, t.route, t.handler, "failed")
	}
}

// collectBreakers has a series for each state of each breaker.
func (d *descs) collectBreakers(ch chan<- prometheus.Metric, breakers map[string]Breaker) {
	for name, b := range breakers {
		now := b.State()
		for _, state := range breakerStates {
			in := 0.0
			if state == now {
				in = 1
			}
			ch <- prometheus.MustNewConstMetric(d.breaker, prometheus.GaugeValue, in, text(name), state)
		}
	}
}

// collectLatency exposes how old messages were when they were acked.
func (d *descs) collectLatency(ch chan<- prometheus.Metric, l consumer.Latency) {
	var count uint64
	upTo := make(map[float64]uint64, len(l.Bounds))
	for i, n := range l.Buckets {
		count += uint64(max(0, n))
		if i < len(l.Bounds) {
			upTo[l.Bounds[i].Seconds()] = count
		}
	}
	ch <- prometheus.MustNewConstHistogram(d.latency, count, cmp.Or(l.Seconds, l.Sum.Seconds()), upTo)
}
