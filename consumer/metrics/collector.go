package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/pool"
	"github.com/prometheus/client_golang/prometheus"
)

// A Watched has figures: a *consumer.Consumer.
type Watched interface {
	Stats() consumer.Stats
	Oldest() time.Time
	// LagByPartition is nil where the lag is unknown; a row without a topic is of what has no partitions.
	LagByPartition() []broker.PartitionLag
	Latency() consumer.Latency
}

// A Collector is a prometheus.Collector for one consumer. Make it with New, give its Observe to the consumer's Config, and the
// consumer to Watch. All methods are safe for concurrent use.
type Collector struct {
	descs  *descs
	events *events
	took   histogram
	broker operations
	claims atomic.Int64
	up     contact
	target atomic.Pointer[Watched]
	limits atomic.Pointer[map[string]Limit]
	routes routes

	breakers atomic.Pointer[map[string]Breaker]
}

// A Limit of handlers has settings: a *middleware.RateLimit. One that may be shared between processes has a method Share, too, as
// that has.
type Limit interface {
	// Settings are its settings by name, as they are.
	Settings() map[string]float64
}

// shareOf is which part of a limit this process has: all of it, where it is not shared.
func shareOf(l Limit) float64 {
	if s, ok := l.(interface {
		Share() (part float64, shared bool)
	}); ok {
		part, _ := s.Share()
		return part
	}
	return 1
}

// New makes a Collector. name is the consumer's in the configuration; it is the value of the label consumer. Collectors of
// several consumers go into one registry.
func New(name string) *Collector {
	label := prometheus.Labels{"consumer": name}
	return &Collector{descs: newDescs(label), events: newEvents(label)}
}

// Watch says where the figures come from. Until it is called only what was observed is exposed.
func (c *Collector) Watch(w Watched) { c.target.Store(&w) }

// WatchLimits says which limits the consumer's handlers have, by name.
func (c *Collector) WatchLimits(limits map[string]Limit) { c.limits.Store(&limits) }

// Observe is a consumer.Observer. It costs some tens of nanoseconds for a Handled, and does not block.
func (c *Collector) Observe(e consumer.Event) {
	switch e := e.(type) {
	case consumer.Handled:
		c.took.observe(e.N, e.Took)
	case consumer.Operated:
		c.broker.observe(e.Operation)
	case consumer.Failed:
		c.events.failed.WithLabelValues(known(failureClasses, e.Class)).Inc()
		if e.Exhausted && e.Verdict == consumer.VerdictRetry {
			c.events.exhausted.WithLabelValues().Inc()
		}
	case consumer.DeadLettered, consumer.RetryPublished:
		// Counted by the consumer itself. They embed a Failed, which was told before.
	case consumer.DeadLetterDelayed:
		c.events.letterDelays.WithLabelValues(yesNo(e.Refused)).Inc()
	case consumer.GivenBack:
		c.events.givenBack.WithLabelValues(known(giveBackReasons, e.Reason)).Add(float64(e.N))
	case consumer.Stuck:
		c.events.stuck.WithLabelValues(yesNo(e.Replaced)).Inc()
	case consumer.Scaled:
		c.events.decisions.WithLabelValues(direction(e.From, e.Target), known(pool.Reasons(), e.Reason)).Inc()
	case consumer.RetryPublishFailed:
		c.events.retryPublishFailures.WithLabelValues().Inc()
	case consumer.SourceEvent:
		c.observeSource(e)
	}
}

func (c *Collector) observeSource(e consumer.SourceEvent) {
	c.events.source.WithLabelValues(known(sourceKinds, e.Kind.String())).Inc()
	if e.Retries { // what a consumer has to read, and its contact, is told by its own sources
		return
	}
	switch e.Kind {
	case broker.Assigned:
		c.claims.Add(1)
	case broker.Ended:
		c.claims.Add(-1)
	case broker.Up, broker.Down:
		c.up.set(e.Input, e.Kind == broker.Up)
	}
}

// A contact is whether sources have it, by their number.
type contact struct {
	mu sync.Mutex
	up map[int]bool
}

func (c *contact) set(input int, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == nil {
		c.up = map[int]bool{}
	}
	c.up[input] = up
}

// all says whether all have it that have spoken of it. known: one has.
func (c *contact) all() (up, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	up = true
	for _, one := range c.up {
		up = up && one
	}
	return up, len(c.up) > 0
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.descs.describe(ch)
	for _, v := range c.events.all() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.events.all() {
		v.Collect(ch)
	}
	d := c.descs
	ch <- c.took.metric(d.handler)
	ch <- prometheus.MustNewConstMetric(d.claims, prometheus.GaugeValue, float64(c.claims.Load()))
	if up, known := c.up.all(); known {
		value := 0.0
		if up {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(d.sourceUp, prometheus.GaugeValue, value)
	}
	if limits := c.limits.Load(); limits != nil {
		for name, l := range *limits {
			for setting, v := range l.Settings() {
				ch <- prometheus.MustNewConstMetric(d.handlerLimit, prometheus.GaugeValue, v, text(name), text(setting))
			}
			ch <- prometheus.MustNewConstMetric(d.limitShare, prometheus.GaugeValue, shareOf(l), text(name))
		}
	}
	c.broker.collect(ch, d.operation)
	c.routes.collect(ch, d.route)
	if breakers := c.breakers.Load(); breakers != nil {
		d.collectBreakers(ch, *breakers)
	}
	if w := c.target.Load(); w != nil {
		d.collectLatency(ch, (*w).Latency())
		d.collect(ch, (*w).Stats())
		d.collectLag(ch, (*w).LagByPartition())
		if at := (*w).Oldest(); !at.IsZero() {
			ch <- prometheus.MustNewConstMetric(d.oldest, prometheus.GaugeValue, float64(at.UnixNano())/1e9)
		}
	}
}
