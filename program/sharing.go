package program

import (
	"slices"
	"strconv"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
)

// A sharedLimit can be one of all processes of a consumer together.
type sharedLimit interface {
	ShareBy(sources ...broker.Sharer) error
}

// shared says whether the section of a limit asks for that. What comes from a variable is a text.
func shared(one config.Middleware) bool {
	if one.Use != "rate_limit" && one.Use != "concurrency_limit" {
		return false // an option of others
	}
	switch v := one.With["shared"].(type) {
	case bool:
		return v
	case handlers.Text:
		on, _ := strconv.ParseBool(string(v)) // what is none is found where it is decoded
		return on
	}
	return false
}

// shares says whether a limit of a consumer is shared, so that its sources have to tell which part of the work is this process's.
func shares(c *config.Consumer) bool {
	if slices.ContainsFunc(c.Middleware, shared) {
		return true
	}
	return slices.ContainsFunc(c.Routes, func(r config.Route) bool { return slices.ContainsFunc(r.Middleware, shared) })
}

// share has the limits of a consumer follow the sources that it reads, and finds what a source cannot tell. Where these are not
// opened they would say for ever that this process has no part.
func (a *assembly) share(m *member, cfg *consumer.Config) {
	if len(m.shared) == 0 || a.unopened {
		return
	}
	sources := []broker.Source{}
	for _, in := range cfg.Sources {
		sources = append(sources, in.Source)
	}
	if cfg.Retry.Topics != nil {
		sources = append(sources, cfg.Retry.Topics.Source)
	}
	var sharers []broker.Sharer
	for _, source := range sources {
		if s, ok := source.(broker.Sharer); ok {
			sharers = append(sharers, s)
		}
	}
	for path, l := range m.shared {
		if len(sharers) < len(sources) {
			a.doc.Find(path, "is true, and a source of the consumer cannot tell which part of the work this process has: "+
				"those of nats and kafka can")
			continue
		}
		if err := l.ShareBy(sharers...); err != nil {
			a.doc.Find(path, "is true, and %v", err)
		}
	}
}
