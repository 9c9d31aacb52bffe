package pool_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// Who wants no bound says math.MaxInt.
func TestQueueMayBeUnbounded(t *testing.T) {
	for _, in := range []time.Duration{0, time.Second} {
		bubble(t, func(t *testing.T) {
			g := newGate()
			close(g.open)
			p := newPool(t, pool.Config[int]{Queue: math.MaxInt, QueueTime: in, Do: g.do})
			time.Sleep(time.Second) // a worker is idle
			if n, err := p.SubmitAll(context.Background(), 0, make([]int, 300)); n != 300 || err != nil {
				t.Errorf("%d taken, %v", n, err)
			}
			if !p.TrySubmit(0, 1) {
				t.Error("full")
			}
			drain(t, p)
			if n := len(g.got()); n != 301 {
				t.Errorf("%d done", n)
			}
		})
	}
}

// Nobody is told of what is in hand where that is for a time that never comes.
func TestNoLooks(t *testing.T) {
	const never = time.Duration(math.MaxInt64)
	for name, cfg := range map[string]pool.Config[int]{
		"rest": {}, "one": {ScanOne: never}, "all": {Scan: never},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var looks atomic.Int32
				cfg.Do = func(intWorker, int) { time.Sleep(time.Hour) }
				cfg.Held = func(w intWorker, _ int, _ time.Duration) bool {
					looks.Add(1)
					w.Rest(never)
					return false
				}
				p := newPool(t, cfg)
				time.Sleep(time.Second)
				p.Requeue(0, 1)
				time.Sleep(time.Minute)
				want := int32(0)
				if name == "rest" {
					want = 1
				}
				if n := looks.Load(); n != want {
					t.Errorf("%d looks, want %d", n, want)
				}
				drain(t, p)
			})
		})
	}
}

// Who wants all at once, or nobody to go, says so, too.
func TestPolicyWithoutBounds(t *testing.T) {
	for name, policy := range map[string]pool.Policy{
		"aimd":      pool.AIMD(pool.AIMDConfig{Add: math.MaxInt}),
		"threshold": pool.QueueThreshold(pool.ThresholdConfig{Batch: math.MaxInt}),
		"classic":   pool.Classic(pool.ClassicConfig{IdleTimeouts: math.MaxInt, GrowAfter: 10 * time.Millisecond}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate()
				p := newPool(t, pool.Config[int]{Max: 8, Policy: policy, Do: g.do})
				p.Requeue(0, make([]int, 100)...)
				time.Sleep(10 * time.Second)
				if s := p.Stats(); s.Live != 8 {
					t.Errorf("%d workers, want 8", s.Live)
				}
				close(g.open)
				if name == "classic" {
					time.Sleep(time.Hour)
					if s := p.Stats(); s.Live != 8 {
						t.Errorf("%d workers are left of 8", s.Live)
					}
				}
				drain(t, p)
			})
		})
	}
}
