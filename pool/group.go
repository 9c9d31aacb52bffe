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

// PanicError is what the panic of a task becomes in its Group.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the goroutine's stack at the panic.
	Stack []byte
}

// Error gives the value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("pool: panic in task: %v", e.Value) }

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

// Go submits f. It blocks as Pool.Submit does, and is not for use inside a task of the same pool. What cannot be submitted, because
// the pool drains or the context has ended, is an error of Wait.
func (g *Group) Go(f func(context.Context) error) {
	g.wg.Add(1)
	if err := g.p.Submit(g.ctx, g.class, func() { g.run(f) }); err != nil {
		g.done(fmt.Errorf("pool: task not run: %w", err))
	}
}

// run calls f, whatever becomes of it.
func (g *Group) run(f func(context.Context) error) {
	err := ErrGoexit // if f returns neither way
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
		g.done(err)
	}()
	if g.ctx.Err() != nil {
		err = fmt.Errorf("pool: task not run: %w", context.Cause(g.ctx))
		return
	}
	err = f(g.ctx)
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
