package pool

import (
	"fmt"
	"math"
	"time"
)

// Knobs of a plateau.
const (
	probeHold    = 100 * time.Millisecond // the first wait before a probe, times 8 each time ...
	holdMost     = 30 * time.Second       // ... up to this
	probePart    = 8                      // the smallest probe adds one probePart-th
	margin       = 32.0                   // a plateau is held one margin-th above the knee
	patience     = 10 * time.Second       // at Max with work waiting, before less is tried, times 8 each time ...
	patienceMost = 10 * time.Minute       // ... up to this
)

// plateau is the state at a size beyond which more workers bring nothing.
type plateau struct {
	on      bool
	trimmed bool          // less was tried, until it hurt
	part    int           // a probe adds one part-th
	hold    time.Duration // the wait before the next probe
	till    time.Duration // when that is over
	h, dev  float64       // handler time at it, seconds, and its spread between windows
	windows int           // that were watched
}

// level goes to the knee: where all of the throughput of the larger size is had with the handler time of the smaller.
func (s *reportStatus) level(o Observation, now anchor, after, gain, r float64) Decision {
	t, f := &s.trial, &s.flat
	small, large := t.from, now
	xl := after
	if r < 0 {
		small, large = now, t.from
		xl = large.n / large.h
	}
	knee := max(small.n, min(large.n, xl*small.h))
	noise := 2 * math.Sqrt(max(o.Rates.Scatter, 0.1)*(1/small.done+1/large.done)) // two standard errors
	target := int(math.Round(knee*(1+1/margin) + 0.25))
	switch {
	case t.probing: // it was a probe: back
		target, f.part = int(t.from.n), min(probePart, 2*max(2, f.part))
	case !f.on: // grown for nothing
		f.trimmed, f.till = false, o.Now+f.hold
	case knee > small.n*(1+2/margin+noise) || int(small.n) <= o.Min: // trimmed too far
		f.trimmed, f.till = true, o.Now+f.hold
	default: // the smaller did as well
		target = int(small.n)
	}
	if t.probing || f.trimmed {
		f.till, f.hold = o.Now+f.hold, min(8*f.hold, holdMost)
	}
	s.settle(now)
	f.on, s.grewAt, f.windows = true, o.Now, 0
	return Decision{Target: max(1, min(target, int(large.n))), Force: true, Reason: fmt.Sprintf("plateau: gain %.2f of growth %.2f", gain, r), Next: tick}
}

// watch: held just above the knee, handlers are slowed a little by each other; when that ends, the downstream has become larger, and
// a probe is due at once.
func (s *reportStatus) watch(o Observation, n, secs, h float64) {
	f := &s.flat
	least := 256.0
	if f.windows == 0 {
		least = 2 * enough // only to know where it starts from
	}
	if n < least && secs < 1 || secs < 0.1 || n == 0 {
		return
	}
	d := h - f.h
	switch {
	case f.windows == 0:
		f.h, f.dev = h, 0
	case f.windows >= 8 && d < -max(0.01*f.h, 4*f.dev):
		f.till = o.Now
	case f.windows >= 8 && d > max(0.25*f.h, 4*f.dev): // it has become smaller
		f.trimmed, f.till, f.h, f.dev = false, o.Now, h, 0
	default:
		f.h += 0.1 * d
		f.dev += 0.2 * (math.Abs(d) - f.dev)
	}
	f.windows++
	s.trial.win.start(o)
	s.trial.from = anchor{float64(o.Workers), h, n, true}
	if f.windows > 1 {
		s.trial.from.h = f.h
	}
}

// try is what to do at a plateau whose hold has passed: half of it, until that hurts, then a little more.
func (s *reportStatus) try(o Observation) (target int, why string) {
	n := o.Workers
	if !s.flat.trimmed && n > o.Min {
		// The throughput times the handler time without a crowd, if that is believable: where BBR would go at once.
		knee := int(math.Ceil(float64(n) * o.Rates.Shortest.Seconds() / s.trial.from.h * (1 + 1/margin)))
		if knee < n/8 || knee > n*7/8 {
			knee = n / 2
		}
		return max(o.Min, knee), "trim"
	}
	return n + max(1, n/max(2, s.flat.part)), "probe"
}

// suspect makes a plateau of a size that no larger one can be compared with: less of it is tried then. Where that hurt, not soon again.
func (s *reportStatus) suspect(o Observation) {
	if s.trial.pending || s.flat.on && !s.flat.trimmed {
		return
	}
	top := o.Workers >= o.Max && o.Workers > o.Min && (s.doubted || o.Now-max(s.grewAt, s.topAt) >= s.patience)
	if top {
		s.patience = min(8*s.patience, patienceMost)
	}
	if top || !s.flat.on && o.Pressure.CPU >= busyCPU && o.Workers > 1 {
		s.flat, s.doubted = plateau{on: true, hold: probeHold, till: o.Now}, false
	}
}
