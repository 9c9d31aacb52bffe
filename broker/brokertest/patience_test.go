package brokertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A case that starves beside others soon gives up what may never come, and is run again. Alone it has all of its patience.
func TestPatienceOfWhoStarves(t *testing.T) {
	h := Harness{Lease: time.Nanosecond, Patience: time.Hour, New: nothing} // any wait for a processor is too long
	var had []time.Duration
	c := &testCase{name: "starves", run: func(w *world) {
		if len(had) == triesBeside {
			time.Sleep(10 * pulseEvery)
			had = append(had, w.h.patience())
			return
		}
		for w.h.patience() == h.Patience {
			time.Sleep(pulseEvery)
		}
		had = append(had, w.h.patience())
		w.Fatal("what has to happen did not")
	}}
	c.doUnstarved(t, &h)
	if len(had) != 3 || had[0] != h.Patience/4 || had[1] != had[0] || had[2] != h.Patience {
		t.Errorf("patience was %v", had)
	}
}

// A case that has failed may have goroutines that still say more, while it is looked whether that counts: no race.
func TestWhoSaysMoreAfterAFailure(t *testing.T) {
	h := Harness{Lease: time.Nanosecond, Patience: time.Hour, New: nothing} // any wait for a processor is too long
	var all sync.WaitGroup
	runs := 0
	c := &testCase{name: "goes on", run: func(w *world) {
		time.Sleep(10 * pulseEvery)
		if runs++; runs > 1 {
			return
		}
		for range 4 {
			all.Go(func() {
				for range 100 {
					w.Errorf("so did this")
				}
			})
		}
		w.Fatal("it failed")
	}}
	c.doUnstarved(t, &h)
	all.Wait()
	if runs != 2 {
		t.Errorf("it ran %d times, want 2", runs)
	}
}

// What fails while the broker stood still is run again, and counts when it did not.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := Harness{Lease: time.Second, Patience: time.Minute, New: nothing}
		h.Probe = func(ctx context.Context) error {
			if runs.Load() <= 1 {
				<-ctx.Done() // it is asked, and does not answer
			}
			return ctx.Err()
		}
		c := &testCase{name: "waits", run: func(w *world) {
			run := runs.Add(1)
			time.Sleep(w.lease)
			if run == 1 {
				w.Fatal("a session ran out")
			}
		}}
		c.doUnstarved(t, &h)
		if n := runs.Load(); n != 2 {
			t.Errorf("the case ran %d times", n)
		}
	})
}

// A broker that answers quickly excuses nothing.
func TestProbeThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPulse(time.Second, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
		time.Sleep(5 * time.Second)
		p.stop()
		if p.starved() {
			t.Errorf("starved: %s", p.text())
		}
	})
}

// nothing is a System on which a case does nothing.
func nothing(testing.TB, Setup) *System {
	return &System{
		Topics:    []string{"topic"},
		Join:      func(testing.TB) *Process { return nil },
		Produce:   func(testing.TB, int, ...broker.Outgoing) {},
		Unsettled: func(testing.TB) int64 { return 0 },
	}
}
