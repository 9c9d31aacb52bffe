package program

import (
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/pool"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

// A member is one consumer with what is to be closed after it.
type member struct {
	name      string
	log       zerolog.Logger   // for its middleware
	handler   consumer.Handler // its routes, with their middleware
	batch     *consumer.Batch
	handlerOf func(*consumer.Message) string
	consumer  *consumer.Consumer
	publisher broker.Publisher
	setup     *handlers.Setup
	drain     time.Duration // how long handlers may run on
	limits    limits
	shared    map[string]sharedLimit // by the key that says so
	breakers  breakers
	figures   *metrics.Collector
	closing   []func()        // what the page uses
	around    consumer.Around // nil: nothing is traced
}

// member makes one consumer. Its consumer is nil where something was wrong.
func (a *assembly) member(name string, c *config.Consumer) *member {
	at := "consumers." + name
	from := a.adapters(at, name, c)
	inputs := a.inputs(at, from)
	m := a.newMember(name, c, from)
	m.setup.Group = groupsOf(inputs)
	a.trace(m, inputs)
	a.handle(at, c, m)
	grace := max(config.MinCancelGrace, m.setup.Grace())
	m.drain = a.doc.DrainTimeout(at, c, grace)
	if inputs == nil || m.handler == nil || !a.publishes(at, c, m, from[0]) {
		return m
	}
	cfg := a.engine(at, c, m)
	cfg.Sources = inputs
	if m.publisher != nil && !transactional(from) {
		cfg.Output = m.publisher
	}
	cfg.DrainTimeout, cfg.CancelGrace, cfg.CloseTimeout = drainOf(m.drain), grace, config.CloseTimeout
	var err error
	if cfg.Retry.Topics, err = retryTopics(cfg.Retry.Topics, c.Retry.Names(), from[0], m.publisher); err != nil {
		a.doc.FindConfig(at+"."+from[0].at, from[0].section, err)
		return m
	}
	a.share(m, &cfg)
	m.consumer, err = consumer.New(cfg)
	a.doc.FindConfig(at, c, err)
	return m
}

// transactional says whether all sources write what handlers emit themselves, each to the cluster that it reads.
func transactional(from []adapter) bool {
	return !slices.ContainsFunc(from, func(one adapter) bool {
		k, ok := one.section.(*config.Kafka)
		return !ok || !k.Transactional
	})
}

// newMember has what handlers are made with.
func (a *assembly) newMember(name string, c *config.Consumer, from []adapter) *member {
	m := &member{
		name: name, log: a.log.With().Str("consumer", name).Logger(), limits: limits{}, breakers: breakers{},
		shared: map[string]sharedLimit{}, figures: metrics.New(name),
	}
	topics := c.Retry.Names()
	for _, one := range from {
		topics = append(topics, one.topics...)
	}
	m.setup = &handlers.Setup{Consumer: name, Logger: &a.log, LogWriter: a.lines, Topics: topics, MaxWorkers: c.MostWorkers(),
		Timeout: c.Timeout}
	if p, err := from[0].publisher(); err == nil && p != nil { // else the source says the same
		m.publisher, m.setup.Publisher = p, p
	}
	return m
}

// groupsOf are the groups, or streams and durables, of a consumer's sources.
func groupsOf(inputs []consumer.Input) string {
	var names []string
	for _, in := range inputs {
		if d, ok := in.Source.(broker.Describer); ok {
			names = append(names, d.Describe().Readers())
		}
	}
	return strings.Join(names, "/")
}

// trace has spans made of the consumer's calls and publishes, where there are any.
func (a *assembly) trace(m *member, inputs []consumer.Input) {
	if len(inputs) == 0 {
		return
	}
	traces, err := a.sends.tracing(m.name, inputs[0].Source)
	if err != nil {
		a.doc.Find("tracing", "%v", err) // its keys were checked
	}
	if traces == nil {
		return
	}
	m.around = traces.Around
	if m.publisher != nil {
		m.publisher = traces.Publisher(m.publisher)
		m.setup.Publisher = m.publisher
	}
}

// handle makes the handler: of the routes, or of the batch.
func (a *assembly) handle(at string, c *config.Consumer, m *member) {
	if c.Batch == nil {
		m.handler = a.handler(at, c, m)
		return
	}
	if m.batch = a.batch(at, c, m); m.batch != nil {
		m.handler = handlers.One(m.batch.Handler)
		m.handlerOf = func(*consumer.Message) string { return c.Batch.Handler }
	}
}

// engine is the engine's Config: what the file says, and what is made of names.
func (a *assembly) engine(at string, c *config.Consumer, m *member) consumer.Config {
	cfg := c.Engine()
	cfg.Name, cfg.Around, cfg.Logger, cfg.Observers = m.name, m.around, a.log, []consumer.Observer{m.figures.Observe}
	if a.parts.Observers != nil {
		cfg.Observers = append(cfg.Observers, a.parts.Observers(m.name)...)
	}
	if a.page != nil {
		cfg.Observers = append(cfg.Observers, a.page.Watch(m.name, a.pageSources(m.name, c, m)))
	}
	if cfg.Batch = m.batch; cfg.Batch == nil {
		cfg.Handler = m.handler
	}
	cfg.Pool.Policy, cfg.Pool.Gauge = policyOf(c.Pool.Policy), gaugeOf(c.Pool.Mind)
	cfg.Priority, cfg.Strict = priorityOf(c.Priority)
	if c.Retry.Backoff.Jitter == 0 && a.doc.Has(at+".retry.backoff.jitter") {
		cfg.Retry.Backoff.Jitter = -1 // the engine's word for none
	}
	if l := cfg.DeadLetter; l != nil {
		l.Publisher, l.HandlerOf = m.publisher, m.handlerOf
	}
	return cfg
}

// drainOf is the engine's word for how long handlers may run on.
func drainOf(d time.Duration) time.Duration {
	if d == 0 {
		return -1 // not at all
	}
	return d
}

// inputs are the sources, with their weights. nil: something was wrong with one.
func (a *assembly) inputs(at string, all []adapter) (inputs []consumer.Input) {
	whole := true
	for _, from := range all {
		if from.source == nil {
			whole = false
			continue
		}
		source, err := from.source()
		a.doc.FindConfig(at+"."+from.at, from.section, err)
		whole = whole && err == nil
		inputs = append(inputs, consumer.Input{Source: source, Weight: from.read.Weight})
	}
	if !whole {
		return nil
	}
	return inputs
}

// priorityOf is the engine's of the file's. Messages whose header has another value, or that have none, belong to the last level.
func priorityOf(p *config.Priority) (levels *consumer.Priority, strict bool) {
	if p == nil {
		return nil, false
	}
	strict = p.Mode == "strict"
	if len(p.Levels) == 0 {
		return nil, strict
	}
	of, last := map[string]int{}, len(p.Levels)-1
	weights := make([]int, len(p.Levels))
	for i, l := range p.Levels {
		weights[i] = max(1, l.Weight)
		for _, v := range l.Values {
			of[v] = i
		}
	}
	return &consumer.Priority{Levels: weights, Of: func(m *consumer.Message) int {
		if v, ok := m.Headers.Get(p.Header); ok {
			if level, ok := of[string(v)]; ok {
				return level
			}
		}
		return last
	}}, strict
}

// retryTopics completes where failed messages wait that would stand in the way, if anywhere.
func retryTopics(t *consumer.RetryTopics, names []string, from adapter, p broker.Publisher) (*consumer.RetryTopics, error) {
	none := func(name string) bool { return !kafkabroker.ValidTopic(name) }
	_, kafka := from.section.(*config.Kafka)
	if t == nil || from.retries == nil || kafka && slices.ContainsFunc(names, none) { // the last two were found
		return nil, nil
	}
	source, err := from.retries(names)
	if err != nil {
		return nil, err
	}
	t.Source, t.Publisher = source, p
	return t, nil
}

// gaugeOf reads what is to be minded; nil where nothing is.
func gaugeOf(mind []string) func() pool.Pressure {
	if len(mind) == 0 {
		return nil
	}
	var only []pool.Resource
	for _, r := range mind {
		only = append(only, pool.Resource(r))
	}
	return pool.RuntimeGauge(only...)
}

// policyOf makes a policy of its name, each with its defaults; nil is the engine's default.
func policyOf(name string) pool.Policy {
	switch name {
	case "report-status":
		return pool.ReportStatus()
	case "fixed":
		return pool.Fixed()
	case "classic":
		return pool.Classic(pool.ClassicConfig{})
	case "queue-threshold":
		return pool.QueueThreshold(pool.ThresholdConfig{})
	case "aimd":
		return pool.AIMD(pool.AIMDConfig{})
	}
	return nil
}

// publishes says whether the consumer has the publisher that it needs, which an adapter from outside may not have.
func (a *assembly) publishes(at string, c *config.Consumer, m *member, from adapter) bool {
	if m.publisher != nil {
		return true
	}
	if from.read.Other == nil {
		return false // was found
	}
	whole := true
	for key, set := range map[string]bool{"dead_letter": c.DeadLetter != nil, "retry.topics": len(c.Retry.Topics) > 0} {
		if set {
			a.doc.Find(at+"."+key, "is set, and the adapter %s has no publisher", from.read.Other.Adapter)
			whole = false
		}
	}
	return whole
}
