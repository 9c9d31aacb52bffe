package pool_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func newTasks(t testing.TB, cfg pool.Config[pool.Task]) *pool.Pool[pool.Task] {
	t.Helper()
	p, err := pool.NewTasks(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGroupCollectsAllErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTasks(t, pool.Config[pool.Task]{Max: 4})
		g := pool.NewGroup(t.Context(), p)
		one, boom := errors.New("one"), errors.New("boom")
		var ran atomic.Int32
		for range 10 {
			g.Go(func(context.Context) error { time.Sleep(time.Second); ran.Add(1); return nil })
		}
		g.Go(func(context.Context) error { return one })
		g.Go(func(context.Context) error { panic(boom) })
		g.Go(func(context.Context) error { runtime.Goexit(); return nil })
		err := g.Wait()
		var pe *pool.PanicError
		if ran.Load() != 10 || !errors.Is(err, one) || !errors.Is(err, boom) || !errors.Is(err, pool.ErrGoexit) || !errors.As(err, &pe) || len(pe.Stack) == 0 {
			t.Errorf("ran %d, error %v", ran.Load(), err)
		}
		if g := pool.NewGroup(t.Context(), p); g.Wait() != nil {
			t.Error("an empty group has an error")
		}
		drain(t, p)
		if s := p.Stats(); s.Goexits != 1 || s.Panics != 0 || s.Done != 13 {
			t.Errorf("goexits %d, panics %d, done %d", s.Goexits, s.Panics, s.Done)
		}
	})
}

func TestGroupCancelsAtTheFirstError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTasks(t, pool.Config[pool.Task]{Min: 2, Max: 2, Weights: []int{1, 1}})
		g := pool.NewGroup(t.Context(), p, pool.CancelOnError(), pool.InClass(1))
		first := errors.New("first")
		var cause error
		g.Go(func(ctx context.Context) error { <-ctx.Done(); cause = context.Cause(ctx); return nil })
		g.Go(func(context.Context) error { time.Sleep(time.Second); return first })
		ran := false
		g.Go(func(context.Context) error { ran = true; return nil })
		if err := g.Wait(); !errors.Is(err, first) || !errors.Is(cause, first) || ran {
			t.Errorf("error %v, cause %v, the third ran: %v", err, cause, ran)
		}
		drain(t, p)
		late := pool.NewGroup(t.Context(), p)
		late.Go(func(context.Context) error { return nil })
		if err := late.Wait(); !errors.Is(err, pool.ErrClosed) {
			t.Errorf("on a drained pool: %v", err)
		}
	})
}

func TestTasksHaveTheirOwnDo(t *testing.T) {
	if _, err := pool.NewTasks(pool.Config[pool.Task]{Do: func(*pool.Worker[pool.Task], pool.Task) {}}); err == nil {
		t.Error("no error")
	}
}
