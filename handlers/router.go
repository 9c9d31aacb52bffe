package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/longshoremq/longshore/consumer"
)

// ErrNoRoute says that no route matches a message.
var ErrNoRoute = errors.New("handlers: no route")

// A Route leads messages to a handler.
type Route struct {
	// Match is the topic or subject: a whole name, or with the wildcards of NATS over its dot-separated tokens, "*" for one token
	// and ">" at the end for one or more. The same goes for Kafka topics. Empty matches each one.
	Match string
	// Type is the CloudEvents type that the message must have, a whole one or with wildcards as in Match. It is looked for in the
	// headers ce_type (as on Kafka) and ce-type (as on NATS; also Ce-Type, as HTTP writes it). Events in structured mode, which have
	// it in the payload, have none here. Empty matches each one.
	Type string
	// Headers that the message must have, each with just this value (the last one, where a header is repeated). Names are compared
	// exactly. Defaults to none.
	Headers map[string]string
	// Name of the handler, for Router.NameOf; several routes may have the same. Defaults to none.
	Name string
	// Handler gets the messages. Required.
	Handler consumer.Handler
}

// NoRoute says what becomes of a message that no route matches.
type NoRoute string

const (
	// NoRouteDeadLetter dead-letters it at once, by a Permanent error that wraps ErrNoRoute.
	NoRouteDeadLetter NoRoute = "dead_letter"
	// NoRouteSkip acks it and counts it as skipped.
	NoRouteSkip NoRoute = "skip"
	// NoRouteStop calls RouterConfig.Stop and holds the message, unsettled, until the consumer stops, so that it goes back to the
	// broker.
	NoRouteStop NoRoute = "stop"
)

// RouterConfig says how a Router finds handlers.
type RouterConfig struct {
	// Routes are tried in their order: the first that matches has the message. A route without Match, Type and Headers is the
	// default; it comes last. A route that can never be reached, since an earlier one takes all it would match, is refused.
	// Required.
	Routes []Route
	// NoRoute is the policy for messages without a route. Defaults to NoRouteDeadLetter.
	NoRoute NoRoute
	// Stop is called with what was wrong by NoRouteStop, perhaps many times and at once; it must not block. It ends the context of
	// the consumer's Run. Required for NoRouteStop.
	Stop func(error)
}

// A Router hands each message to the handler of the first route that matches it. Its Handle is a consumer.Handler. Which routes a
// topic can take is worked out once and remembered for about 1,000 topics; beyond that it is worked out again, which is slower
// and nothing else.
type Router struct {
	routes  []*route
	noRoute NoRoute
	stop    func(error)
	seed    maphash.Seed
	known   [1024]atomic.Pointer[choices]
}

type route struct {
	match   pattern // no tokens: matches all
	typ     pattern // no tokens: matches all, and none
	headers []condition
	name    string
	handler consumer.Handler
}

type condition struct {
	name  string
	value []byte
}

// choices are the routes that the messages of a topic can take: at most one without type and headers, which is the last.
type choices struct {
	topic  string
	routes []*route
	typed  bool // one of them asks for a type
}

// NewRouter checks c and reports all findings at once.
func NewRouter(c RouterConfig) (*Router, error) {
	r := &Router{noRoute: c.NoRoute, stop: c.Stop, seed: maphash.MakeSeed()}
	if r.noRoute == "" {
		r.noRoute = NoRouteDeadLetter
	}
	errs := c.validate()
	for i, cr := range c.Routes {
		nr := cr.parse(i, &errs)
		if nr != nil {
			if j := slices.IndexFunc(r.routes, func(o *route) bool { return o != nil && o.covers(nr) }); j >= 0 {
				errs.add(fmt.Sprintf("routes[%d]", i), "is never reached: routes[%d] comes first and takes all that it matches", j)
			}
		}
		r.routes = append(r.routes, nr) // nil keeps the positions
	}
	if err := errs.err(); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return r, nil
}

