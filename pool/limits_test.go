package pool_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func TestNewReportsAllFindings(t *testing.T) {
	_, err := pool.New(pool.Config[int]{
		Min: -1, Queue: -1, Weights: []int{1, 0}, IdleTimeout: -1, QueueTime: -1, Scan: -1,
		Policy: pool.QueueThreshold(pool.ThresholdConfig{BusyAt: 2}),
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Do", "Min", "Queue", "Weights[1]", "IdleTimeout", "QueueTime", "Scan", "BusyAt"} {
		if !contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}

// TestPolicyOfNoNumber: what is no number is neither above nor below any bound, and no setting.
func TestPolicyOfNoNumber(t *testing.T) {
	none := math.NaN()
	for field, policy := range map[string]pool.Policy{
		"AIMDConfig.Keep":          pool.AIMD(pool.AIMDConfig{Keep: none}),
		"ThresholdConfig.IdleAt":   pool.QueueThreshold(pool.ThresholdConfig{IdleAt: none}),
		"BusyAt":                   pool.QueueThreshold(pool.ThresholdConfig{BusyAt: none}),
		"ThresholdConfig.BusyJobs": pool.QueueThreshold(pool.ThresholdConfig{BusyJobs: none}),
	} {
		p, err := pool.New(pool.Config[int]{Do: func(intWorker, int) {}, Policy: policy})
		if err == nil {
			_, _ = p.Drain(t.Context())
			t.Errorf("%s: no error", field)
		} else if !contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
}

func TestSetLimitsFollowsAtOnce(t *testing.T) {
	for _, policy := range []func() pool.Policy{pool.ReportStatus, pool.Fixed} {
		bubble(t, func(t *testing.T) {
			p := newPool(t, pool.Config[int]{Min: 2, Max: 4, Policy: policy(), Do: func(intWorker, int) { time.Sleep(time.Second) }})
			p.Requeue(0, make([]int, 100)...)
			time.Sleep(500 * time.Millisecond)
			if live := p.Stats().Live; live != 4 {
				t.Errorf("%d workers, want 4", live)
			}
			set := func(least, most, want int) {
				if err := p.SetLimits(least, most); err != nil {
					t.Error(err)
				}
				time.Sleep(1100 * time.Millisecond) // busy ones go when they finish
				if live := p.Stats().Live; live != want && want > 0 || live < least || live > most {
					t.Errorf("%d workers within %d to %d, want %d", live, least, most, want)
				}
			}
			set(10, 10, 10)
			set(1, 3, 3)
			set(5, 20, 0)
			if err := p.SetLimits(0, 3); err == nil {
				t.Error("0 workers at least: no error")
			}
			if err := p.SetLimits(4, 3); err == nil {
				t.Error("Min over Max: no error")
			}
			drain(t, p)
		})
	}
}

// TestRaisedMaxIsUsed: with a full queue at Max for long, less was tried and hurt. That proves nothing of more, so a higher Max
// is used as quickly as that at a start.
func TestRaisedMaxIsUsed(t *testing.T) {
	for _, handler := range []time.Duration{100 * time.Millisecond, time.Second} {
		bubble(t, func(t *testing.T) {
			less := false
			p := newPool(t, pool.Config[int]{Min: 1, Max: 8, Do: func(intWorker, int) { time.Sleep(handler) },
				Observe: func(d pool.Decision) { less = less || d.Target < d.From }})
			p.Requeue(0, make([]int, 40_000)...)
			time.Sleep(200 * handler)
			if live := p.Stats().Live; live != 8 || !less {
				t.Fatalf("%d workers, less was tried: %v", live, less)
			}
			if err := p.SetLimits(1, 32); err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * handler)
			if live := p.Stats().Live; live < 30 {
				t.Errorf("handlers of %v: %d workers, want 32", handler, live)
			}
			drain(t, p)
		})
	}
}

// TestSlowHandlersAreNoHarm: handlers that all take a second end together, so in the first second after a growth hardly any have.
// That proved harm, and eight that are useful were taken away for as many seconds.
func TestSlowHandlersAreNoHarm(t *testing.T) {
	for _, handler := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		bubble(t, func(t *testing.T) {
			p := newPool(t, pool.Config[int]{Min: 1, Max: 32, Do: func(intWorker, int) { time.Sleep(handler) },
				Observe: func(d pool.Decision) {
					if d.Reason == pool.ReasonUndo {
						t.Errorf("handlers of %v: %d to %d: %s", handler, d.From, d.Target, d.Why())
					}
				}})
			p.Requeue(0, make([]int, 600)...)
			time.Sleep(3 * handler)
			if live := p.Stats().Live; live != 32 {
				t.Errorf("handlers of %v: %d workers, want 32", handler, live)
			}
			time.Sleep(10 * handler)
			drain(t, p)
		})
	}
}

// Worker counts are checked at each moment while limits, load, panics and exits change: never under Min, never over Max.
func TestWorkersStayWithinTheLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Min: 3, Max: 9, IdleTimeout: 20 * time.Millisecond, Panic: func(any, []byte) {},
			Do: func(_ intWorker, i int) { misbehave(i) }})
		stop := time.Now().Add(30 * time.Second)
		var wg sync.WaitGroup
		var looks atomic.Int64
		wg.Go(func() {
			for time.Now().Before(stop) {
				if live := p.Stats().Live; live < 3 || live > 9 {
					t.Errorf("%d workers within 3 to 9", live)
				}
				looks.Add(1)
				time.Sleep(100 * time.Microsecond)
			}
		})
		for i := 0; time.Now().Before(stop); i++ {
			for range i % 50 {
				_ = p.Submit(t.Context(), 0, i)
			}
			time.Sleep(time.Duration(i%40) * time.Millisecond)
		}
		wg.Wait()
		drain(t, p)
		if s := p.Stats(); s.In != s.Done || looks.Load() < 1000 {
			t.Errorf("in %d, done %d, looks %d", s.In, s.Done, looks.Load())
		}
	})
}

