package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// A Life is that of a source: Open once and Close once, beside each other and in any order, and the goroutines in between. It is
// safe for concurrent use. Of an Open:
//
//	Begin ─▶ (Fail) ─▶ Launch: the goroutines start ─▶ … ─▶ Close: shut, then Context ends, then those of Go are waited for
type Life struct {
	name string
	ctx  context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	phase   phase
	stopped bool
	closing bool
	over    bool // Go starts nothing any more
	work    sync.WaitGroup
	done    chan struct{} // closed when Close is done
	err     error         // of Close; read when done is closed
}

type phase int

const (
	created phase = iota
	opening
	launched
	failed
)

// NewLife begins one. The adapter's name is what errors begin with.
func NewLife(name string) *Life {
	l := &Life{name: name, done: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Context is that of all goroutines. It ends when Close has nothing more to send, or End says so.
func (l *Life) Context() context.Context { return l.ctx }

// Begin is the beginning of Open, and says whether it may go on. The error is the one for Open to return: ErrClosed after Stop
// or Close, ErrOpened at a second Open, or what is wrong: the adapter's own findings, nil ones left out, and those about the
// options.
func (l *Life) Begin(o broker.Options, findings ...error) error {
	bad := errors.Join(append(findings, l.check(o))...)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closing || l.stopped:
		return l.inOpen(broker.ErrClosed)
	case l.phase != created:
		return l.inOpen(broker.ErrOpened)
	case bad != nil:
		l.phase = failed
		return bad
	}
	l.phase = opening
	return nil
}

func (l *Life) check(o broker.Options) error {
	var errs []error
	if o.Budget.Messages <= 0 || o.Budget.Bytes <= 0 {
		errs = append(errs, fmt.Errorf("%s: Options.Budget is %+v: both must be positive", l.name, o.Budget))
	}
	if o.Observe == nil {
		errs = append(errs, fmt.Errorf("%s: Options.Observe is nil", l.name))
	}
	return errors.Join(errs...)
}

// Fail ends an Open that did not come as far as Launch, and returns the error for it to return.
func (l *Life) Fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = failed
	return l.inOpen(err)
}

func (l *Life) inOpen(err error) error { return fmt.Errorf("%s: opening: %w", l.name, err) }

// Opening says whether Open has begun and has neither failed nor come as far as Launch.
func (l *Life) Opening() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == opening
}

// While returns a ctx for an Open that waits: it ends when the given one does, and by Close, with ErrClosed as its cause. The
// function that it returns frees it.
func (l *Life) While(ctx context.Context) (context.Context, context.CancelFunc) {
	both, end := context.WithCancelCause(ctx)
	free := context.AfterFunc(l.ctx, func() { end(broker.ErrClosed) })
	return both, func() { free(); end(context.Canceled) }
}

// Await is for an Open that would claim something now: it waits for the other sources of the consumer, as Options.Await says. By
// Close it ends with ErrClosed.
func (l *Life) Await(ctx context.Context, o broker.Options) error {
	if o.Await == nil {
		return nil
	}
	ctx, free := l.While(ctx)
	defer free()
	err := o.Await(ctx)
	if err != nil && l.ctx.Err() != nil {
		return broker.ErrClosed
	}
	return err
}

// Launch calls start, which starts the goroutines that shut ends and waits for; those that end with Context it starts by run,
// and Close waits for them. Where Close was called before, it starts nothing, and returns the error for Open to return.
func (l *Life) Launch(start func(run func(func()))) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		l.phase = failed
		return l.inOpen(broker.ErrClosed)
	}
	l.phase = launched
	start(l.work.Go)
	return nil
}

// Go starts a goroutine that ends with Context, and that Close waits for. Once Close waits it starts none: what was decided
// before may come to be done after it.
func (l *Life) Go(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.work.Go(f)
	}
}

// Stop makes an Open that comes later say ErrClosed.
func (l *Life) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

// End ends Context before Close does.
func (l *Life) End() { l.end() }

// Close calls shut, where Launch was, ends Context, waits for what Go started, and calls last. It does so once: any other call
// waits for that and returns its result, which is shut's.
func (l *Life) Close(shut func() error, last func()) error {
	l.mu.Lock()
	first, was := !l.closing, l.phase
	l.closing, l.stopped = true, true
	l.mu.Unlock()
	if !first {
		<-l.done
		return l.err
	}
	if was == launched {
		l.err = shut()
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.end()
	l.work.Wait()
	last()
	close(l.done)
	return l.err
}
