package brokertest

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A case that starves beside others soon gives up what may never come, and is run again. Alone it has all of its patience.
func TestPatienceOfWhoStarves(t *testing.T) {
	h := Harness{Lease: time.Nanosecond, Patience: time.Hour} // any wait for a processor is too long
	h.New = func(testing.TB, Setup) *System {
		return &System{
			Topics:    []string{"topic"},
			Join:      func(testing.TB) *Process { return nil },
			Produce:   func(testing.TB, int, ...broker.Outgoing) {},
			Unsettled: func(testing.TB) int64 { return 0 },
		}
	}
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
