package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/conftag"
)

// ErrOpen says that a CircuitBreaker did not let a call through.
var ErrOpen = errors.New("middleware: circuit breaker is open")

// BreakerConfig says when a CircuitBreaker opens, and what it does then. The zero value serves.
type BreakerConfig struct {
	// FailureRate is the share of failed calls in Window at which it opens, above 0 and at most 1. Defaults to 0.5.
	FailureRate float64 `yaml:"failure_rate" want:">0..1"`
	// MinCalls is how many calls Window must have before FailureRate means anything; as many failures in a row open it, whatever
	// came before, and however far apart they are. Keep it below Retry.MaxAttempts × the messages that fail at a time, or they use
	// up their attempts before it opens: where a message comes now and then, below Retry.MaxAttempts. Defaults to 10.
	MinCalls int `yaml:"min_calls" want:"1.."`
	// Window is how far back calls count, from their end, in steps of a tenth. Where they take so long that it could not have
	// MinCalls of them, as where each hangs until its timeout, it is longer: twice as long as MinCalls take, as many at a time as
	// there are. Defaults to 10 s.
	Window time.Duration `yaml:"window" want:"10ms.."`
	// OpenFor is how long it stays open before it tries again. Defaults to 10 s.
	OpenFor time.Duration `yaml:"open_for" want:">0"`
	// Probes are the calls let through to try; it closes when all succeed and opens again when one fails. Defaults to 1.
	Probes int `yaml:"probes" want:"1..65536"`
	// RetryWhenOpen returns ErrOpen as a RetryAfter while it is open, instead of waiting in the worker. That frees the worker for
	// other handlers, and it uses up an attempt, as every error does: an outage longer than about MaxAttempts × OpenFor
	// dead-letters what comes in it. Set it where several routes share a consumer and MaxAttempts is high. Defaults to false: calls
	// wait, no attempt is used up, and the full queue stops the fetching.
	RetryWhenOpen bool `yaml:"retry_when_open"`
	// IsFailure says which errors count. Defaults to all but Permanent and Skip, which say that the other side works; Overloaded
	// counts for a probe, and where all is refused: since the last success MinCalls and ten times as many as are usual between two
	// successes, for a second and for as long as what refuses asks to wait, but not for longer than Window. Errors of a call that
	// the end of its claim or of the process cut short count as nothing, and so does a Defer.
	IsFailure func(error) bool `yaml:"-"`
	// OnChange is told each new state: open, half-open or closed, one after the other. It must not block. A panic is
	// written through package log, and nothing else comes of it. Defaults to none.
	OnChange func(state string) `yaml:"-"`
	// OnProbe is told of each probe that failed, and why: it is no attempt, so there is no consumer.Failed of it. Several calls of
	// it may run at once; it must not block. A panic comes to what one of OnChange does. Defaults to none.
	OnProbe func(m *consumer.Message, err error) `yaml:"-"`
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	c.FailureRate = cmp.Or(c.FailureRate, 0.5)
	c.MinCalls = cmp.Or(c.MinCalls, 10)
	c.Window = cmp.Or(c.Window, 10*time.Second)
	c.OpenFor = cmp.Or(c.OpenFor, 10*time.Second)
	c.Probes = cmp.Or(c.Probes, 1)
	return c
}

// A CircuitBreaker spares what a handler calls while that fails: it opens, lets nothing through for a while, then a probe, and
// closes when the probe succeeds. Its Middleware is a consumer.Middleware; one breaker may wrap several handlers that call the
// same thing. A wait is no attempt, however long: where a Timeout around it ends it, or time of it is gone when the wait is over,
// the call is put off, and comes again at once (consumer.Defer). When a stop begins, or a partition goes to another process, what
// waits goes back to the broker (consumer.Leaving).
//
// Nor is a probe that fails an attempt: its message is put off for longer than OpenFor, so that the next probe is another one,
// where there is another. So a message that fails by itself does not keep the breaker open: another closes it, and then that
// one uses up its attempts. Where there is no other, nobody can tell it from an outage, and it is tried until it succeeds. A
// probe that panics, or does not return, is an attempt; one that has not returned OpenFor after the end of its context has
// failed, and is waited for no more. Around batches (consumer.AroundBatch) a call fails where a message of it does, and of a
// probe those messages are put off that failed. Safe for concurrent use.
type CircuitBreaker struct {
	config BreakerConfig

	mu      sync.Mutex
	circuit circuit
	telling bool // somebody tells OnChange
}

