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

// A RateLimit lets calls begin at a rate at most; its Middleware is a consumer.Middleware. One RateLimit may wrap several
// handlers, which share it. A message that is early waits for its turn without a worker (see consumer.Defer), so that a limited
// handler cannot take every worker from the others. It counts in this process: several processes call so many times as often.
// Safe for concurrent use.
type RateLimit struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	turns   map[message]time.Time // of those that wait
	sweep   int                   // calls until turns are forgotten whose messages did not come
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
	perSecond := float64(l.limiter.Limit())
	if l.limiter.Limit() == rate.Inf {
		perSecond = math.Inf(1)
	}
	return map[string]float64{settingPerSecond: perSecond, settingBurst: float64(l.limiter.Burst())}
}

// Change is Set for the settings that are named; the others stay. The error names each that is wrong, and then nothing is
// changed. Other than with Set, per_second is above 0 and has a bound.
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

// NewRateLimit allows perSecond calls a second on average and burst at once. 0 per second holds all calls until Set; math.Inf(1)
// lets all pass.
func NewRateLimit(perSecond float64, burst int) (*RateLimit, error) {
	if err := checkRate(perSecond, burst); err != nil {
		return nil, err
	}
	return &RateLimit{limiter: newLimiter(perSecond, burst), turns: map[message]time.Time{}}, nil
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

func newLimiter(perSecond float64, burst int) *rate.Limiter {
	return rate.NewLimiter(limitOf(perSecond), burst)
}

// limitOf is a rate as package rate has it: with infinity itself it would count in NaN, and limit nothing ever after.
func limitOf(perSecond float64) rate.Limit {
	if math.IsInf(perSecond, 1) {
		return rate.Inf
	}
	return rate.Limit(perSecond)
}

// Set changes the limit, also for messages that wait: they look again when their time is over as it was, at most 10 s. What is
// saved up is kept, as far as the new burst has room for it.
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
	next, now := newLimiter(perSecond, burst), time.Now()
	// A limiter begins full: take out what is not saved up. The part of a token that has grown since the last one, which messages
	// that wait (tokens below zero) count on, is kept by taking it out that much earlier; or they would starve while Set is called
	// often.
	tokens := l.limiter.TokensAt(now)
	whole := math.Floor(tokens)
	if rest := tokens - whole; perSecond > 0 {
		now = now.Add(-time.Duration(rest / perSecond * float64(time.Second)))
	}
	next.AllowN(now, burst-min(max(0, int(whole)), burst))
	l.limiter = next
	clear(l.turns)
}

// Middleware defers what is early.
func (l *RateLimit) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		if wait := l.take(message{m.Claim, m.Token}, time.Now()); wait > 0 {
			return consumer.Defer(wait, nil)
		}
		return next(ctx, m)
	}
}

const (
	// longestTurn is how far ahead a turn may be; beyond it a message looks again, for nobody knows when.
	longestTurn = time.Hour
	// missed is how long after its turn a message is not expected any more: it went back to the broker.
	missed = time.Minute
)

// take takes a message's turn, or says how long until it looks again. A turn is kept for its message, so that those that wait go
// in the order in which they came.
func (l *RateLimit) take(m message, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep--; l.sweep < 0 {
		l.forgetMissed(now)
	}
	turn, waits := l.turns[m]
	if !waits {
		r := l.limiter.ReserveN(now, 1)
		wait := r.DelayFrom(now)
		if wait > longestTurn {
			r.CancelAt(now)
			return longestWait
		}
		turn = now.Add(wait)
	}
	if wait := turn.Sub(now); wait > 0 {
		l.turns[m] = turn
		return min(wait, longestWait)
	}
	delete(l.turns, m)
	return 0
}

func (l *RateLimit) forgetMissed(now time.Time) {
	for m, turn := range l.turns {
		if now.Sub(turn) > missed {
			delete(l.turns, m)
		}
	}
	l.sweep = max(1024, len(l.turns))
}
