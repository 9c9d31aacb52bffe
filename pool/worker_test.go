package pool_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func TestAPanicLeavesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []any
		var stack string
		exits, handled := 0, 0
		p := newPool(t, pool.Config[int]{
			Max: 1,
			Do: func(w intWorker, i int) {
				w.Local = "kept"
				if i == 3 {
					panic(errors.New("three"))
				}
				handled++
			},
			Panic: func(v any, s []byte) { mu.Lock(); told, stack = append(told, v), string(s); mu.Unlock() },
			Exit: func(w intWorker) {
				if exits++; w.Local != "kept" {
					t.Errorf("Local is %v", w.Local)
				}
			},
		})
		for i := range 6 {
			if err := p.Submit(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, p)
		if len(told) != 1 || told[0].(error).Error() != "three" || !strings.Contains(stack, "worker_test.go") {
			t.Errorf("told %v, stack %s", told, stack)
		}
		if s := p.Stats(); handled != 5 || s.Done != 6 || s.Panics != 1 || exits != 1 {
			t.Errorf("handled %d, done %d, panics %d, exits %d", handled, s.Done, s.Panics, exits)
		}
	})
}

func TestGoexitReplacesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var handled, exits atomic.Int32
		p := newPool(t, pool.Config[int]{
			Min: 2, Max: 2,
			Do: func(_ intWorker, i int) {
				handled.Add(1)
				if i%2 == 0 {
					defer panic("while the goroutine ends") // who recovers this does not keep the goroutine
				}
				runtime.Goexit()
			},
			Panic: func(any, []byte) {},
			Exit:  func(intWorker) { exits.Add(1) },
		})
		for i := range 50 {
			if err := p.Submit(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
			if live := p.Stats().Live; live != 2 {
				t.Fatalf("%d workers, want 2", live)
			}
		}
		synctest.Wait()
		if s := p.Stats(); s.InHand != 0 || s.Backlog != 0 {
			t.Fatalf("%d in hand, %d wait", s.InHand, s.Backlog)
		}
		drain(t, p)
		if s := p.Stats(); handled.Load() != 50 || s.Done != 50 || s.Goexits != 50 || exits.Load() < 50 {
			t.Errorf("handled %d, done %d, goexits %d, exits %d", handled.Load(), s.Done, s.Goexits, exits.Load())
		}
	})
}

// Panic may end its goroutine, as t.FailNow does: another has the slot then.
func TestGoexitInPanicReplacesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var handled, exits atomic.Int32
		p := newPool(t, pool.Config[int]{
			Max: 1,
			Do: func(_ intWorker, i int) {
				if handled.Add(1); i == 0 {
					panic("zero")
				}
			},
			Panic: func(any, []byte) { runtime.Goexit() },
			Exit:  func(intWorker) { exits.Add(1) },
		})
		for i := range 3 {
			if err := p.Submit(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := p.Drain(ctx); err != nil {
			t.Fatalf("%d in hand after a minute: %v", n, err)
		}
		if s := p.Stats(); handled.Load() != 3 || s.Done != 3 || s.Panics != 1 || s.Goexits != 1 || exits.Load() != 2 {
			t.Errorf("handled %d, done %d, panics %d, goexits %d, exits %d", handled.Load(), s.Done, s.Panics, s.Goexits, exits.Load())
		}
	})
}

func TestReportCountsMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{
			Max: 1, Count: func(n int) int { return n },
			Do: func(w intWorker, n int) {
				if d := time.Since(w.Began()); d != 0 {
					t.Errorf("began %v ago", d)
				}
				time.Sleep(time.Duration(n) * time.Second)
				if n == 4 { // in two parts, and not all of the time
					w.Report(1, time.Second)
					w.Report(3, 2*time.Second)
				}
			},
		})
		if _, err := p.SubmitAll(t.Context(), 0, []int{4, 2}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if s := p.Stats(); s.In != 6 || s.InHand != 4 || s.Backlog != 2 {
			t.Errorf("in %d, in hand %d, backlog %d", s.In, s.InHand, s.Backlog)
		}
		drain(t, p)
		if s := p.Stats(); s.Done != 6 || s.Work != 5*time.Second {
			t.Errorf("done %d, work %v", s.Done, s.Work)
		}
	})
}

// Go wakes those that wait on a channel first in, first out: 256 workers at little load each get a T before their idle timeout
// and never go. The stack of idle workers is last in, first out.
func TestSurplusWorkersStayIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Max: 256, Do: func(intWorker, int) { time.Sleep(100 * time.Millisecond) }})
		if _, err := p.SubmitAll(t.Context(), 0, make([]int, 2560)); err != nil {
			t.Fatal(err)
		}
		for p.Stats().Done < 2560 {
			time.Sleep(time.Millisecond)
		}
		if live := p.Stats().Live; live < 100 {
			t.Fatalf("grew to %d workers only", live)
		}
		for range 300 { // 100 a second, of which ten at a time are in hand
			if err := p.Submit(t.Context(), 0, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if live := p.Stats().Live; live > 20 {
			t.Errorf("%d workers after 3 s at a load of 10", live)
		}
		drain(t, p)
	})
}

