package pool

import (
	"fmt"
	"math"
	"time"
)

// Knobs of the judgement.
const (
	enough    = 32.0                   // completions that the judgement of a doubling needs
	unjudged  = 1.25                   // growth by less than this is not judged
	minGain   = 0.25                   // a growth paid if it brought this share of what it could
	probeHold = 100 * time.Millisecond // the first wait at a plateau, times 8 each time ...
	holdMost  = 30 * time.Second       // ... up to this
	probePart = 8                      // the smallest probe adds one probePart-th
	margin    = 32                     // a plateau is held one margin-th above the knee
)

// anchor is a size and what was measured at it.
type anchor struct {
	n    float64 // workers
	h    float64 // handler time then, seconds; 0: unknown
	done float64 // completions behind h
	sure bool    // measured in a window of its own, not while the size was changing
}

// window measures from a moment on, with all workers busy.
type window struct {
	open bool
	at   time.Duration
	done int64
	work time.Duration
}

func (w *window) start(o Observation) { *w = window{true, o.Now, o.Done, o.Work} }

func (w *window) read(o Observation) (n, secs, h float64) {
	n, secs = float64(o.Done-w.done), (o.Now - w.at).Seconds()
	if n > 0 {
		h = (o.Work - w.work).Seconds() / n
	}
	return n, secs, h
}

// trial is a growth that waits for judgement.
type trial struct {
	from      anchor // the size before
	pending   bool
	measuring bool // not yet: from is to be measured first
	probing   bool // it is a probe at a plateau
	foreign   bool // handlers slowed down by more than it explains
	looked    bool // it failed once
	win       window
}

// plateau is the state at a size beyond which more workers bring nothing.
type plateau struct {
	on      bool
	part    int  // a probe adds one part-th
	trimmed bool // less was tried
	hold    time.Duration
	till    time.Duration
	h, dev  float64 // handler time at it, and its spread between windows
	windows int
}

// begin makes target a trial, if it is to be one. False: not enough is known yet.
func (s *reportStatus) begin(o Observation, target int, free, blind bool) bool {
	t := &s.trial
	n := float64(o.Workers)
	if near := t.from.h > 0 && n >= t.from.n && n < unjudged*t.from.n; !s.flat.on && !near {
		t.from = anchor{n, o.Rates.Exposure.Seconds(), o.Rates.Samples, false}
	}
	small := float64(target) < unjudged*t.from.n // small steps are judged together, when they are none any more
	known := t.from.h > 0 && max(t.from.done, o.Rates.Samples) >= enough
	switch {
	case s.flat.on:
		t.pending, t.probing = true, target > o.Workers
	case free || blind || small:
		t.pending = known && !small
	case !known:
		return false
	case !t.from.sure && o.Workers > freeSize:
		t.measuring = true // grown to here without evidence
		return false
	default:
		t.pending = true
	}
	return true
}

// judge answers whether the last growth paid: throughput after over before, by Little's law workers/handler time, against the growth.
func (s *reportStatus) judge(o Observation) (Decision, bool) {
	t := &s.trial
	if t.pending && t.from.sure && float64(o.Workers) > t.from.n && !t.probing && o.Rates.Proven.Seconds() > t.from.h*sq(float64(o.Workers)/t.from.n) {
		t.foreign = true // even a collapse by our growth would not be that slow
	}
	if !t.win.open {
		if s.settled(o) {
			t.win.start(o)
		}
		return Decision{}, false
	}
	n, secs, h := t.win.read(o)
	switch {
	case t.pending:
	case s.flat.on:
		s.watch(o, n, secs, h)
		return Decision{}, false
	default:
		if n >= enough && secs >= max(tick.Seconds(), h) {
			s.measured(o, anchor{float64(o.Workers), max(h, float64(o.Workers)*secs/n), n, true})
		}
		return Decision{}, false
	}
	r := float64(o.Workers)/t.from.n - 1
	need := enough / (r * r)
	if t.looked || r < 0 || t.probing { // a verdict against needs more, with scattered handlers much more
		need *= max(1, o.Rates.Scatter)
	}
	if n < need && secs < 1 || n == 0 || r == 0 || secs < max(tick.Seconds(), h) {
		return Decision{}, false
	}
	now := anchor{float64(o.Workers), max(h, float64(o.Workers)*secs/n), n, true} // all are busy: who finished alone would be too short
	after := now.n / now.h
	gain := (after*t.from.h/t.from.n - 1) / r
	switch {
	case s.paid(o, gain, r, n):
		s.doubted = gain < minGain
		if t.probing {
			s.flat.on, s.flat.hold, s.flat.part = false, probeHold, 0
		}
		s.settle(now)
		return Decision{}, false
	case !t.looked:
		t.looked = true
		t.win.start(o)
		return Decision{}, false
	}
	return s.level(o, now, after, gain, r), true
}

// measured takes the first evidence after growth without any. If handlers take twice the time that they took before the crowd, the
// crowd is suspected: a smaller size is tried before a larger.
func (s *reportStatus) measured(o Observation, a anchor) {
	s.settle(a)
	if o.Rates.Shortest > 0 && a.h > 2*o.Rates.Shortest.Seconds() {
		s.flat = plateau{on: true, hold: probeHold, till: o.Now, h: a.h, windows: 1}
	}
}

// settled: the handlers begun before the last change of size have ended, and something is to be measured.
func (s *reportStatus) settled(o Observation) bool {
	h := o.Rates.Handler
	if float64(o.Workers) < s.trial.from.n {
		h = max(h, seconds(1.25*s.trial.from.h)) // those of the larger size take longer
	}
	switch {
	case s.trial.pending || s.trial.measuring:
		return o.Now >= s.grewAt+h
	case s.flat.on:
		return o.Now >= s.grewAt+2*h
	}
	return false
}

// paid: gain is enough, or not proven to be too little.
func (s *reportStatus) paid(o Observation, gain, r, n float64) bool {
	t := &s.trial
	least := minGain
	if t.probing {
		least *= 2
	}
	errors2 := 2 * math.Sqrt(o.Rates.Scatter*(1/t.from.done+1/n)) / r // two standard errors
	return r > 0 && (t.foreign || gain >= least || !t.probing && (n < enough/(r*r) || !t.from.sure || gain+errors2 >= 1))
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
	target := int(math.Round(knee*(1+1/float64(margin)) + 0.25))
	switch {
	case t.probing: // it was a probe: back
		target, f.part = int(t.from.n), min(probePart, 2*max(2, f.part))
	case !f.on: // grown for nothing
		f.trimmed, f.till = false, o.Now+f.hold
	case knee > small.n*(1+2/float64(margin)) || int(small.n) <= o.Min: // trimmed too far
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

func (s *reportStatus) settle(a anchor) { s.trial = trial{from: a} }

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
		knee := int(math.Ceil(float64(n) * o.Rates.Shortest.Seconds() / s.trial.from.h * (1 + 1.0/margin)))
		if knee < n/8 || knee > n*7/8 {
			knee = n / 2
		}
		return max(o.Min, knee), "trim"
	}
	return n + max(1, n/max(2, s.flat.part)), "probe"
}

func sq(x float64) float64 { return x * x }
