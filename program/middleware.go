package program

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/handlers/middleware"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/internal/panicked"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

// A wrapping makes a middleware of its options, and what of it has a name: an admin.Limit, an admin.Breaker, or nil. It returns
// handlers.OptionErrors, or an error of the middleware's own.
type wrapping func(log zerolog.Logger, o options) (consumer.Middleware, any, error)

// options are those of a middleware, with what of them the file says.
type options struct {
	handlers.Options
	written config.With
	name    string        // of the limit or breaker that it makes
	timeout time.Duration // the consumer's; 0: there is none
}

// read decodes the options into a struct with their defaults, and holds what is written against its tags: 0 stands for no
// default. What is a pointer has none, and must be there. All findings come at once.
func (o options) read(into any) error {
	var list handlers.OptionErrors
	if err := o.Decode(into); err != nil && !errors.As(err, &list) {
		return err
	}
	undecoded := len(list)
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		name, want := f.Tag.Get("yaml"), f.Tag.Get("want")
		_, written := o.written[name]
		told := slices.ContainsFunc(list[:undecoded], func(e *handlers.OptionError) bool { return e.Path == name })
		switch pointer := x.Kind() == reflect.Pointer; {
		case want == "" || told || !written && !pointer:
		case !written:
			list = append(list, &handlers.OptionError{Path: name, Problem: "is missing"})
		default:
			if p, wrong := conftag.Look(want, reflect.Indirect(x)); wrong {
				list = append(list, &handlers.OptionError{Path: name, Problem: p.String()})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// wrappings are the middleware of package handlers/middleware, by the name they have in a file.
var wrappings = map[string]wrapping{
	"circuit_breaker":   wrapBreaker,
	"concurrency_limit": wrapConcurrencyLimit,
	"dedup":             unlimited(wrapDedup),
	"key_rate_limit":    wrapKeyRateLimit,
	"logging":           unlimited(wrapLogging),
	"rate_limit":        wrapRateLimit,
	"recover": unlimited(func(_ zerolog.Logger, o options) (consumer.Middleware, error) {
		return middleware.Recover(), o.read(&struct{}{})
	}),
	"timeout": unlimited(wrapTimeout),
}

// unlimited is a wrapping without a limit.
func unlimited(f func(zerolog.Logger, options) (consumer.Middleware, error)) wrapping {
	return func(log zerolog.Logger, o options) (consumer.Middleware, any, error) {
		m, err := f(log, o)
		return m, nil, err
	}
}

// wrap puts the middleware of a section around h, the first outermost, and gives m what of them has a name. nil where something
// was wrong.
func (a *assembly) wrap(at string, list []config.Middleware, m *member, h consumer.Handler) consumer.Handler {
	chain, ok := a.chain(at, list, m)
	if !ok || h == nil {
		return nil
	}
	for i, w := range slices.Backward(chain) {
		var err error
		if h, err = around(w, h); err != nil {
			a.doc.Find(at+".middleware["+strconv.Itoa(i)+"].with", "middleware %q: %v", list[i].Use, err)
			return nil
		}
	}
	return h
}

// around puts one around a handler. It may be of others: without a handler it would leave a consumer that does not run, and with
// a panic no place in the file.
func around(w consumer.Middleware, h consumer.Handler) (wrapped consumer.Handler, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v, at %s", p, panicked.At("/program.around"))
		}
	}()
	if wrapped = w(h); wrapped == nil {
		err = errors.New("it returned no handler")
	}
	return wrapped, err
}

// chain makes the middleware of a section, and gives m what of them has a name. It is not ok where something was wrong.
func (a *assembly) chain(at string, list []config.Middleware, m *member) (chain []consumer.Middleware, ok bool) {
	whole := true
	for i, one := range list {
		path := at + ".middleware[" + strconv.Itoa(i) + "]"
		w, part, err := a.middleware(path, one, m)
		if errors.Is(err, handlers.ErrUnknown) {
			known := slices.Sorted(maps.Keys(wrappings))
			for _, name := range a.parts.Handlers.MiddlewareNames() {
				if !slices.Contains(known, name) {
					known = append(known, name)
				}
			}
			a.doc.Find(path+".use", "is %q, want one of %v", one.Use, known)
			whole = false
			continue
		}
		if err != nil {
			a.doc.FindOptions(path+".with", err)
			whole = false
			continue
		}
		if problem := m.named(path, one.Name, part); problem != "" {
			a.doc.Find(path+".name", "%s", problem)
		}
		if l, ok := part.(sharedLimit); ok && shared(one) {
			m.shared[path+".with.shared"] = l
		}
		chain = append(chain, w)
	}
	return chain, whole
}

// middleware makes one of longshore's, or one that was registered.
func (a *assembly) middleware(path string, one config.Middleware, m *member) (consumer.Middleware, any, error) {
	with := a.doc.Options(path+".with", one.With)
	if make, ok := wrappings[one.Use]; ok {
		return make(m.log, options{with, one.With, nameAt(path, one.Name), m.setup.Timeout})
	}
	w, err := a.parts.Handlers.BuildMiddleware(one.Use, m.setup, with)
	return w, nil, err
}

// limits are those of a consumer's handlers that can be changed while it runs, by name.
type limits map[string]admin.Limit

var limitName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// nameAt is the name of the limit or breaker of the middleware at a path. Without one it has that of its place:
// "routes.0.middleware.1" for consumers.orders.routes[0].middleware[1].
func nameAt(path, name string) string {
	if name != "" {
		return name
	}
	_, place, _ := strings.Cut(strings.TrimPrefix(path, "consumers."), ".")
	return strings.NewReplacer("[", ".", "]", "").Replace(place)
}

// named adds the limit or breaker of the middleware at a path, and says what is wrong with its name.
func (m *member) named(path, name string, part any) (problem string) {
	switch {
	case part == nil && name != "":
		return "is set, and the middleware has nothing that can be changed or watched"
	case part == nil:
		return ""
	case name != "" && !limitName.MatchString(name):
		return "want 1 to 63 letters, digits, - and _, a letter first"
	case name != "" && (m.limits[name] != nil || m.breakers[name] != nil):
		return fmt.Sprintf("is %q, and so is that of another limit or breaker of the consumer", name)
	}
	name = nameAt(path, name)
	switch part := part.(type) {
	case admin.Limit:
		m.limits[name] = part
	case admin.Breaker:
		m.breakers[name] = part
	}
	return ""
}

// watched are the same for package metrics.
func (ls limits) watched() map[string]metrics.Limit {
	all := map[string]metrics.Limit{}
	for name, l := range ls {
		all[name] = l
	}
	return all
}

// breakers are those around a consumer's handlers, by name.
type breakers map[string]admin.Breaker

// watched are the same for package metrics.
func (bs breakers) watched() map[string]metrics.Breaker {
	all := map[string]metrics.Breaker{}
	for name, b := range bs {
		all[name] = b
	}
	return all
}

func wrapBreaker(log zerolog.Logger, o options) (consumer.Middleware, any, error) {
	c := middleware.BreakerConfig{
		OnChange: func(state string) {
			log.Warn().Str("event", "circuit_breaker").Str("breaker", o.name).Str("state", state).Send()
		},
		OnProbe: func(m *consumer.Message, err error) {
			e := log.Warn().Str("event", "circuit_breaker").Str("breaker", o.name).Str("topic", m.Topic)
			if m.Partition >= 0 {
				e = e.Int32("partition", m.Partition)
			}
			if m.Offset >= 0 {
				e = e.Int64("offset", m.Offset)
			}
			e.Err(err).Msg("a probe failed; it is no attempt")
		},
	}
	if err := o.read(&c); err != nil {
		return nil, nil, err
	}
	b, err := middleware.NewCircuitBreaker(c)
	if err != nil {
		return nil, nil, config.AsOptions(config.NamesOf(c), err)
	}
	return b.Middleware, b, nil
}

// rateOptions are those of a rate limit. A rate of 0 would hold every message for ever.
type rateOptions struct {
	PerSecond *float64 `yaml:"per_second" want:">0"`
	Burst     int      `yaml:"burst" want:"1..2147483647"`
	Shared    bool     `yaml:"shared"` // by assembly.share, when there are sources
}

func wrapRateLimit(_ zerolog.Logger, o options) (consumer.Middleware, any, error) {
	with := rateOptions{Burst: 1}
	if err := o.read(&with); err != nil {
		return nil, nil, err
	}
	l, err := middleware.NewRateLimit(*with.PerSecond, with.Burst)
	if err != nil {
		return nil, nil, err
	}
	return l.Middleware, l, nil
}

// keyRateOptions are those of a rate limit by key.
type keyRateOptions struct {
	PerSecond *float64 `yaml:"per_second" want:">0"`
	Burst     int      `yaml:"burst" want:"1..2147483647"`
}

func wrapKeyRateLimit(_ zerolog.Logger, o options) (consumer.Middleware, any, error) {
	with := keyRateOptions{Burst: 1}
	if err := o.read(&with); err != nil {
		return nil, nil, err
	}
	l, err := middleware.NewKeyRateLimit(*with.PerSecond, with.Burst)
	if err != nil {
		return nil, nil, err
	}
	return l.Middleware, l, nil
}

// concurrencyOptions are those of a concurrency limit.
type concurrencyOptions struct {
	Limit  *int `yaml:"limit" want:"1..2147483647"`
	Shared bool `yaml:"shared"` // as of rateOptions
}

func wrapConcurrencyLimit(_ zerolog.Logger, o options) (consumer.Middleware, any, error) {
	var with concurrencyOptions
	if err := o.read(&with); err != nil {
		return nil, nil, err
	}
	l, err := middleware.NewConcurrencyLimit(*with.Limit)
	if err != nil {
		return nil, nil, err
	}
	return l.Middleware, l, nil
}

// timeoutOptions are those of a timeout.
type timeoutOptions struct {
	After *time.Duration `yaml:"after" want:">0"`
}

func wrapTimeout(_ zerolog.Logger, o options) (consumer.Middleware, error) {
	var with timeoutOptions
	if err := o.read(&with); err != nil {
		return nil, err
	}
	if o.timeout > 0 && *with.After > o.timeout {
		return nil, handlers.OptionErrors{{Path: "after", Problem: fmt.Sprintf(
			"is %v, above the consumer's timeout, %v, which ends the call before", *with.After, o.timeout)}}
	}
	return middleware.Timeout(*with.After), nil
}

// loggingOptions are those of the logging of calls.
type loggingOptions struct {
	Level string `yaml:"level" want:"trace|debug|info|warn|error"`
}

func wrapLogging(log zerolog.Logger, o options) (consumer.Middleware, error) {
	with := loggingOptions{Level: "debug"}
	if err := o.read(&with); err != nil {
		return nil, err
	}
	level, _ := zerolog.ParseLevel(with.Level) // is one of the list
	return middleware.Logging(log, level), nil
}

// dedupOptions are those of the deduplication.
type dedupOptions struct {
	// Size is how many handled messages are remembered. Its bound is for what a mistake may cost: about 100 bytes each.
	Size int `yaml:"size" want:"1..10000000"`
	// Header has what tells messages apart; without it their position does.
	Header string `yaml:"header" want:"some"`
}

func wrapDedup(_ zerolog.Logger, o options) (consumer.Middleware, error) {
	with := dedupOptions{Size: 100_000}
	if err := o.read(&with); err != nil {
		return nil, err
	}
	if with.Header != "" {
		return middleware.Dedup(with.Size, middleware.ByHeader(with.Header)), nil
	}
	return middleware.Dedup(with.Size, middleware.ByPosition), nil
}
