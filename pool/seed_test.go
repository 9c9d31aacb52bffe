package pool_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// The literal report-status design adds a worker per grow_after without an idle report: 20,000 messages a second of 5 ms need 100
// workers, and it takes 8 minutes to have them. The default has 90 of them within 100 ms.
func TestGrowsInMillisecondsWhereTheClassicRuleTakesMinutes(t *testing.T) {
	until := func(policy pool.Policy, handler, every, most time.Duration) (took time.Duration) {
		bubble(t, func(t *testing.T) {
			p := newPool(t, pool.Config[int]{Policy: policy, Do: func(intWorker, int) { time.Sleep(handler) }})
			start := time.Now()
			for time.Since(start) < most && p.Stats().Live < 90 {
				for range 20 {
					p.TrySubmit(0, 1)
				}
				time.Sleep(every)
			}
			took = time.Since(start)
			drain(t, p)
		})
		return took
	}
	if d := until(pool.ReportStatus(), 5*time.Millisecond, time.Millisecond, time.Minute); d > 100*time.Millisecond {
		t.Errorf("report-status took %v", d)
	}
	// The rule does not look at the load: a hundredth of it, with handlers that take a hundred times as long, is played sooner.
	if d := until(pool.Classic(pool.ClassicConfig{}), 500*time.Millisecond, 100*time.Millisecond,
		10*time.Minute); d < 7*time.Minute || d > 8*time.Minute {
		t.Errorf("the classic rule took %v, should be 89 times 5 s", d)
	}
}

// Checking the count and then going, each worker for itself, lets two go where one may: all idle timeouts here pass at one
// moment.
func TestWorkersThatAskAtOnceDoNotFallUnderMin(t *testing.T) {
	for _, policy := range []pool.Policy{pool.ReportStatus(), pool.Classic(pool.ClassicConfig{IdleTimeouts: 1}),
		pool.AIMD(pool.AIMDConfig{})} {
		bubble(t, func(t *testing.T) {
			p := newPool(t, pool.Config[int]{Min: 3, Max: 64, Policy: policy, IdleTimeout: 10 * time.Millisecond,
				Do: func(intWorker, int) { time.Sleep(50 * time.Millisecond) }})
			if err := p.SetLimits(40, 64); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := p.SetLimits(3, 64); err != nil { // 40 are idle since the same moment
				t.Fatal(err)
			}
			for range 20_000 {
				time.Sleep(100 * time.Microsecond)
				if live := p.Stats().Live; live < 3 {
					t.Fatalf("%d workers", live)
				}
			}
			if live := p.Stats().Live; live != 3 {
				t.Errorf("%d workers at the end", live)
			}
			drain(t, p)
		})
	}
}

// An idle worker reports when its timeout is over, and that may be later than the rule waits for a report.
func TestTheClassicRuleAddsNoneWhileOneIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, pool.Config[int]{Policy: pool.Classic(pool.ClassicConfig{GrowAfter: 100 * time.Millisecond}),
			Do: func(_ intWorker, i int) { time.Sleep(time.Duration(i) * time.Millisecond) }})
		for range 50 {
			p.Requeue(0, 1)
			time.Sleep(49 * time.Millisecond) // it is done whenever the rule looks
		}
		time.Sleep(900 * time.Millisecond)
		if live := p.Stats().Live; live != 1 {
			t.Errorf("%d workers for a load of 2 %%", live)
		}
		p.Requeue(0, 3000, 3000, 3000, 3000)
		time.Sleep(time.Second)
		if live := p.Stats().Live; live != 5 { // one more while all are busy
			t.Errorf("%d workers for 4 handlers, want one that is idle", live)
		}
		drain(t, p)
	})
}

// A report that waits for the manager holds up the worker: here the manager is held up in Observe, and work goes on.
func TestAManagerThatIsBusyHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		held := make(chan struct{})
		var handled atomic.Int32
		p := newPool(t, pool.Config[int]{Max: 4, IdleTimeout: time.Millisecond, Do: func(intWorker, int) { handled.Add(1) },
			Observe: func(pool.Decision) { <-held }})
		p.Requeue(0, make([]int, 1000)...)
		time.Sleep(time.Second)
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			if err := p.Submit(t.Context(), 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := handled.Load(); got != 1100 {
			t.Errorf("handled %d", got)
		}
		close(held)
		drain(t, p)
	})
}

func TestOtherPoliciesRunAPool(t *testing.T) {
	for name, policy := range map[string]pool.Policy{
		"fixed": pool.Fixed(), "classic": pool.Classic(pool.ClassicConfig{GrowAfter: 100 * time.Millisecond, IdleTimeouts: 2}),
		"threshold": pool.QueueThreshold(pool.ThresholdConfig{Batch: 4,
			Cooldown: 50 * time.Millisecond}), "aimd": pool.AIMD(pool.AIMDConfig{Slow: time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, pool.Config[int]{Max: 32, Queue: 100, Policy: policy,
					Do: func(intWorker, int) { time.Sleep(10 * time.Millisecond) }})
				most := 0
				for range 10_000 {
					if err := p.Submit(t.Context(), 0, 1); err != nil {
						t.Fatal(err)
					}
					most = max(most, p.Stats().Live)
				}
				if most < 16 || most > 32 {
					t.Errorf("grew to %d of 32", most)
				}
				time.Sleep(5 * time.Minute)
				if live := p.Stats().Live; name != "fixed" && live != 1 || name == "fixed" && live != 32 {
					t.Errorf("%d workers after five idle minutes", live)
				}
				drain(t, p)
			})
		})
	}
}
