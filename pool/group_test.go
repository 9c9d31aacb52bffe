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
		if ran.Load() != 10 || !errors.Is(err, one) || !errors.Is(err, boom) || !errors.Is(err, pool.ErrGoexit) ||
			!errors.As(err, &pe) || len(pe.Stack) == 0 {
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

// A unit has a result or an error, also where it panics or calls Goexit, and errors are the group's, too.
func TestUnitsHaveResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTasks(t, pool.Config[pool.Task]{Max: 4})
		g := pool.NewGroup(t.Context(), p)
		boom := errors.New("boom")
		units := []*pool.Unit[int]{
			pool.Start(g, func(context.Context) (int, error) { time.Sleep(time.Second); return 7, nil }),
			pool.Start(g, func(context.Context) (int, error) { return 8, boom }),
			pool.Start(g, func(context.Context) (int, error) { panic(boom) }),
			pool.Start(g, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }),
		}
		if n, err := units[0].Wait(expired(t)); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("while it runs: %d, %v", n, err)
		}
		for range 2 { // it can be asked again
			if n, err := units[0].Wait(t.Context()); n != 7 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if n, err := units[1].Wait(t.Context()); n != 8 || !errors.Is(err, boom) {
			t.Errorf("%d, %v", n, err)
		}
		var pe *pool.PanicError
		if _, err := units[2].Wait(t.Context()); !errors.As(err, &pe) || !errors.Is(err, boom) {
			t.Error(err)
		}
		if _, err := units[3].Wait(t.Context()); !errors.Is(err, pool.ErrGoexit) {
			t.Error(err)
		}
		if err := g.Wait(); !errors.Is(err, boom) || !errors.Is(err, pool.ErrGoexit) {
			t.Error(err)
		}
		units[0].Cancel()
		drain(t, p)
	})
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// One unit is cancelled, running or waiting, and the others and the group are not; the group is, and all are.
func TestUnitsAndGroupsAreCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTasks(t, pool.Config[pool.Task]{Max: 1})
		g := pool.NewGroup(t.Context(), p)
		var begun atomic.Int32
		wait := func(ctx context.Context) (string, error) {
			begun.Add(1)
			select {
			case <-ctx.Done():
				return "cancelled", ctx.Err()
			case <-time.After(time.Minute):
				return "done", nil
			}
		}
		running, waiting, other := pool.Start(g, wait), pool.Start(g, wait), pool.Start(g, wait)
		time.Sleep(time.Second)
		waiting.Cancel()
		running.Cancel()
		if s, err := running.Wait(t.Context()); s != "cancelled" || !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", s, err)
		}
		if s, err := waiting.Wait(t.Context()); s != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", s, err)
		}
		if s, err := other.Wait(t.Context()); s != "done" || err != nil || begun.Load() != 2 {
			t.Errorf("%q, %v; %d were begun", s, err, begun.Load())
		}
		if err := g.Wait(); err != nil {
			t.Errorf("cancelling was wanted: %v", err)
		}

		g = pool.NewGroup(t.Context(), p)
		enough := errors.New("enough")
		running, waiting = pool.Start(g, wait), pool.Start(g, wait)
		time.Sleep(time.Second)
		begun.Store(0)
		g.Cancel(enough)
		start := time.Now()
		if err := g.Wait(); !errors.Is(err, enough) || begun.Load() != 0 || time.Since(start) > time.Second {
			t.Errorf("%v after %v, %d were begun", err, time.Since(start), begun.Load())
		}
		for _, u := range []*pool.Unit[string]{running, waiting} {
			if s, err := u.Wait(t.Context()); s == "done" || err == nil {
				t.Errorf("%q, %v", s, err)
			}
		}
		drain(t, p)
	})
}

// What a task has started by its context ends with the group, and what a unit has, with the unit: neither is kept by a context
// that lives on.
func TestContextsEndWithTheirGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newTasks(t, pool.Config[pool.Task]{Max: 1})
		g := pool.NewGroup(t.Context(), p)
		var ofTask, ofUnit context.Context
		g.Go(func(ctx context.Context) error {
			ofTask = ctx
			return nil
		})
		unit := pool.Start(g, func(ctx context.Context) (int, error) {
			ofUnit = ctx
			return 0, nil
		})
		if _, err := unit.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Second); ofUnit.Err() == nil || ofTask.Err() != nil {
			t.Errorf("the unit has ended, and the group has not: %v, %v", ofUnit.Err(), ofTask.Err())
		}
		if err := g.Wait(); err != nil || !errors.Is(context.Cause(ofTask), context.Canceled) {
			t.Errorf("%v; the group's context has ended with %v", err, context.Cause(ofTask))
		}
		drain(t, p)
	})
}

// The classic rule by jobs per worker: 200 at once for 2 workers, and a queue that is far from full.
func TestQueueThresholdGrowsByJobsPerWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Min: 2, Max: 32, Policy: pool.QueueThreshold(pool.ThresholdConfig{}),
			Do: func(intWorker, int) { time.Sleep(time.Second) }})
		if _, err := p.SubmitAll(t.Context(), 0, make([]int, 200)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := p.Stats().Live; n < 6 {
			t.Errorf("%d workers after 10 s", n)
		}
		time.Sleep(5 * time.Minute)
		if n := p.Stats().Live; n != 2 {
			t.Errorf("%d workers when all is done", n)
		}
		drain(t, p)
	})
}