// parse makes a route of the i-th; nil where a pattern of it is wrong.
func (c Route) parse(i int, errs *OptionErrors) *route {
	r := &route{name: c.Name, handler: c.Handler}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		r.headers = append(r.headers, condition{name, []byte(c.Headers[name])})
	}
	whole := true
	for _, p := range []struct {
		name, text string
		to         *pattern
	}{{"match", c.Match, &r.match}, {"type", c.Type, &r.typ}} {
		if p.text == "" {
			continue
		}
		var err error
		if *p.to, err = parsePattern(p.text); err != nil {
			errs.add(fmt.Sprintf("routes[%d].%s", i, p.name), "%q %v", p.text, err)
			whole = false
		}
	}
	if !whole {
		return nil
	}
	return r
}

func (c RouterConfig) validate() (errs OptionErrors) {
	if len(c.Routes) == 0 {
		errs.add("routes", "is empty, want at least one")
	}
	for i, r := range c.Routes {
		if r.Handler == nil {
			errs.add(fmt.Sprintf("routes[%d].handler", i), "is required")
		}
		if _, ok := r.Headers[""]; ok {
			errs.add(fmt.Sprintf("routes[%d].headers", i), "has an empty name")
		}
	}
	switch c.NoRoute {
	case "", NoRouteDeadLetter, NoRouteSkip:
	case NoRouteStop:
		if c.Stop == nil {
			errs.add("no_route", "is %q, which needs Stop", c.NoRoute)
		}
	default:
		errs.add("no_route", "is %q, want dead_letter, skip or stop", c.NoRoute)
	}
	return errs
}

// covers says whether r takes every message that o matches.
func (r *route) covers(o *route) bool {
	if !r.match.coversAll(o.match) || !r.typ.coversAll(o.typ) {
		return false
	}
	for _, c := range r.headers {
		if !slices.ContainsFunc(o.headers, func(d condition) bool { return c.name == d.name && bytes.Equal(c.value, d.value) }) {
			return false
		}
	}
	return true
}

// Handle hands m to its handler. Safe for concurrent use.
func (r *Router) Handle(ctx context.Context, m *consumer.Message) error {
	if found := r.find(m); found != nil {
		return found.handler(ctx, m)
	}
	err := fmt.Errorf("%w for topic %q", ErrNoRoute, m.Topic)
	switch r.noRoute {
	case NoRouteSkip:
		return consumer.Skip("no route")
	case NoRouteStop:
		r.stop(err)
		select { // an error now would use up attempts, and so would one after the consumer's Timeout, which may be over before a drain
		case <-consumer.Leaving(ctx):
			return consumer.Defer(0, nil)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
	return consumer.Permanent(err)
}

// NameOf is the name of the handler that m is for; "" where no route matches. It is for consumer.DeadLetter.HandlerOf. Safe for
// concurrent use.
func (r *Router) NameOf(m *consumer.Message) string {
	if found := r.find(m); found != nil {
		return found.name
	}
	return ""
}

// find is m's route, or nil.
func (r *Router) find(m *consumer.Message) *route {
	c, typ := r.choices(m.Topic), ""
	if c.typed {
		v, _ := lastOf(m, "ce_type", "ce-type", "Ce-Type")
		typ = string(v) // here and not in the loop: a short one stays off the heap
	}
	for _, o := range c.routes {
		if o.accepts(m, typ) {
			return o
		}
	}
	return nil
}

// choices looks topic up, or works it out. The table is direct-mapped: two topics in one place push each other out.
func (r *Router) choices(topic string) *choices {
	place := &r.known[maphash.String(r.seed, topic)%uint64(len(r.known))]
	if c := place.Load(); c != nil && c.topic == topic {
		return c
	}
	c := &choices{topic: strings.Clone(topic)} // topic may pin a fetch buffer
	for _, o := range r.routes {
		if len(o.match.tokens) > 0 && !o.match.matches(topic) {
			continue
		}
		c.routes, c.typed = append(c.routes, o), c.typed || len(o.typ.tokens) > 0
		if len(o.headers) == 0 && len(o.typ.tokens) == 0 {
			break
		}
	}
	place.Store(c)
	return c
}

// accepts checks the type, "" for none, and the headers; the topic matches.
func (r *route) accepts(m *consumer.Message, typ string) bool {
	if len(r.typ.tokens) > 0 && (typ == "" || !r.typ.matches(typ)) {
		return false
	}
	for _, c := range r.headers {
		if v, ok := m.Headers.Get(c.name); !ok || !bytes.Equal(v, c.value) {
			return false
		}
	}
	return true
}
