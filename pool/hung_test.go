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
