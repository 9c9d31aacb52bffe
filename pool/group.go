package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Task is a T that can be done alone: see NewTasks.
type Task func()

// NewTasks is New for a pool that stands alone and runs functions. cfg.Do must be nil.
func NewTasks(cfg Config[Task]) (*Pool[Task], error) {
	if cfg.Do != nil {
		return nil, errors.New("pool: Config.Do: must be nil for tasks")
	}
	cfg.Do = func(_ *Worker[Task], t Task) { t() }
	return New(cfg)
}

// ErrGoexit is what a task that called runtime.Goexit counts as in its Group.
var ErrGoexit = errors.New("pool: task called runtime.Goexit")

// PanicError is what the panic of a task becomes in its Group, and that of a handler in package consumer.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the goroutine's stack at the panic.
	Stack []byte
}

// Error gives the value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value where it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Group submits tasks to a pool that others may use too, waits for them and collects their errors. Make one with NewGroup.
type Group struct {
	p      *Pool[Task]
	class  int
	ctx    context.Context
	cancel context.CancelCauseFunc
	first  bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// GroupOption changes what NewGroup makes.
type GroupOption func(*Group)

// CancelOnError ends the group's context, with the error as its cause, at the first one. What has not begun by then is not run.
func CancelOnError() GroupOption { return func(g *Group) { g.first = true } }

// InClass submits the group's tasks to that class of the pool. Defaults to 0.
func InClass(class int) GroupOption { return func(g *Group) { g.class = class } }

// NewGroup makes a group whose tasks get a context derived from ctx. It ends when Wait returns.
func NewGroup(ctx context.Context, p *Pool[Task], opts ...GroupOption) *Group {
	g := &Group{p: p}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	for _, o := range opts {
		o(g)
	}
	return g
}

// Go submits f. It blocks as Pool.Submit does, and is not for use inside a task of the same pool. What cannot be submitted,
// because the pool drains or the context has ended, is an error of Wait.
func (g *Group) Go(f func(context.Context) error) { g.submit(g.ctx, f, g.done) }

// Cancel ends the context of all tasks, with cause, context.Canceled where that is nil. What has not begun is not run. Wait still
// waits for what has. It does not block.
func (g *Group) Cancel(cause error) { g.cancel(cause) }

// submit runs f with ctx in the pool and tells done what became of it, exactly once.
func (g *Group) submit(ctx context.Context, f func(context.Context) error, done func(error)) {
	g.wg.Add(1)
	if err := g.p.Submit(ctx, g.class, func() { g.run(ctx, f, done) }); err != nil {
		done(fmt.Errorf("pool: task not run: %w", err))
	}
}

// run calls f, whatever becomes of it. The group's context has ended before those of its units, one after the other: by that of
// one the worker would be free that begins the next, before the end reaches it.
func (g *Group) run(ctx context.Context, f func(context.Context) error, done func(error)) {
	err := ErrGoexit // if f returns neither way
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
		done(err)
	}()
	for _, ctx := range []context.Context{ctx, g.ctx} {
		if ctx.Err() != nil {
			err = fmt.Errorf("pool: task not run: %w", context.Cause(ctx))
			return
		}
	}
	err = f(ctx)
}

// Unit is a task of a group that can be cancelled by itself and has a result. Start makes one.
type Unit[R any] struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
	result R
	err    error
}

// Start submits f as Group.Go does, and blocks as that. f's context ends with the group's, when the unit is cancelled, and when f
// has returned. An error of the unit is one of Group.Wait, too, but not that the unit was cancelled.
func Start[R any](g *Group, f func(context.Context) (R, error)) *Unit[R] {
	ctx, cancel := context.WithCancelCause(g.ctx)
	u := &Unit[R]{cancel: cancel, ended: make(chan struct{})}
	task := func(ctx context.Context) (err error) {
		u.result, err = f(ctx)
		return err
	}
	g.submit(ctx, task, func(err error) {
		u.err = err
		if errors.Is(context.Cause(ctx), errCancelled) && errors.Is(err, context.Canceled) {
			err = nil // somebody wanted that
		}
		close(u.ended)
		cancel(nil)
		g.done(err)
	})
	return u
}

var errCancelled = fmt.Errorf("pool: unit cancelled: %w", context.Canceled)

// Cancel ends the unit's context; one that has not begun is not run. It does not block, and after the unit's end it does nothing.
func (u *Unit[R]) Cancel() { u.cancel(errCancelled) }

// Wait blocks until the unit has ended, and returns its result and error, or until ctx ends, and returns its cause: the unit then
// goes on. The error of a unit that was cancelled before it began is context.Canceled; that of a panic is a *PanicError. It can
// be called by many, and again.
func (u *Unit[R]) Wait(ctx context.Context) (R, error) {
	select {
	case <-u.ended:
		return u.result, u.err
	default:
	}
	select {
	case <-u.ended:
		return u.result, u.err
	case <-ctx.Done():
		var none R
		return none, context.Cause(ctx)
	}
}

func (g *Group) done(err error) {
	if err != nil {
		g.mu.Lock()
		g.errs = append(g.errs, err)
		g.mu.Unlock()
		if g.first {
			g.cancel(err)
		}
	}
	g.wg.Done()
}

// Wait returns when all tasks have, with their errors joined in the order in which they came. After it the group is used up.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}
