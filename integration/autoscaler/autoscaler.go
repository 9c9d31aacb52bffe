// Package autoscaler is the arithmetic of a HorizontalPodAutoscaler with one external metric of the type AverageValue, and its
// default behaviour: for simulations, and for fleets of processes that no Kubernetes runs. Its numbers are those of Kubernetes'
// own calculator: testdata/calculator.csv is written by that one (integration/hpa).
package autoscaler

import (
	"math"
	"time"
)

// Tolerance is the difference that is left alone.
const Tolerance = 0.1

// Wanted is the number of replicas that a metric, of all together, asks for, where there are have of them and each is to have
// target.
func Wanted(have int, metric, target float64) int {
	if ratio := metric / (target * float64(have)); have > 0 && ratio >= 1-Tolerance && ratio <= 1+Tolerance {
		return have
	}
	return int(math.Ceil(metric/target - 1e-9))
}

// An Autoscaler remembers what it wanted. Not safe for concurrent use.
type Autoscaler struct {
	// Min and Max are bounds of the number.
	Min, Max int
	// Settle is for how long the highest number that was wanted holds, before the number goes down. Kubernetes has 5 min.
	Settle time.Duration

	wanted []wish
}

// A wish is a number at a moment.
type wish struct {
	at time.Time
	n  int
}

// Next is the number to set now; known is false where there is no metric: the number stays. It is to be asked every 15 s, as
// Kubernetes does.
func (a *Autoscaler) Next(now time.Time, have int, metric, target float64, known bool) int {
	want := have
	if known {
		want = max(a.Min, min(Wanted(have, metric, target), a.Max))
	}
	a.wanted = append(a.wanted, wish{now, want})
	for len(a.wanted) > 1 && now.Sub(a.wanted[0].at) >= a.Settle {
		a.wanted = a.wanted[1:]
	}
	if want >= have {
		return min(want, max(2*have, have+4))
	}
	for _, w := range a.wanted {
		want = max(want, w.n)
	}
	return min(want, have)
}