func TestIdleWorkersReportOnceAndThePoolIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		counted := &counting{Policy: pool.ReportStatus()}
		p := newPool(t, pool.Config[int]{Min: 8, Max: 16, Policy: counted, Do: func(intWorker, int) { time.Sleep(time.Millisecond) }})
		if _, err := p.SubmitAll(t.Context(), 0, make([]int, 1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		before := counted.steps.Load()
		time.Sleep(time.Hour)
		if s := p.Stats(); counted.steps.Load() != before || s.Idle != 8 || s.Reports < 8 {
			t.Errorf("the manager looked %d times in an idle hour; idle %d, reports %d", counted.steps.Load()-before, s.Idle, s.Reports)
		}
		drain(t, p)
	})
}

// TestAFixedSizeNeedsFewLooks: with Min at Max there is nothing to decide, whatever the policy, and however much waits. New
// limits are followed at once nevertheless.
func TestAFixedSizeNeedsFewLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		counted := &counting{Policy: pool.ReportStatus()}
		p := newPool(t, pool.Config[int]{
			Min: 1, Max: 1, Policy: counted, Do: func(intWorker, int) { time.Sleep(50 * time.Millisecond) },
		})
		p.Requeue(0, make([]int, 1000)...)
		time.Sleep(10 * time.Second)
		if n := counted.steps.Load(); n > 30 {
			t.Errorf("the manager looked %d times in 10 s, at a size that cannot change", n)
		}
		if err := p.SetLimits(1, 20); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Millisecond)
		if n := p.Stats().Live; n < 2 {
			t.Errorf("%d workers right after there may be more", n)
		}
		drain(t, p)
	})
}

func TestNobodyLooksAtWhatRests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		at, began := map[int][]time.Duration{}, map[int]time.Time{}
		looks := func(i int) []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return at[i]
		}
		p := newPool(t, pool.Config[int]{Min: 2, Max: 2,
			Do: func(_ intWorker, i int) {
				mu.Lock()
				began[i] = time.Now()
				mu.Unlock()
				time.Sleep(time.Duration(i) * time.Millisecond)
			},
			Held: func(w intWorker, i int, d time.Duration) bool {
				mu.Lock()
				defer mu.Unlock()
				at[i] = append(at[i], time.Since(began[i]))
				if i != 95 {
					w.Rest(3 * time.Second)
				}
				return false
			},
		})
		for _, i := range []int{10_000, 95, 50, 5} {
			if err := p.Submit(t.Context(), 0, i); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, p)
		for _, one := range []struct{ ms, least, most int }{{10_000, 4, 4}, {95, 8, 9}, {50, 1, 1}, {5, 0, 0}} {
			got := looks(one.ms)
			if len(got) < one.least || len(got) > one.most {
				t.Errorf("a T of %d ms was looked at %d times, want %d to %d: %v", one.ms, len(got), one.least, one.most, got)
			}
			if len(got) > 0 && (got[0] < 10*time.Millisecond || got[0] > 20*time.Millisecond) {
				t.Errorf("a T of %d ms was first looked at after %v", one.ms, got[0])
			}
		}
	})
}

// TestOneMessageIsLookedAtLater: T's of one message and of several begin in turns. Each has its own time for the first look,
// and looks at the others change nothing about that.
func TestOneMessageIsLookedAtLater(t *testing.T) {
	type held struct {
		messages int
		began    time.Time
		first    time.Duration
	}
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		p := newPool(t, pool.Config[*held]{Min: 8, Max: 8, Scan: 10 * time.Millisecond, ScanOne: 100 * time.Millisecond,
			Count: func(h *held) int { return h.messages },
			Do: func(_ *pool.Worker[*held], h *held) {
				mu.Lock()
				h.began = time.Now()
				mu.Unlock()
				time.Sleep(time.Second)
			},
			Held: func(w *pool.Worker[*held], h *held, d time.Duration) bool {
				mu.Lock()
				defer mu.Unlock()
				if h.first = time.Since(h.began); d != h.first {
					t.Errorf("it was said to be in hand for %v, and was for %v", d, h.first)
				}
				w.Rest(time.Hour)
				return false
			},
		})
		var hs []*held
		for i := range 8 {
			hs = append(hs, &held{messages: 2 - i%2})
			if err := p.Submit(t.Context(), 0, hs[i]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Millisecond)
		}
		drain(t, p)
		for i, h := range hs {
			if h.messages == 1 && (h.first < 100*time.Millisecond || h.first > 120*time.Millisecond) ||
				h.messages > 1 && (h.first < 10*time.Millisecond || h.first > 20*time.Millisecond) {
				t.Errorf("T %d, of %d messages, was first looked at after %v", i, h.messages, h.first)
			}
		}
	})
}

type counting struct {
	pool.Policy
	steps atomic.Int64
}

func (c *counting) Step(o pool.Observation) pool.Decision {
	c.steps.Add(1)
	return c.Policy.Step(o)
}

func TestSplitGivesTheRestToOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type run struct {
			mu   sync.Mutex
			left int
		}
		take := func(r *run) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.left--
			return r.left >= 0
		}
		p := newPool(t, pool.Config[*run]{
			Min: 4, Max: 4,
			Do: func(w *pool.Worker[*run], r *run) {
				for take(r) {
					time.Sleep(time.Second)
				}
			},
			Split: func(r *run) (*run, bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.left <= 0 {
					return nil, false
				}
				n := (r.left + 1) / 2
				r.left -= n
				return &run{left: n}, true
			},
		})
		start := time.Now()
		if err := p.Submit(t.Context(), 0, &run{left: 8}); err != nil {
			t.Fatal(err)
		}
		drain(t, p)
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("8 s of work took 4 workers %v", d)
		}
	})
}

func TestHeldAbandonsAndReplaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var handled atomic.Int32
		var shown atomic.Value
		p := newPool(t, pool.Config[int]{
			Max: 1, MaxStuck: 2,
			Do: func(w intWorker, i int) {
				if w.Shown.Store(i); i < 0 {
					<-stuck
				}
				handled.Add(1)
			},
			Held: func(w intWorker, i int, d time.Duration) bool {
				shown.Store(w.Shown.Load())
				return d > time.Second
			},
		})
		if _, err := p.SubmitAll(t.Context(), 0, []int{-1, -2, -3, 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := p.Stats(); s.Stuck != 2 || s.Live != 1 || s.Busy != 1 || handled.Load() != 0 {
			t.Errorf("stuck %d, live %d, busy %d, handled %d: MaxStuck is 2", s.Stuck, s.Live, s.Busy, handled.Load())
		}
		if shown.Load() != -3 {
			t.Errorf("Held saw %v", shown.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, err := p.Drain(ctx); n != 3 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %d, %v", n, err)
		}
		close(stuck)
		synctest.Wait() // or Drain would find some that have yet to return
		drain(t, p)
		if s := p.Stats(); handled.Load() != 4 || s.Done != 4 || s.Stuck != 0 {
			t.Errorf("handled %d, done %d, stuck %d", handled.Load(), s.Done, s.Stuck)
		}
	})
}

func TestDrainLeavesTheStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stuck := make(chan struct{})
		p := newPool(t, pool.Config[int]{Do: func(intWorker, int) { <-stuck },
			Held: func(intWorker, int, time.Duration) bool { return true }})
		if err := p.Submit(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Drain(t.Context()); n != 1 || err != nil {
			t.Errorf("Drain: %d, %v", n, err)
		}
		close(stuck)
		synctest.Wait()
		if n, err := p.Drain(t.Context()); n != 0 || err != nil {
			t.Errorf("Drain again: %d, %v", n, err)
		}
	})
}

func TestInHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newPool(t, pool.Config[int]{Min: 3, Max: 3, Do: func(_ intWorker, n int) {
			if n > 1 {
				<-release
			}
		}})
		for n := 1; n <= 3; n++ {
			if err := p.Submit(t.Context(), 0, n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := p.InHand(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("in hand: %v, want 2 and 3", got)
		}
		close(release)
		drain(t, p)
		if got := p.InHand(); len(got) != 0 {
			t.Errorf("in hand after the end: %v", got)
		}
	})
}

// TestRequeueLastWakesNobody: what a worker requeues as the last that it does, it handles itself, while others are idle.
func TestRequeueLastWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chain = 1000
		var p *pool.Pool[int]
		by := map[intWorker]int{}
		switches := 0
		var last intWorker
		var mu sync.Mutex
		p = newPool(t, pool.Config[int]{Min: 8, Max: 8, Do: func(w intWorker, n int) {
			mu.Lock()
			by[w]++
			if last != nil && last != w {
				switches++
			}
			last = w
			mu.Unlock()
			if n > 0 {
				p.Expect(1)
				p.RequeueLast(0, 1, n-1)
			}
		}})
		synctest.Wait()
		if err := p.Submit(t.Context(), 0, chain); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if by[last] != chain+1 || switches > 0 {
			t.Errorf("%d of %d by one worker, which was changed %d times", by[last], chain+1, switches)
		}
		if _, err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What was refused is no throughput, also while its T is in hand, whenever Do says so.
func TestRefusedInHandIsNoThroughput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Max: 32, Count: func(n int) int { return n }, Do: func(w intWorker, n int) {
			for range n {
				// Not a whole millisecond: the manager's tick, or Stats, at the same instant could fall between Report and
				// Refused, and would rightly see one.
				time.Sleep(time.Millisecond + 13)
				w.Report(1, time.Millisecond)
				if n%2 == 0 {
					w.Refused(1)
				}
			}
			if n%2 == 1 {
				w.Refused(n)
			}
		}})
		for i := range 400 {
			p.Requeue(0, 50+i/200)
			time.Sleep(5 * time.Millisecond)
			if r := p.Stats().Rates; r.Throughput < 0 || i < 200 && r.Throughput > 0 || r.Samples > 600 {
				t.Fatalf("after %d of them: %+v", i, r)
			}
		}
		drain(t, p)
	})
}