func TestObserveTellsEachChangeWithItsInputs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		size, began := 1, time.Now()
		seen := map[pool.Reason]int{}
		p := newPool(t, pool.Config[int]{Max: 50, Do: func(intWorker, int) { time.Sleep(10 * time.Millisecond) },
			Observe: func(d pool.Decision) {
				if d.From != size || d.Target == d.From || d.Reason == "" || d.Observation.Workers != d.From ||
					d.At.Sub(began) != d.Observation.Now {
					t.Errorf("decision %+v at size %d", d, size)
				}
				size = d.Target
				seen[d.Reason]++
			}})
		for range 2000 {
			if err := p.Submit(t.Context(), 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if s := p.Stats(); size != 1 || s.Live != 1 || s.Decisions == 0 || s.Last.Target != 1 {
			t.Errorf("size %d by the decisions, %d live, %d decisions, last %+v", size, s.Live, s.Decisions, s.Last)
		}
		if len(seen) < 2 {
			t.Errorf("reasons %v", seen)
		}
		drain(t, p)
	})
}

func TestDrainManyTimesAndAtOnce(t *testing.T) {
	for range 50 {
		p := newPool(t, pool.Config[int]{Min: 4, Max: 8, Do: func(intWorker, int) {}})
		var wg sync.WaitGroup
		var taken atomic.Int64
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if p.Submit(context.Background(), 0, 1) == nil {
						taken.Add(1)
					}
				}
			})
			wg.Go(func() { drain(t, p) })
			wg.Go(func() { _ = p.SetLimits(1, 3) })
		}
		wg.Wait()
		if s := p.Stats(); s.Done != taken.Load() || s.Live != 0 {
			t.Fatalf("taken %d, done %d, live %d", taken.Load(), s.Done, s.Live)
		}
	}
}

// The workers of a pool whose manager is gone must not wait to report to it.
func TestStartAndStopLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) { // which fails for a goroutine left
		for i := range 100 {
			p := newPool(t, pool.Config[int]{Min: 1 + i%7, Max: 32, IdleTimeout: time.Duration(1+i%5) * time.Millisecond,
				Do:   func(intWorker, int) {},
				Held: func(intWorker, int, time.Duration) bool { return false }})
			if i%3 == 0 {
				p.Requeue(0, make([]int, i)...)
			}
			time.Sleep(time.Duration(i%4) * time.Millisecond)
			drain(t, p)
		}
		synctest.Wait()
	})
}

// busyPolicy does what a submitter may do at any time: work comes between the manager's look and its doing.
type busyPolicy struct {
	steps atomic.Int64
	come  func()
}

func (b *busyPolicy) Step(o pool.Observation) pool.Decision {
	if b.steps.Add(1) == 1 {
		b.come()
	}
	return pool.Decision{Target: o.Workers, Reason: "seen"}
}

func TestWorkThatComesWhileTheManagerThinksIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p *pool.Pool[int]
		ready := make(chan struct{})
		policy := &busyPolicy{}
		policy.come = func() { <-ready; p.Requeue(0, 1, 2, 3) }
		p = newPool(t, pool.Config[int]{Policy: policy, Do: func(intWorker, int) { time.Sleep(10 * time.Second) }})
		close(ready)
		time.Sleep(time.Second)
		if n := policy.steps.Load(); n < 2 {
			t.Errorf("%d looks in a second, with three T's and one worker", n)
		}
		drain(t, p)
	})
}

// Who wants no limit says math.MaxInt.
func TestMaxMayBeNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		end := make(chan struct{})
		p := newPool(t, pool.Config[int]{Do: func(intWorker, int) { <-end }})
		if err := p.SetLimits(1, math.MaxInt); err != nil {
			t.Fatal(err)
		}
		p.Requeue(0, make([]int, 200)...)
		time.Sleep(10 * time.Second)
		if s := p.Stats(); s.Busy != 200 {
			t.Errorf("%d workers for 200 handlers that do not return", s.Live)
		}
		close(end)
		drain(t, p)
	})
}

// TestLimiterIsUsed: what lets a call begin in each 20 ms is full with one worker more than it takes, and not because one that
// was just added is refused until it has its place among the others.
func TestLimiterIsUsed(t *testing.T) {
	for _, handler := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		bubble(t, func(t *testing.T) {
			const each, span = 20 * time.Millisecond, time.Minute
			var mu sync.Mutex
			var next time.Time
			var served atomic.Int64
			var over atomic.Bool
			p := newPool(t, pool.Config[int]{Min: 1, Max: 64, Do: func(w intWorker, _ int) {
				if over.Load() {
					return
				}
				mu.Lock()
				refused := time.Now().Before(next)
				if !refused {
					next = time.Now().Add(each)
				}
				mu.Unlock()
				if refused {
					time.Sleep(time.Millisecond)
					w.Refused(1)
					return
				}
				time.Sleep(handler)
				served.Add(1)
			}})
			p.Requeue(0, make([]int, 2_000_000)...)
			time.Sleep(span)
			used := float64(served.Load()) * each.Seconds() / span.Seconds()
			if t.Logf("handlers of %v: %.0f %% of the limit are used", handler, 100*used); used < 1./3 {
				t.Errorf("with %d workers", p.Stats().Live)
			}
			over.Store(true)
			drain(t, p)
		})
	}
}
