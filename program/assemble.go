package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/handlers"
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
	lines   io.Writer // that log writes to; nil: not known
	members []*member
	embeds  bool     // the embedded server is needed
	streams []stream // that it has
	admin   *admin.Server
	page    *page.Page // nil: none
	sends   *telemetry // spans and metrics, where they go anywhere
	// halt ends the run with an error: a route whose policy is to stop.
	halt context.CancelCauseFunc
	// unopened: its handlers are called, and no source is opened, which could say what part of a shared limit is here.
	unopened bool
}

// assemble makes everything; what is wrong is added to the document's findings. lines is the writer that log writes to; nil: not
// known. halt may be called from the handlers, at any time.
func assemble(doc *config.Document, parts Parts, log zerolog.Logger, lines io.Writer, halt context.CancelCauseFunc) *assembly {
	return assembled(&assembly{doc: doc, parts: parts, log: log, lines: lines, halt: halt})
}

// assembled is assemble with what else is to be known.
func assembled(a *assembly) *assembly {
	doc := a.doc
	a.page = newPage(doc)
	registry, err := a.parts.metrics()
	if err != nil { // MainWith has looked at them
		doc.Find("", "%v", err)
	}
	a.send(registry)
	targets, changeable := map[string]admin.Target{}, map[string]map[string]admin.Limit{}
	breakers := map[string]map[string]admin.Breaker{}
	for _, name := range slices.Sorted(maps.Keys(doc.File.Consumers)) {
		cfg := doc.File.Consumers[name]
		if cfg == nil {
			continue
		}
		m := a.member(name, cfg)
		a.members = append(a.members, m)
		if m.consumer != nil {
			m.figures.Watch(m.consumer)
			if err := registry.Register(m.figures); err != nil {
				doc.Find("consumers."+name, "its metrics: %v", err)
			}
			m.figures.WatchLimits(m.limits.watched())
			m.figures.WatchBreakers(m.breakers.watched())
			targets[name], changeable[name], breakers[name] = m.consumer, m.limits, m.breakers
		}
	}
	if doc.Err() != nil {
		return a
	}
	a.embeds, a.streams = embeds(&doc.File), streamsOf(&doc.File)
	if c := doc.File.Admin; c != nil {
		cfg := admin.Config{
			Listen: c.Listen, Token: c.Token.Reveal(), NoProgress: c.NoProgress, Targets: targets, Limits: changeable,
			Breakers: breakers, Gatherer: registry, Logger: a.log, HideKeys: hidesPayloads(doc),
		}
		if a.page != nil {
			cfg.Page = a.page
		}
		server, err := admin.New(cfg)
		doc.FindConfig("admin", c, err)
		a.admin = server
	}
	return a
}

// processMetrics are those of every process.
func processMetrics() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return registry
}

// handler makes a consumer's routes and what is around them; nil where something was wrong, and where there is a batch instead.
func (a *assembly) handler(at string, c *config.Consumer, m *member) consumer.Handler {
	if c.Batch != nil {
		return nil
	}
	var h consumer.Handler
	if r := a.router(at, c, m); r != nil {
		h, m.handlerOf = r.Handle, r.NameOf
	}
	return a.wrap(at, c.Middleware, m, h)
}

// unknownHandler is said of a name in a file. The file may be of a program that has handlers of its own, and be right.
const unknownHandler = "is %q, want one of %v. One of your own is known to the program that registers it: check it with that"

func (a *assembly) router(at string, c *config.Consumer, m *member) *handlers.Router {
	var routes []handlers.Route
	whole := true
	for i, r := range c.Routes {
		path := at + ".routes[" + strconv.Itoa(i) + "]"
		a.codec(path+".codec", r.Codec, m)
		a.warnUnwritten(path, r.Handler, r.With)
		h, err := a.parts.Handlers.Build(r.Handler, m.setup, a.doc.Options(path+".with", r.With))
		switch {
		case err == nil:
		case errors.Is(err, handlers.ErrUnknown):
			a.doc.Find(path+".handler", unknownHandler, r.Handler, a.parts.Handlers.Names())
		default:
			a.doc.FindOptions(path+".with", err)
		}
		if err != nil {
			h = unfit
		}
		a.decodes(path, r.Codec, m, err)
		h = a.wrap(path, r.Middleware, m, m.figures.Route(strconv.Itoa(i), r.Handler)(h))
		if whole = whole && err == nil && h != nil; h == nil { // was found
			h = unfit
		}
		routes = append(routes, handlers.Route{Match: r.Match, Type: r.Type, Headers: r.Headers, Name: r.Handler, Handler: h})
	}
	if len(routes) == 0 {
		return nil // was found
	}
	router, err := handlers.NewRouter(handlers.RouterConfig{Routes: routes, NoRoute: handlers.NoRoute(c.NoRoute),
		Stop: a.stopBecause(m.name)})
	a.doc.FindOptions(at, err)
	if err != nil || !whole {
		router = nil
	}
	return router
}

// warnUnwritten tells of a handler log that acks all it gets and can write none of it: the logger leaves out its level.
func (a *assembly) warnUnwritten(at, handler string, with map[string]any) {
	if handler != "log" {
		return
	}
	least, _ := zerolog.ParseLevel(cmp.Or(a.doc.File.Log.Level, "info")) // a.log is that of a run only
	if a.parts.Logger != nil {
		least = a.parts.Logger.GetLevel()
	}
	text := handlers.DefaultLogConfig().Level
	switch v := with["level"].(type) {
	case string:
		text = v
	case handlers.Text: // from a variable
		text = string(v)
	}
	if level, err := zerolog.ParseLevel(text); err == nil && level < least {
		a.doc.Warn(at+".with.level", "is %s, and the log has %s and above: what comes here is acked and never written", level, least)
	}
}

// unfit stands for a handler in which something is wrong, so that all routes can be checked. It never runs.
func unfit(context.Context, *consumer.Message) error { return nil }

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
		for _, shut := range m.closing {
			shut()
		}
		if m.publisher != nil {
			errs = append(errs, m.publisher.Close(ctx))
		}
	}
	a.sends.close() // last: there may be spans of all that
	return errors.Join(errs...)
}

// send makes what sends spans and metrics, where the file or the environment says so.
func (a *assembly) send(registry prometheus.Gatherer) {
	x := exportingOf(a.doc, os.LookupEnv)
	a.doc.Exports = x.spans || x.metrics
	if a.doc.Err() != nil {
		return
	}
	var err error
	if a.sends, err = newTelemetry(x, registry, a.log); err != nil {
		a.doc.Find("tracing", "%v", err)
	}
}
