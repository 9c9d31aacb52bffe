package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/sony/gobreaker/v2"
)

// ErrOpen says that a CircuitBreaker did not let a call through.
var ErrOpen = errors.New("middleware: circuit breaker is open")

// BreakerConfig says when a CircuitBreaker opens, and what it does then. The zero value serves.
type BreakerConfig struct {
	// FailureRate is the share of failed calls in Window at which it opens, above 0 and at most 1. Defaults to 0.5.
	FailureRate float64 `yaml:"failure_rate" want:">0..1"`
	// MinCalls is how many calls Window must have before FailureRate means anything. Defaults to 20.
	MinCalls int `yaml:"min_calls" want:"1.."`
	// Window is how far back calls count, in steps of a tenth. Defaults to 10 s.
	Window time.Duration `yaml:"window" want:"10ms.."`
	// OpenFor is how long it stays open before it tries again. Defaults to 10 s.
	OpenFor time.Duration `yaml:"open_for" want:">0"`
	// Probes are the calls let through to try; it closes when all succeed and opens again when one fails. Defaults to 1.
	Probes int `yaml:"probes" want:"1..65536"`
	// RetryWhenOpen returns ErrOpen as a RetryAfter while it is open, instead of waiting in the worker. That frees the worker for
	// other handlers, and it uses up an attempt, as every error does: an outage longer than about MaxAttempts × OpenFor dead-letters
	// what comes in it. Set it where several routes share a consumer and MaxAttempts is high. Defaults to false: calls wait, no
	// attempt is used up, and the full queue stops the fetching.
	RetryWhenOpen bool `yaml:"retry_when_open"`
	// IsFailure says which errors count. Defaults to all but Permanent and Skip, which say that the other side works. Errors of a
	// call that the end of its claim or of the process cut short count as nothing.
	IsFailure func(error) bool `yaml:"-"`
	// OnChange is told each new state: open, half-open or closed. It must not block, nor call the breaker. Defaults to none.
	OnChange func(state string) `yaml:"-"`
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	c.FailureRate = cmp.Or(c.FailureRate, 0.5)
	c.MinCalls = cmp.Or(c.MinCalls, 20)
	c.Window = cmp.Or(c.Window, 10*time.Second)
	c.OpenFor = cmp.Or(c.OpenFor, 10*time.Second)
	c.Probes = cmp.Or(c.Probes, 1)
	if c.IsFailure == nil {
		c.IsFailure = func(err error) bool {
			return err != nil && !consumer.IsPermanent(err) && !consumer.IsSkip(err) && !consumer.IsDeferred(err)
		}
	}
	return c
}

// A CircuitBreaker spares what a handler calls while that fails: it opens, lets nothing through for a while, then a probe, and
// closes when the probe succeeds. Its Middleware is a consumer.Middleware; one breaker may wrap several handlers that call the
// same thing. A wait is no attempt, however long: where a Timeout around it ends it, or time of it is gone when the wait is over,
// the call is put off, and comes again at once (consumer.Defer). When a stop begins, or a partition goes to another process, what
// waits goes back to the broker (consumer.Leaving). The counting is gobreaker's. Safe for concurrent use.
type CircuitBreaker struct {
	config BreakerConfig
	gate   *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu      sync.Mutex
	until   time.Time     // when it may be tried again, once it has opened
	since   time.Time     // when it opened, its tries since then passed over; zero: it is closed
	changed chan struct{} // closed, and replaced, when a waiting call should look again
}

// NewCircuitBreaker checks c and reports all findings at once.
func NewCircuitBreaker(c BreakerConfig) (*CircuitBreaker, error) {
	f := &broker.Findings{Of: "middleware: circuit breaker"}
	conftag.Check(f, c)
	if err := f.Err(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	b := &CircuitBreaker{config: c, changed: make(chan struct{})}
	b.gate = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(c.Probes), //nolint:gosec // bounded by validate
		Interval:     c.Window,
		BucketPeriod: c.Window / 10,
		Timeout:      c.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			calls := n.TotalSuccesses + n.TotalFailures
			return int(calls) >= c.MinCalls && float64(n.TotalFailures) >= c.FailureRate*float64(calls)
		},
		IsSuccessful:  func(err error) bool { return !c.IsFailure(err) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errCutShort) },
		OnStateChange: b.changedTo,
	})
	return b, nil
}

