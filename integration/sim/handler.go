package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// An Act is a way in which a run of a handler goes.
type Act string

const (
	// Nil: it returns nil after a short time.
	Nil Act = ""
	// Error: an error, to be retried.
	Error Act = "error"
	// Later: RetryAfter.
	Later Act = "later"
	// Overload: Overloaded.
	Overload Act = "overloaded"
	// Panic: it panics.
	Panic Act = "panic"
	// Goexit: it ends its goroutine.
	Goexit Act = "goexit"
	// Never: Permanent. Without dead letters it is retried, and may succeed then.
	Never Act = "permanent"
	// Skip: Skip, which acks.
	Skip Act = "skip"
	// Wait: Defer, as middleware that limits does.
	Wait Act = "defer"
	// Slow: nil, after up to two leases. It heeds its context.
	Slow Act = "slow"
	// Deaf: nil, after up to two leases, whatever its context says.
	Deaf Act = "deaf"
	// Late: an error, after up to two leases.
	Late Act = "late error"
	// Hang: it waits for the end of its context.
	Hang Act = "hang"
)

// acts in the order in which they share the percents.
var acts = []Act{Error, Later, Overload, Panic, Goexit, Never, Skip, Wait, Slow, Deaf, Late, Hang}

// patience is after how many runs a message is handled whatever the dice say, so that a run comes to its end.
const patience = 8

// A roll is how one run of a handler will act.
type roll struct {
	act Act
	// takes is how long it takes; wait is for what is tried again.
	takes, wait time.Duration
}

// rollOf decides on the n-th run of a message: of the seed, the message and n alone, so that it does not depend on who comes
// first.
func (s Schedule) rollOf(message, n int) roll {
	rnd := rand.New(rand.NewPCG(s.Seed, uint64(message)<<16|uint64(n)))
	upTo := func(d Span) time.Duration {
		took := time.Duration(rnd.Int64N(int64(d)))
		if s.Seed%2 == 0 {
			took = took.Round(5 * time.Millisecond) // so that much happens at the same instant
		}
		return took
	}
	r := roll{takes: upTo(Span(40 * time.Millisecond)), wait: upTo(Span(500 * time.Millisecond))}
	if s.isQuick(message, n) {
		r.takes = 0
	}
	percent, long := rnd.IntN(100), upTo(2*s.Settings.Lease)
	if n >= patience {
		return r
	}
	for _, a := range acts {
		if percent -= s.Handlers[a]; percent < 0 {
			r.act = a
			break
		}
	}
	switch {
	case r.act == Slow || r.act == Deaf || r.act == Late:
		r.takes = long
	case r.act == Hang && s.Settings.Timeout == 0: // nothing would end it
		r.act = Nil
	}
	return r
}

// isQuick is by dice of its own, so that all else of a run is as it is without.
func (s Schedule) isQuick(message, n int) bool {
	return s.Settings.Quick > 0 && rand.New(rand.NewPCG(s.Seed, 1<<56|uint64(message)<<16|uint64(n))).IntN(100) < s.Settings.Quick
}

var (
	errTold  = errors.New("the handler was told to fail")
	errDied  = errors.New("its process was killed")
	errNever = fmt.Errorf("permanently: %w", errTold)
)

// rollOf decides on a run that begins.
func (r *run) rollOf(e *entry) roll {
	is := r.schedule.rollOf(e.message, e.nth)
	if r.sick.Load() > 0 && e.nth < patience {
		is.act = Error
	}
	r.book.acts(e, is.act)
	return is
}

// handle is the handler of a process.
func (p *process) handle(ctx context.Context, m *consumer.Message) error {
	e := p.begin(ctx, m, nil)
	r := p.run.rollOf(e)
	if err := p.emitBegun(ctx, m, e); err != nil {
		return p.end(e, err)
	}
	switch r.act {
	case Panic, Goexit: // before, since there is no coming back
		if err := p.pass(ctx, r); err != nil {
			return p.end(e, err)
		}
		_ = p.emitEnded(ctx, m, e)
		_ = p.end(e, errTold)
		if r.act == Goexit {
			runtime.Goexit()
		}
		panic("told to panic")
	}
	if err := p.pass(ctx, r); err != nil {
		return p.end(e, err)
	}
	if err := p.emitEnded(ctx, m, e); err != nil {
		return p.end(e, err)
	}
	return p.end(e, r.err(p.run.schedule.waker(e.message, e.nth)))
}