// NewCircuitBreaker checks c and reports all findings at once.
func NewCircuitBreaker(c BreakerConfig) (*CircuitBreaker, error) {
	f := &broker.Findings{Of: "middleware: circuit breaker"}
	conftag.Check(f, c)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return &CircuitBreaker{config: c.withDefaults(), circuit: newCircuit(c.withDefaults())}, nil
}

// State is open, half-open or closed.
func (b *CircuitBreaker) State() string {
	defer b.tell()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.circuit.look(time.Now())
	return b.circuit.state
}

// OpenSince is when it opened, however often it has tried and opened again since then. The zero time: it is closed.
func (b *CircuitBreaker) OpenSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit.since
}

// ask is leave for a call, where it may begin now: see circuit.ask. Where an OnChange ends the goroutine by runtime.Goexit the
// leave is given back: there is no call.
func (b *CircuitBreaker) ask() (p pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	told := false
	defer func() {
		if ok && !told {
			b.done(p, tellsNothing, 0)
		}
	}()
	p, ok, wait, changed = b.askOnly()
	b.tell()
	told = true
	return p, ok, wait, changed
}

func (b *CircuitBreaker) askOnly() (p pass, ok bool, wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.circuit.ask(time.Now())
}

// done takes the result of a call, and after how long it may come again, where it was refused.
func (b *CircuitBreaker) done(p pass, r result, after time.Duration) {
	defer b.tell()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.circuit.done(p, r, after, time.Now())
}

// tell tells OnChange what is new, one after the other, and without the lock: it may ask for the State. A panic ends there: who
// is unwound just after it got leave never gives that back, and a breaker whose probe is under way for ever lets nothing through.
func (b *CircuitBreaker) tell() {
	for {
		state, ok := b.untold()
		if !ok {
			return
		}
		func() {
			defer b.told()
			defer survive("OnChange", state)
			b.config.OnChange(state)
		}()
	}
}

// survive ends a panic of a callback that was told of something. It is deferred.
func survive(in string, of any) {
	if v := recover(); v != nil {
		log.Printf("middleware: panic in %s(%v) of a circuit breaker: %v\n%s", in, of, v, debug.Stack())
	}
}

// tellProbe tells OnProbe of a probe that failed. A panic ends there: else the probe would be an attempt.
func (b *CircuitBreaker) tellProbe(m *consumer.Message, err error) {
	if b.config.OnProbe != nil {
		defer survive("OnProbe", m.Topic)
		b.config.OnProbe(m, err)
	}
}

// untold is the next state to tell, unless somebody tells one just now, who then comes for it.
func (b *CircuitBreaker) untold() (state string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := b.circuit.news
	if b.config.OnChange == nil {
		b.circuit.news = nil
		return "", false
	}
	if b.telling || len(news) == 0 {
		return "", false
	}
	b.telling, b.circuit.news = true, news[1:]
	return news[0], true
}

func (b *CircuitBreaker) told() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.telling = false
}

// errLeaving ends a wait for leave when the call may not begin any more.
var errLeaving = errors.New("leaving")

// Middleware lets calls through, or not.
func (b *CircuitBreaker) Middleware(next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) (err error) {
		p, err := b.enter(ctx)
		if err != nil {
			return err
		}
		r := failed // what does not return panicked, or called runtime.Goexit
		defer func() { b.done(p, r, consumer.RetryDelay(err)) }()
		if p.probe {
			defer b.mind(ctx, p)()
		}
		err = next(ctx, m)
		r = b.resultOf(ctx, err)
		return b.verdict(ctx, m, p, r, err)
	}
}

// mind has a probe fail that has not returned OpenFor after the end of its context, until returned is called. Else: a probe hangs
// in a handler that ignores its context; the engine gives that worker up and goes on with another one; and all calls wait for a
// probe that never ends.
func (b *CircuitBreaker) mind(ctx context.Context, p pass) (returned func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		late := time.NewTimer(b.config.OpenFor)
		defer late.Stop()
		select {
		case <-over:
		case <-late.C:
			b.lapse(p)
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-ended // what the call came to counts after that
		}
	}
}

// lapse counts a probe as failed that does not return.
func (b *CircuitBreaker) lapse(p pass) {
	defer b.tell()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.circuit.lapse(p, time.Now())
}

// resultOf is what a call that returned err says about the other side.
func (b *CircuitBreaker) resultOf(ctx context.Context, err error) result {
	switch {
	case err == nil:
		return succeeded
	case cutShort(ctx):
		return tellsNothing
	}
	return b.says(err)
}

