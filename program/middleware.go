package program

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/handlers/middleware"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
)

// A wrapping makes a middleware of its options. It returns handlers.OptionErrors, or an error of the middleware's own.
type wrapping func(log zerolog.Logger, o handlers.Options) (consumer.Middleware, error)

// wrappings are the middleware of package handlers/middleware, by the name they have in a file.
var wrappings = map[string]wrapping{
	"circuit_breaker":   wrapBreaker,
	"concurrency_limit": wrapConcurrencyLimit,
	"dedup":             wrapDedup,
	"key_rate_limit":    wrapKeyRateLimit,
	"logging":           wrapLogging,
	"rate_limit":        wrapRateLimit,
	"recover": func(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
		return middleware.Recover(), o.Decode(&struct{}{})
	},
	"timeout": wrapTimeout,
}

// wrap puts a consumer's middleware around h, the first outermost. nil where something was wrong.
func (a *assembly) wrap(at string, list []config.Middleware, log zerolog.Logger, h consumer.Handler) consumer.Handler {
	var chain []consumer.Middleware
	whole := true
	for i, m := range list {
		path := at + ".middleware[" + strconv.Itoa(i) + "]"
		make, ok := wrappings[m.Use]
		if !ok {
			a.doc.Find(path+".use", "is %q, want one of %v", m.Use, slices.Sorted(maps.Keys(wrappings)))
			whole = false
			continue
		}
		w, err := make(log, handlers.NewOptions(m.With))
		if err != nil {
			a.doc.FindOptions(path+".with", err)
			whole = false
			continue
		}
		chain = append(chain, w)
	}
	if !whole || h == nil {
		return nil
	}
	return consumer.Chain(chain...)(h)
}

// breakerOptions are those of middleware.BreakerConfig.
type breakerOptions struct {
	FailureRate   float64       `yaml:"failure_rate"`
	MinCalls      int           `yaml:"min_calls"`
	Window        time.Duration `yaml:"window"`
	OpenFor       time.Duration `yaml:"open_for"`
	Probes        int           `yaml:"probes"`
	RetryWhenOpen bool          `yaml:"retry_when_open"`
}

func wrapBreaker(log zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	var with breakerOptions
	if err := o.Decode(&with); err != nil {
		return nil, err
	}
	b, err := middleware.NewCircuitBreaker(middleware.BreakerConfig{
		FailureRate: with.FailureRate, MinCalls: with.MinCalls, Window: with.Window, OpenFor: with.OpenFor, Probes: with.Probes,
		RetryWhenOpen: with.RetryWhenOpen,
		OnChange:      func(state string) { log.Warn().Str("event", "circuit_breaker").Str("state", state).Send() },
	})
	if err != nil {
		return nil, asOptions("middleware: circuit breaker: ", err)
	}
	return b.Middleware, nil
}

// rateOptions are those of a rate limit.
type rateOptions struct {
	PerSecond float64 `yaml:"per_second"`
	Burst     int     `yaml:"burst"`
}

func decodeRate(o handlers.Options) (rateOptions, error) {
	with := rateOptions{Burst: 1}
	if err := o.Decode(&with); err != nil {
		return with, err
	}
	if !(with.PerSecond > 0) { // 0 would hold every message for ever
		return with, handlers.OptionErrors{{Path: "per_second", Problem: fmt.Sprintf("is %v, want more than 0", with.PerSecond)}}
	}
	if with.Burst < 1 {
		return with, handlers.OptionErrors{{Path: "burst", Problem: fmt.Sprintf("is %d, want at least 1", with.Burst)}}
	}
	return with, nil
}

func wrapRateLimit(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	with, err := decodeRate(o)
	if err != nil {
		return nil, err
	}
	l, err := middleware.NewRateLimit(with.PerSecond, with.Burst)
	if err != nil {
		return nil, err
	}
	return l.Middleware, nil
}

func wrapKeyRateLimit(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	with, err := decodeRate(o)
	if err != nil {
		return nil, err
	}
	l, err := middleware.NewKeyRateLimit(with.PerSecond, with.Burst)
	if err != nil {
		return nil, err
	}
	return l.Middleware, nil
}

// concurrencyOptions are those of a concurrency limit.
type concurrencyOptions struct {
	Limit int `yaml:"limit"`
}

func wrapConcurrencyLimit(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	var with concurrencyOptions
	if err := o.Decode(&with); err != nil {
		return nil, err
	}
	if with.Limit < 1 {
		return nil, handlers.OptionErrors{{Path: "limit", Problem: fmt.Sprintf("is %d, want at least 1", with.Limit)}}
	}
	l, err := middleware.NewConcurrencyLimit(with.Limit)
	if err != nil {
		return nil, err
	}
	return l.Middleware, nil
}

// timeoutOptions are those of a timeout.
type timeoutOptions struct {
	After time.Duration `yaml:"after"`
}

func wrapTimeout(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	var with timeoutOptions
	if err := o.Decode(&with); err != nil {
		return nil, err
	}
	if with.After <= 0 {
		return nil, handlers.OptionErrors{{Path: "after", Problem: fmt.Sprintf("is %v, want more than 0s", with.After)}}
	}
	return middleware.Timeout(with.After), nil
}

// loggingOptions are those of the logging of calls.
type loggingOptions struct {
	Level string `yaml:"level"`
}

func wrapLogging(log zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	with := loggingOptions{Level: "debug"}
	if err := o.Decode(&with); err != nil {
		return nil, err
	}
	if !slices.Contains(config.LogLevels, with.Level) {
		return nil, handlers.OptionErrors{{Path: "level", Problem: fmt.Sprintf("is %q, want one of %v", with.Level, config.LogLevels)}}
	}
	level, _ := zerolog.ParseLevel(with.Level) // is one of the list
	return middleware.Logging(log, level), nil
}

// dedupOptions are those of the deduplication.
type dedupOptions struct {
	// Size is how many handled messages are remembered.
	Size int `yaml:"size"`
	// Header has what tells messages apart; empty: their position.
	Header string `yaml:"header"`
}

// maxDedup bounds what a mistake may cost: about 100 bytes each.
const maxDedup = 10_000_000

func wrapDedup(_ zerolog.Logger, o handlers.Options) (consumer.Middleware, error) {
	with := dedupOptions{Size: 100_000}
	if err := o.Decode(&with); err != nil {
		return nil, err
	}
	if with.Size < 1 || with.Size > maxDedup {
		return nil, handlers.OptionErrors{{Path: "size", Problem: fmt.Sprintf("is %d, want 1 to %d", with.Size, maxDedup)}}
	}
	if with.Header != "" {
		return middleware.Dedup(with.Size, middleware.ByHeader(with.Header)), nil
	}
	return middleware.Dedup(with.Size, middleware.ByPosition), nil
}
