package pool_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// Nothing waits for long behind handlers that do not return while there may be more workers, whatever handlers took before.
func TestNothingWaitsBehindHungHandlers(t *testing.T) {
	for _, before := range []time.Duration{-1, 0, time.Millisecond, 50 * time.Millisecond} {
		for _, n := range []int{2, 3, 5, 9, 20, 40} {
			t.Run(fmt.Sprintf("%v/%d", before, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					end := make(chan struct{})
					var hang atomic.Bool
					p, err := pool.New(pool.Config[int]{Min: 1, Max: 64, Queue: 100, Do: func(*pool.Worker[int], int) {
						if hang.Load() {
							<-end
							return
						}
						time.Sleep(before)
					}})
					if err != nil {
						t.Fatal(err)
					}
					submit := func(n int) {
						for i := range n {
							if err := p.Submit(t.Context(), 0, i); err != nil {
								t.Fatal(err)
							}
						}
					}
					if before >= 0 {
						for range 200 {
							submit(n)
							time.Sleep(20 * time.Millisecond)
						}
						time.Sleep(100 * time.Millisecond)
					}
					hang.Store(true)
					submit(n)
					time.Sleep(10 * time.Second)
					if s := p.Stats(); s.Backlog > 0 || s.InHand != n {
						t.Errorf("%d wait for 10 s, with %d of 64 workers, %d in hand, after %s", s.Backlog, s.Live, s.InHand, s.Last.Why())
					}
					close(end)
					if _, err := p.Drain(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// What the scan takes off a T in hand is not in hand any more.
func TestSplitIsNotInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var split atomic.Bool
		p, err := pool.New(pool.Config[int]{
			Min: 1, Max: 4, Scan: 10 * time.Millisecond,
			Count: func(n int) int { return n },
			Do:    func(*pool.Worker[int], int) { <-end },
			Split: func(n int) (rest int, ok bool) { return n - 1, n > 1 && split.CompareAndSwap(false, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Submit(t.Context(), 0, 8); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := p.Stats(); !split.Load() || s.InHand != 8 || s.Busy != 2 {
			t.Errorf("%d of 8 in hand, of %d workers; split: %v", s.InHand, s.Busy, split.Load())
		}
		close(end)
		if _, err := p.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.In != 8 || s.Done != 8 {
			t.Errorf("%d in, %d done, want 8 each", s.In, s.Done)
		}
	})
}

// A T whose worker is done with it while its rest is taken away was counted with all of its messages, and those of the rest are
// not counted again.
func TestSplitOfWhatIsDoneCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var p *pool.Pool[int]
		p, err := pool.New(pool.Config[int]{
			Min: 2, Max: 2, Scan: 10 * time.Millisecond,
			Count: func(n int) int { return n },
			Do: func(_ *pool.Worker[int], n int) {
				if n == 8 {
					close(began)
					<-end
					close(done)
				}
			},
			Split: func(n int) (rest int, ok bool) {
				if n != 8 {
					return 0, false
				}
				close(end)
				<-done
				for p.Stats().Done == 0 {
					time.Sleep(time.Millisecond)
				}
				return 3, true
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Submit(t.Context(), 0, 8); err != nil {
			t.Fatal(err)
		}
		<-began
		time.Sleep(time.Second)
		if _, err := p.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.In != 8 || s.Done != 8 {
			t.Errorf("%d in, %d done, want 8 each", s.In, s.Done)
		}
	})
}

// What an abandoned worker reported stays counted, and its time, when it returns at last, is no handler's that the pool needs
// workers for.
func TestAbandonedWorkersDoNotDisturbTheRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		p, err := pool.New(pool.Config[int]{
			Max: 256, Count: func(n int) int { return n },
			Held: func(_ *pool.Worker[int], n int, d time.Duration) bool { return n > 1 && d > 200*time.Millisecond },
			Do: func(w *pool.Worker[int], n int) {
				for range n - 1 {
					time.Sleep(time.Millisecond)
					w.Report(1, time.Millisecond)
				}
				if n > 1 {
					<-end
				}
				time.Sleep(5 * time.Millisecond)
				w.Report(1, time.Since(w.Began()))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Requeue(0, 100, 100, 100, 100)
		for i := range 1200 {
			if i == 1000 {
				close(end)
			}
			p.Requeue(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
			for range 10 {
				time.Sleep(10 * time.Millisecond)
				r := p.Stats().Rates
				if r.Throughput < 0 || r.Samples > 1000 || r.Handler > 20*time.Millisecond {
					t.Fatalf("after %d rounds, with %d stuck: %+v", i, p.Stats().Stuck, r)
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
		if s := p.Stats(); s.Done != 400+1200*20 || s.Stuck != 0 {
			t.Errorf("%d done, %d stuck", s.Done, s.Stuck)
		}
		if _, err := p.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
