package pool_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/longshoremq/longshore/pool"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// misbehave is a handler that takes from nothing to some milliseconds and ends in one of three ways.
func misbehave(i int) {
	time.Sleep(time.Duration(i%7) * time.Millisecond)
	switch i % 11 {
	case 3:
		panic("misbehaving")
	case 5:
		runtime.Goexit()
	}
}

// ledger counts what became of each T.
type ledger struct {
	mu      sync.Mutex
	next    int
	taken   map[int]bool
	handled map[int]int
}

func (l *ledger) ids(n int) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]int, n)
	for i := range ids {
		ids[i] = l.next
		l.next++
	}
	return ids
}

func (l *ledger) take(ids []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.taken[id] = true
	}
}

func (l *ledger) handle(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled[id]++
}

// TestNothingLostNothingTwice drives a pool at random through both doors, limits, contexts that end, panics, exits, abandoned
// workers and a drain at a random moment. Each T taken is handled exactly once, each refused one never, and the bounds hold.
func TestNothingLostNothingTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		shape := rapid.Custom(drawShape).Draw(r, "shape")
		var err error
		synctest.Test(t, func(t *testing.T) { err = shape.drive(t) })
		if err != nil {
			r.Fatal(err)
		}
	})
}

// shape is one random run.
type shape struct {
	min, max, queue, classes int
	stuck                    bool
	acts                     []act
}

type act struct{ kind, n, class, wait int }

func drawShape(r *rapid.T) shape {
	s := shape{
		min: rapid.IntRange(1, 5).Draw(r, "min"), queue: rapid.IntRange(1, 9).Draw(r, "queue"),
		classes: rapid.IntRange(1, 3).Draw(r, "classes"), stuck: rapid.Bool().Draw(r, "stuck"),
	}
	s.max = s.min + rapid.IntRange(0, 9).Draw(r, "spare")
	s.acts = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) act {
		return act{rapid.IntRange(0, 6).Draw(r, "kind"), rapid.IntRange(1, 30).Draw(r, "n"),
			rapid.IntRange(0, s.classes-1).Draw(r, "class"),
			rapid.IntRange(0, 20).Draw(r, "wait")}
	}), 1, 40).Draw(r, "acts")
	return s
}

func (s shape) drive(t *testing.T) error {
	l := &ledger{taken: map[int]bool{}, handled: map[int]int{}}
	cfg := pool.Config[int]{Min: s.min, Max: s.max, Queue: s.queue, Weights: make([]int, s.classes),
		IdleTimeout: 10 * time.Millisecond,
		Panic:       func(any, []byte) {},
		Do:          func(_ intWorker, id int) { l.handle(id); misbehave(id) }}
	for i := range cfg.Weights {
		cfg.Weights[i] = i + 1
	}
	if s.stuck {
		cfg.Scan, cfg.MaxStuck = time.Millisecond, 3
		cfg.Held = func(_ intWorker, id int, d time.Duration) bool { return id%3 == 0 && d > 2*time.Millisecond }
	}
	p := newPool(t, cfg)
	var wg sync.WaitGroup
	var errs []error
	for _, a := range s.acts {
		wg.Go(func() { s.act(t, p, l, a) })
		time.Sleep(time.Duration(a.wait) * 500 * time.Microsecond)
		if st := p.Stats(); st.Live > s.max && a.kind != 4 {
			errs = append(errs, errors.New("more than Max workers"))
		}
	}
	wg.Wait()
	for st, _ := p.Drain(context.Background()); st > 0; st, _ = p.Drain(context.Background()) {
		time.Sleep(time.Second) // the abandoned ones return
	}
	for id := range l.next {
		if n := l.handled[id]; n > 1 || (n == 1) != l.taken[id] {
			errs = append(errs, errors.New("a T was taken and not handled, refused and handled, or handled twice"))
		}
	}
	return errors.Join(errs...)
}

// act does one thing. Limits only ever shrink to within s's.
func (s shape) act(t *testing.T, p *pool.Pool[int], l *ledger, a act) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(a.n)*time.Millisecond)
	defer cancel()
	ids := l.ids(a.n)
	switch a.kind {
	case 0:
		if p.Submit(ctx, a.class, ids[0]) == nil {
			l.take(ids[:1])
		}
	case 1, 5:
		n, err := p.SubmitAll(ctx, a.class, ids)
		if l.take(ids[:n]); (err == nil) != (n == len(ids)) {
			t.Errorf("SubmitAll took %d of %d with %v", n, len(ids), err)
		}
	case 2:
		if p.TrySubmit(a.class, ids[0]) {
			l.take(ids[:1])
		}
	case 3:
		l.take(ids)
		p.Requeue(a.class, ids...)
	case 4:
		least := 1 + a.n%s.min
		if err := p.SetLimits(least, max(least, s.max-a.n%3)); err != nil {
			t.Error(err)
		}
	case 6:
		if a.n == 30 {
			_, _ = p.Drain(ctx)
		}
	}
}