// says is what an error says about the other side; of a batch's, what that of its messages does which says the worst.
func (b *CircuitBreaker) says(err error) (r result) {
	if each := eachOf(err); len(each) > 0 && b.config.IsFailure == nil {
		for _, of := range each {
			r = max(r, b.says(of))
		}
		return r
	}
	switch {
	case err == nil:
		return succeeded
	case consumer.IsDeferred(err):
		return tellsNothing
	case b.config.IsFailure != nil && b.config.IsFailure(err):
		return failed
	case b.config.IsFailure != nil, consumer.IsPermanent(err), consumer.IsSkip(err):
		return succeeded
	case consumer.IsOverloaded(err):
		return refused
	}
	return failed
}

func cutShort(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, consumer.ErrShutdown) || errors.Is(cause, broker.ErrLost) || errors.Is(cause, context.Canceled)
}

// verdict is what the handler returns for a call. A probe that failed is no attempt, and no handling time: its message is put off
// until others had their turn. Nor is a call that had waited, and lacked that time.
func (b *CircuitBreaker) verdict(ctx context.Context, m *consumer.Message, p pass, r result, err error) error {
	wait := time.Duration(0)
	switch {
	case r != failed && r != refused:
		return err
	case p.probe:
		b.tellProbe(m, err)
		wait = b.config.OpenFor + b.config.OpenFor/2
	case p.waited == 0 || !timedOut(ctx):
		return err
	}
	consumer.Waited(ctx, time.Since(p.begun))
	return b.putOff(wait, err)
}

// putOff has what failed come again after wait; of a batch, the messages that did.
func (b *CircuitBreaker) putOff(wait time.Duration, err error) error {
	errs := slices.Clone(eachOf(err))
	if errs == nil {
		return fmt.Errorf("%w: behind a circuit breaker: %v", consumer.Defer(wait, nil), err) //nolint:errorlint // it is no failure
	}
	for i, of := range errs {
		if r := b.says(of); r == failed || r == refused {
			errs[i] = b.putOff(wait, of)
		}
	}
	return &consumer.BatchError{Errs: errs}
}

// eachOf is what the error of a batch says of each of its messages; nil: it is that of a message, or says the same of all.
func eachOf(err error) []error {
	each := batchError(err)
	if each == nil {
		return nil
	}
	return consumer.BatchErrors(err, len(each.Errs))
}

// batchError is the BatchError in what a handler returned; nil: there is none. One that it panicked with was not returned: of
// each message that panic would be said again, and in it the BatchError found again, without end.
func batchError(err error) *consumer.BatchError {
	switch x := err.(type) { //nolint:errorlint // it goes through what is wrapped itself
	case *consumer.BatchError:
		return x
	case *consumer.PanicError:
		return nil
	case interface{ Unwrap() error }:
		return batchError(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range x.Unwrap() {
			if each := batchError(part); each != nil {
				return each
			}
		}
	}
	return nil
}

// timedOut says whether the time of a call is over.
func timedOut(ctx context.Context) bool {
	end, timed := ctx.Deadline()
	return timed && !time.Now().Before(end) || errors.Is(context.Cause(ctx), consumer.ErrTimeout)
}

// enter gets leave for a call, waiting for it unless RetryWhenOpen is set.
//
// The time of a call that a timeout ends runs while it waits here. So a wait that is cut is no attempt, and what got leave after
// a wait is called anew: a probe that has the rest of its time only fails, and the breaker opens again, and again.
func (b *CircuitBreaker) enter(ctx context.Context) (pass, error) {
	for since := (time.Time{}); ; {
		p, ok, wait, changed := b.ask()
		if since.IsZero() {
			since = p.begun
		}
		if p.waited = p.begun.Sub(since); ok {
			consumer.Waited(ctx, p.waited)
			if worn(ctx, p.waited) {
				b.done(p, tellsNothing, 0)
				return p, consumer.Defer(0, nil)
			}
			return p, nil
		}
		if b.config.RetryWhenOpen {
			return p, consumer.RetryAfter(ErrOpen, max(wait, b.config.OpenFor/10))
		}
		if err := pause(ctx, changed, wait); err != nil {
			consumer.Waited(ctx, time.Since(since))
			if errors.Is(err, consumer.ErrTimeout) || errors.Is(err, errLeaving) {
				return p, consumer.Defer(0, nil)
			}
			return p, fmt.Errorf("%w: %w", ErrOpen, err)
		}
	}
}

// worn says whether a call that has waited so long, if at all, has lost more than a tenth of its time. Less is lost by one that
// comes while another gives back its leave: put off, too, they could do that to each other in turns.
func worn(ctx context.Context, waited time.Duration) bool {
	if waited == 0 {
		return false
	}
	end, timed := ctx.Deadline()
	return timed && waited > time.Until(end)/9
}

// pause waits for a change and, where d is more than 0, at most so long.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	var over <-chan time.Time
	if d > 0 {
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
