package pool

import (
	"math"
	"time"
)

// Knobs of the judgement.
const (
	enough   = 32.0 // completions that the judgement of a doubling needs; of less growth, more: their number goes with 1/growth²
	unjudged = 1.25 // growth by less than this is not judged, until such steps add up to it
	minGain  = 0.25 // a growth paid if it brought this share of what it could; a probe, twice that
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

// read returns completions, seconds, and the mean handler time of what was completed.
func (w *window) read(o Observation) (n, secs, h float64) {
	n, secs = float64(o.Done-w.done), (o.Now - w.at).Seconds()
	if n > 0 {
		h = (o.Work - w.work).Seconds() / n
	}
	return n, secs, h
}

// trial is a change of size that waits for judgement.
type trial struct {
	from      anchor // the size before
	measuring bool   // not begun: from is to be measured first
	pending   bool
	probing   bool // it is a probe at a plateau
	foreign   bool // handlers slowed down by more than it explains
	looked    bool // it failed once
	win       window
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

// judge reads what was measured, if anything is; with a verdict against the last change of size it decides on another.
func (s *reportStatus) judge(o Observation) (Decision, bool) {
	t := &s.trial
	t.foreign = t.foreign || s.slowedByOthers(o)
	if !t.win.open {
		if s.settled(o) {
			t.win.start(o)
		}
		return Decision{}, false
	}
	n, secs, h := t.win.read(o)
	if n == 0 {
		return Decision{}, false
	}
	// All workers are busy, so the time of all of them is what the completed cost: to count only the handlers that ended would favour
	// the short ones.
	now := anchor{float64(o.Workers), max(h, float64(o.Workers)*secs/n), n, true}
	switch {
	case t.pending:
		return s.verdict(o, now, secs, h)
	case s.flat.on:
		s.watch(o, n, secs, h)
	case n >= enough && secs >= max(tick.Seconds(), h):
		s.measured(o, now)
	}
	return Decision{}, false
}

// slowedByOthers: even a collapse by our growth would not make handlers that slow.
func (s *reportStatus) slowedByOthers(o Observation) bool {
	t := &s.trial
	growth := float64(o.Workers) / t.from.n
	return t.pending && t.from.sure && !t.probing && growth > 1 && o.Rates.Proven.Seconds() > t.from.h*growth*growth
}

// verdict judges the trial: throughput after over before, by Little's law workers over handler time, against the growth. A verdict
// against it needs a second look.
func (s *reportStatus) verdict(o Observation, now anchor, secs, h float64) (Decision, bool) {
	t := &s.trial
	r := now.n/t.from.n - 1
	need := enough / (r * r)
	if t.looked || r < 0 || t.probing { // a verdict against, and with scattered handlers that takes much more
		need *= max(1, o.Rates.Scatter)
	}
	if r < 0 || t.looked {
		need = max(need, 4*now.n) // workers that began together finish together: some rounds even that out
	}
	if now.done < need && secs < 1 || r == 0 || secs < max(tick.Seconds(), h) {
		return Decision{}, false
	}
	after := now.n / now.h
	gain := (after*t.from.h/t.from.n - 1) / r
	switch {
	case s.paid(o, gain, r, now.done):
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

// paid: gain is enough, or not proven to be too little.
func (s *reportStatus) paid(o Observation, gain, r, n float64) bool {
	t := &s.trial
	switch {
	case r < 0:
		return false
	case t.foreign:
		return true
	case t.probing:
		return gain >= 2*minGain
	}
	deviation := 2 * math.Sqrt(o.Rates.Scatter*(1/t.from.done+1/n)) / r // two standard errors
	return gain >= minGain || n < enough/(r*r) || !t.from.sure || gain+deviation >= 1
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
	if float64(o.Workers) < s.trial.from.n && o.Now-o.Oldest < s.grewAt { // those of the larger size take longer
		h = max(h, seconds(4*s.trial.from.h))
	}
	switch {
	case s.trial.pending || s.trial.measuring:
		return o.Now >= s.grewAt+h
	case s.flat.on:
		return o.Now >= s.grewAt+2*h
	}
	return false
}

// settle ends the trial; what was measured is the next one's yardstick.
func (s *reportStatus) settle(a anchor) { s.trial = trial{from: a} }
