package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/pool"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
)

// An assembly is what a configuration makes: nothing of it runs, and nothing has dialled.
type assembly struct {
	doc     *config.Document
	parts   Parts
	log     zerolog.Logger
	members []*member
	streams []stream // of the embedded server
	admin   *admin.Server
	// halt ends the run with an error: a route whose policy is to stop.
	halt context.CancelCauseFunc
}

// A member is one consumer with what is to be closed after it.
type member struct {
	name      string
	handler   consumer.Handler // its routes, with their middleware
	handlerOf func(*consumer.Message) string
	consumer  *consumer.Consumer
	publisher broker.Publisher
	setup     *handlers.Setup
	limits    limits
	breakers  map[string]metrics.Breaker // those around its handlers, by name
	figures   *metrics.Collector
}

// assemble makes everything; what is wrong is added to the document's findings. halt may be called from the handlers, at any
// time.
func assemble(doc *config.Document, parts Parts, log zerolog.Logger, halt context.CancelCauseFunc) *assembly {
	a := &assembly{doc: doc, parts: parts, log: log, halt: halt}
	registry, err := parts.metrics()
	if err != nil { // MainWith has looked at them
		doc.Find("", "%v", err)
	}
	targets, changeable := map[string]admin.Target{}, map[string]map[string]admin.Limit{}
	for _, name := range slices.Sorted(maps.Keys(doc.File.Consumers)) {
		cfg := doc.File.Consumers[name]
		if cfg == nil {
			continue
		}
		m, figures := a.member(name, cfg)
		a.members = append(a.members, m)
		if m.consumer != nil {
			figures.Watch(m.consumer)
			if err := registry.Register(figures); err != nil {
				doc.Find("consumers."+name, "its metrics: %v", err)
			}
			figures.WatchLimits(m.limits.watched())
			figures.WatchBreakers(m.breakers)
			targets[name], changeable[name] = m.consumer, m.limits
		}
	}
	if doc.Err() != nil {
		return a
	}
	a.streams = streamsOf(&doc.File)
	if c := doc.File.Admin; c != nil {
		server, err := admin.New(admin.Config{
			Listen: c.Listen, Token: c.Token.Reveal(), NoProgress: c.NoProgress, Targets: targets, Limits: changeable, Gatherer: registry, Logger: log,
		})
		findAll(doc, "admin", namesOf(admin.Config{}), err)
		a.admin = server
	}
	return a
}

// processMetrics are those of every process.
func processMetrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return registry
}

