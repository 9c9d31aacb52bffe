package middleware

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"golang.org/x/time/rate"
)

// A RateLimit lets calls begin at a rate at most; its Middleware is a consumer.Middleware. One RateLimit may wrap several handlers, which share
// it. A call that is early waits in its worker, which is back-pressure: no attempt is used up. The wait counts toward a Timeout
// around it, not toward one inside. Safe for concurrent use.
type RateLimit struct {
	mu  sync.Mutex
	now *tokens
}

// Kind is rate_limit, its name in a configuration file.
func (l *RateLimit) Kind() string { return "rate_limit" }

// Settings are per_second and burst, as last set.
func (l *RateLimit) Settings() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settings()
}

// settings needs l.mu.
func (l *RateLimit) settings() map[string]float64 {
	perSecond := float64(l.now.limiter.Limit())
	if l.now.limiter.Limit() == rate.Inf {
		perSecond = math.Inf(1)
	}
	return map[string]float64{settingPerSecond: perSecond, settingBurst: float64(l.now.limiter.Burst())}
}

// Change is Set for the settings that are named; the others stay. The error names each that is wrong, and then nothing is changed. Other than with Set, per_second
// is above 0 and has a bound.
func (l *RateLimit) Change(settings map[string]float64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := changed(l.Kind(), l.settings(), settings)
	if err != nil {
		return err
	}
	l.set(next[settingPerSecond], int(next[settingBurst]))
	return nil
}

// tokens is one setting; replaced is closed when another takes its place.
type tokens struct {
	limiter  *rate.Limiter
	replaced chan struct{}
}

// NewRateLimit allows perSecond calls a second on average and burst at once. 0 per second holds all calls until Set; math.Inf(1) lets all pass.
func NewRateLimit(perSecond float64, burst int) (*RateLimit, error) {
	if err := checkRate(perSecond, burst); err != nil {
		return nil, err
	}
	return &RateLimit{now: newTokens(perSecond, burst)}, nil
}

func checkRate(perSecond float64, burst int) error {
	if math.IsNaN(perSecond) || perSecond < 0 {
		return fmt.Errorf("middleware: rate limit: %v per second, want at least 0", perSecond)
	}
	if burst < 1 {
		return fmt.Errorf("middleware: rate limit: burst is %d, want at least 1", burst)
	}
	return nil
}

func newTokens(perSecond float64, burst int) *tokens {
	limit := rate.Limit(perSecond)
	if math.IsInf(perSecond, 1) {
		limit = rate.Inf
	}
	return &tokens{rate.NewLimiter(limit, burst), make(chan struct{})}
}

// Set changes the limit, for waiting calls too. What is saved up is kept, as far as the new burst has room for it.
func (l *RateLimit) Set(perSecond float64, burst int) error {
	if err := checkRate(perSecond, burst); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(perSecond, burst)
	return nil
}

// set needs l.mu.
func (l *RateLimit) set(perSecond float64, burst int) {
	next := newTokens(perSecond, burst)
	old, now := l.now, time.Now()
	// A limiter begins full: take out what is not saved up. The part of a token that has grown since the last one, which calls that
	// wait (tokens below zero) count on, is kept by taking it out that much earlier; or they would starve while Set is called often.
	tokens := old.limiter.TokensAt(now)
	whole := math.Floor(tokens)
	if rest := tokens - whole; perSecond > 0 {
		now = now.Add(-time.Duration(rest / perSecond * float64(time.Second)))
	}
	next.limiter.AllowN(now, burst-min(max(0, int(whole)), burst))
	l.now = next
	close(old.replaced)
}

// Middleware waits for its turn before each call. When the context ends first, the error wraps its cause.
func (l *RateLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		if err := l.wait(ctx); err != nil {
			return fmt.Errorf("waiting for the rate limit: %w", err)
		}
		return next(ctx, m)
	}
}

func (l *RateLimit) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		now := l.now
		l.mu.Unlock()
		r := now.limiter.Reserve()
		d := r.Delay()
		if d == 0 {
			return nil
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
			return nil
		case <-now.replaced:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			r.Cancel()
			return context.Cause(ctx)
		}
	}
}