// err is what the run returns when its time has passed. until wakes what is put off.
func (r roll) err(until func(wake func() bool)) error {
	switch r.act {
	case Error, Late:
		return errTold
	case Later:
		return consumer.RetryAfter(errTold, r.wait)
	case Overload:
		return consumer.Overloaded(errTold, r.wait)
	case Never:
		return consumer.Permanent(errNever)
	case Skip:
		return consumer.Skip("told to")
	case Wait:
		return consumer.Defer(r.wait, until)
	}
	return nil
}

// pass lets the time of a run pass. The error is the context's, where that ended it.
func (p *process) pass(ctx context.Context, r roll) error {
	done := ctx.Done()
	var over <-chan time.Time
	switch r.act {
	case Hang:
	case Deaf:
		done = nil
		fallthrough
	default:
		t := time.NewTimer(r.takes)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-done:
		return ctx.Err()
	case <-p.died:
		return errDied
	}
	return nil
}

// handleBatch is the batch handler of a process. The batch takes as long as its longest message; one that ends its goroutine
// ends it for all.
func (p *process) handleBatch(ctx context.Context, ms []*consumer.Message) error {
	runs := make([]*entry, len(ms))
	rolls := make([]roll, len(ms))
	errs := make([]error, len(ms)) // of what could not be emitted
	var longest roll
	of := &batch{size: len(ms), called: time.Now()}
	for i, m := range ms {
		runs[i] = p.begin(ctx, m, of)
		rolls[i] = p.run.rollOf(runs[i])
		errs[i] = p.emitBegun(ctx, m, runs[i])
		if r := rolls[i]; r.takes >= longest.takes || r.act == Hang {
			longest = roll{act: r.act, takes: r.takes}
		}
	}
	p.judgeBatch(ms)
	// With an order, the first of a batch by key that fails ends it: what comes after it is handled again. Those without a key are
	// in no order.
	consecutive := p.run.schedule.Settings.ByKey && runs[0].lane != ""
	err := p.pass(ctx, longest)
	if err == nil && rolls[0].act == Panic {
		for i, e := range runs {
			e.void = consecutive && i > 0
			_ = p.end(e, errTold)
		}
		panic("told to panic")
	}
	if err == nil && p.run.schedule.fails(rolls) {
		return p.failWhole(ctx, ms, runs, consecutive)
	}
	each := &consumer.BatchError{Errs: make([]error, len(ms))}
	failed := false
	for i, e := range runs {
		is := cmp.Or(err, errs[i])
		if is == nil {
			is = cmp.Or(p.emitEnded(ctx, ms[i], e), rolls[i].err(p.run.schedule.waker(e.message, e.nth)))
		}
		e.void = failed
		each.Errs[i] = p.end(e, is)
		if each.Errs[i] != nil && !consumer.IsSkip(each.Errs[i]) {
			failed = consecutive
		}
	}
	return each
}

// fails says whether a batch has one error for all of it.
func (s Schedule) fails(rolls []roll) bool {
	return s.Settings.Whole && slices.ContainsFunc(rolls, func(r roll) bool { return r.act == Error || r.act == Late })
}

// failWhole ends the runs of a batch with one error for all, whosever it is: as it is, or with the number of entries that a batch
// of another size would have, of which the first says nothing.
func (p *process) failWhole(ctx context.Context, ms []*consumer.Message, runs []*entry, consecutive bool) error {
	for i, e := range runs {
		_ = p.emitEnded(ctx, ms[i], e)
		e.void = consecutive && i > 0
		_ = p.end(e, errTold)
	}
	if runs[0].nth%2 == 0 {
		return errTold
	}
	return &consumer.BatchError{Errs: append(make([]error, len(ms)), errTold)}
}