// changedTo is called by gobreaker under its lock.
func (b *CircuitBreaker) changedTo(_ string, from, to gobreaker.State) {
	b.mu.Lock()
	switch {
	case to == gobreaker.StateClosed:
		b.since = time.Time{}
	case from == gobreaker.StateClosed:
		b.since = time.Now()
	}
	if to == gobreaker.StateOpen {
		b.until = time.Now().Add(b.config.OpenFor)
	}
	b.mu.Unlock()
	b.wake()
	if b.config.OnChange != nil {
		b.config.OnChange(to.String())
	}
}

func (b *CircuitBreaker) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// State is open, half-open or closed.
func (b *CircuitBreaker) State() string { return b.gate.State().String() }

// OpenSince is when it opened, however often it has tried and opened again since then. The zero time: it is closed.
func (b *CircuitBreaker) OpenSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since
}

var (
	// errCutShort tells gobreaker that a call says nothing about the other side.
	errCutShort = errors.New("cut short")
	// errLeaving ends a wait for leave when the call may not begin any more.
	errLeaving = errors.New("leaving")
	// errUnwound is the result of a call that did not return: it panicked, or called runtime.Goexit.
	errUnwound = errors.New("did not return")
)

// Middleware lets calls through, or not.
func (b *CircuitBreaker) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) (err error) {
		done, err := b.enter(ctx)
		if err != nil {
			return err
		}
		result := errUnwound
		defer func() {
			done(result)
			if errors.Is(result, errCutShort) {
				b.wake() // a probe that tells nothing leaves its place to another
			}
		}()
		err = next(ctx, m)
		result = err
		if err != nil && cutShort(ctx) {
			result = errCutShort
		}
		return err
	}
}

func cutShort(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, consumer.ErrShutdown) || errors.Is(cause, broker.ErrLost) || errors.Is(cause, context.Canceled)
}

// enter gets leave for a call, waiting for it unless RetryWhenOpen is set. What it returns is told the result.
//
// The time of a call that a timeout ends runs while it waits here. So a wait that is cut is no attempt, and what got leave after
// a wait is called anew: a probe that has the rest of its time only fails, and the breaker opens again, and again.
func (b *CircuitBreaker) enter(ctx context.Context) (done func(error), err error) {
	for since := (time.Time{}); ; {
		b.mu.Lock()
		changed := b.changed // before Allow, or a change between the two would be missed
		b.mu.Unlock()
		if done, err = b.gate.Allow(); err == nil {
			if worn(ctx, since) {
				done(errCutShort)
				b.wake()
				return nil, consumer.Defer(0, nil)
			}
			return done, nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		b.mu.Lock()
		wait := time.Until(b.until) + time.Nanosecond // gobreaker changes after that moment, not at it
		b.mu.Unlock()
		if b.config.RetryWhenOpen {
			if wait < b.config.OpenFor/10 { // half-open: the probe is under way
				wait = b.config.OpenFor / 10
			}
			return nil, consumer.RetryAfter(ErrOpen, wait)
		}
		err := pause(ctx, changed, wait, errors.Is(err, gobreaker.ErrOpenState))
		if errors.Is(err, consumer.ErrTimeout) || errors.Is(err, errLeaving) {
			return nil, consumer.Defer(0, nil)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOpen, err)
		}
	}
}

// worn says whether a call that has waited since then, if at all, has lost more than a tenth of its time. Less is lost by one
// that comes while another gives back its leave: put off, too, they could do that to each other in turns.
func worn(ctx context.Context, since time.Time) bool {
	end, timed := ctx.Deadline()
	return timed && !since.IsZero() && time.Since(since) > time.Until(end)/9
}

// pause waits for a change and, where timed, at most d.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration, timed bool) error {
	var over <-chan time.Time
	if timed {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-changed:
	case <-consumer.Leaving(ctx):
		return errLeaving
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