// member makes one consumer. Its consumer is nil where something was wrong.
func (a *assembly) member(name string, c *config.Consumer) (*member, *metrics.Collector) {
	at := "consumers." + name
	figures := metrics.New(name)
	m := &member{name: name, limits: limits{}, breakers: map[string]metrics.Breaker{}, figures: figures}
	all := a.adapters(at, name, c)
	topics := c.Retry.Names()
	for _, from := range all {
		topics = append(topics, from.topics...)
	}
	log := a.log.With().Str("consumer", name).Logger()
	m.setup = &handlers.Setup{Consumer: name, Logger: &a.log, Topics: topics, MaxWorkers: c.Pool.Max, Timeout: c.Timeout}
	if p, err := all[0].publisher(); err == nil && p != nil { // else the source says the same
		m.publisher, m.setup.Publisher = p, p
	}
	handler, batch := a.handler(at, c, m, log), a.batch(at+".batch", c, m)
	if m.handler = handler; batch != nil {
		m.handler = handlers.One(batch.Handler)
		m.handlerOf = func(*consumer.Message) string { return c.Batch.Handler }
	}
	grace := max(config.MinCancelGrace, m.setup.Grace())
	drain := a.doc.DrainTimeout(at, c, grace)
	inputs := a.inputs(at, all)
	if inputs == nil || handler == nil && batch == nil || !a.publishes(at, c, m, all[0]) {
		return m, figures
	}
	cfg := consumerConfig(name, c)
	cfg.CancelGrace, cfg.CloseTimeout = grace, config.CloseTimeout
	if cfg.DrainTimeout = drain; drain == 0 {
		cfg.DrainTimeout = -1 // the engine's word for not at all
	}
	if c.Retry.Backoff.Jitter == 0 && a.doc.Has(at+".retry.backoff.jitter") {
		cfg.Retry.Backoff.Jitter = -1
	}
	cfg.Sources, cfg.Handler, cfg.Batch, cfg.Logger, cfg.Observers = inputs, handler, batch, a.log, []consumer.Observer{figures.Observe}
	if a.parts.Observers != nil {
		cfg.Observers = append(cfg.Observers, a.parts.Observers(name)...)
	}
	cfg.Priority, cfg.Strict = priorityOf(c.Priority)
	if l := c.DeadLetter; l != nil {
		cfg.DeadLetter = &consumer.DeadLetter{
			Publisher: m.publisher, Topic: l.To, Routes: l.LetterRoutes(), HandlerOf: m.handlerOf, Create: l.Create, Concurrency: l.Concurrency,
		}
		for _, style := range l.Headers {
			cfg.DeadLetter.Headers = append(cfg.DeadLetter.Headers, consumer.HeaderStyle(style))
		}
	}
	var err error
	if cfg.Retry.Topics, err = retryTopics(c.Retry, all[0], m.publisher); err != nil {
		a.findSource(at, all[0], err)
		return m, figures
	}
	m.consumer, err = consumer.New(cfg)
	findAll(a.doc, at, namesOf(cfg), err)
	return m, figures
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
		a.findSource(at, from, err)
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

// retryTopics are where failed messages wait that would stand in the way; nil: nowhere.
func retryTopics(r config.Retry, from adapter, p broker.Publisher) (*consumer.RetryTopics, error) {
	if len(r.Topics) == 0 || from.retries == nil { // the second was found
		return nil, nil
	}
	source, err := from.retries(r.Names())
	if err != nil {
		return nil, err
	}
	topics := &consumer.RetryTopics{Publisher: p, Source: source}
	for _, t := range r.Topics {
		topics.Steps = append(topics.Steps, consumer.RetryStep{Topic: t.Topic, Delay: t.Delay})
	}
	return topics, nil
}

// findSource adds what the adapter found, in the file's words.
func (a *assembly) findSource(at string, from adapter, err error) {
	if err == nil {
		return
	}
	list := asOptions(from.names, err)
	for _, e := range list {
		switch n := from.read.NATS; {
		case n != nil && n.URL != "" && e.Path == "urls[0]":
			e.Path = "url"
		case from.read.Kafka != nil && strings.HasPrefix(e.Path, "sasl."): // no second finding where a part of it was wrong
			e.Path = "sasl"
		}
	}
	a.doc.FindOptions(at+"."+from.at, list)
}

func consumerConfig(name string, c *config.Consumer) consumer.Config {
	cfg := consumer.Config{
		Name:            name,
		Order:           consumer.Order(c.Order),
		Lane:            consumer.Lane{Limit: c.Lane.Limit, Full: consumer.LanePolicy(c.Lane.Full)},
		Pool:            consumer.Pool{Min: c.Pool.Min, Max: c.Pool.Max, IdleTimeout: c.Pool.IdleTimeout, Policy: policyOf(c.Pool.Policy), Gauge: gaugeOf(c.Pool.Mind)},
		Timeout:         c.Timeout,
		StuckAfter:      c.StuckAfter,
		MaxStuck:        c.MaxStuck,
		OpenTimeout:     c.OpenTimeout,
		MaxMessageBytes: c.MaxMessageBytes,
		MaxHeaderBytes:  c.MaxHeaderBytes,
	}
	cfg.Budget.Messages, cfg.Budget.Bytes = c.Budget.Messages, c.Budget.Bytes
	b := c.Retry.Backoff
	cfg.Retry = consumer.Retry{MaxAttempts: c.Retry.MaxAttempts, GiveUpAfter: c.Retry.GiveUpAfter, Backoff: consumer.Backoff{Initial: b.Initial, Max: b.Max, Factor: b.Factor, Jitter: b.Jitter}}
	return cfg
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

// handler makes a consumer's routes and what is around them; nil where something was wrong, and where there is a batch instead.
func (a *assembly) handler(at string, c *config.Consumer, m *member, log zerolog.Logger) consumer.Handler {
	if c.Batch != nil {
		return nil
	}
	var h consumer.Handler
	if r := a.router(at, c, m, log); r != nil {
		h, m.handlerOf = r.Handle, r.NameOf
	}
	return a.wrap(at, c.Middleware, m, log, h)
}

func (a *assembly) router(at string, c *config.Consumer, m *member, log zerolog.Logger) *handlers.Router {
	var routes []handlers.Route
	whole := true
	for i, r := range c.Routes {
		path := at + ".routes[" + strconv.Itoa(i) + "]"
		a.codec(path+".codec", r.Codec, m)
		h, err := a.parts.Handlers.Build(r.Handler, m.setup, a.doc.Options(path+".with", r.With))
		switch {
		case err == nil:
		case errors.Is(err, handlers.ErrUnknown):
			a.doc.Find(path+".handler", "is %q, want one of %v", r.Handler, a.parts.Handlers.Names())
		default:
			a.doc.FindOptions(path+".with", err)
		}
		if err != nil {
			whole = false
			h = func(context.Context, *consumer.Message) error { return nil } // so that the routes can be checked; never run
		}
		a.decodes(path, r.Codec, m, err)
		h = m.figures.Route(strconv.Itoa(i), r.Handler)(h)
		if h = a.wrap(path, r.Middleware, m, log, h); h == nil {
			return nil // was found
		}
		routes = append(routes, handlers.Route{Match: r.Match, Type: r.Type, Headers: r.Headers, Name: r.Handler, Handler: h})
	}
	if len(routes) == 0 {
		return nil // was found
	}
	router, err := handlers.NewRouter(handlers.RouterConfig{Routes: routes, NoRoute: handlers.NoRoute(c.NoRoute), Stop: a.stopBecause(m.name)})
	a.doc.FindOptions(at, err)
	if err != nil || !whole {
		router = nil
	}
	return router
}

func (a *assembly) stopBecause(name string) func(error) {
	return func(err error) { a.halt(fmt.Errorf("consumer %s: %w", name, err)) }
}

// close closes what the consumers used. After their runs, or instead of them.
func (a *assembly) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, m := range a.members {
		errs = append(errs, m.setup.Close())
		if m.publisher != nil {
			errs = append(errs, m.publisher.Close(ctx))
		}
	}
	return errors.Join(errs...)
}
