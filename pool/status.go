package pool

import (
	"fmt"
	"math"
	"time"
)

// Knobs of ReportStatus. Times and shares, no sizes: nothing here depends on how large a pool is.
const (
	shortDelay = 10 * time.Millisecond  // a backlog that is gone within this is none
	drainTime  = 250 * time.Millisecond // in which a backlog should be gone
	growRoots  = 2.0                    // growth: load + growRoots·√load
	keepRoots  = 1.0                    // shrinking: never under load + keepRoots·√load
	freeSize   = 16                     // so many workers need no evidence
	lindy      = 2.0                    // while nothing has finished, handlers are taken to take so many times their age
	shrinkGap  = 50 * time.Millisecond  // between two steps down: idle reports come one by one
	blindTimes = 8                      // without a completion: at most so many times as many workers
	calmSteps  = 4                      // steps with idle workers in a row that show the arrivals to be the limit
	calmShare  = 0.75                   // of the arrivals that must be finished meanwhile for that
	busyCPU    = 0.95                   // share of the processors in use at which more workers bring nothing
)

// ReportStatus is the default policy: as many workers as bring something.
//
// While work waits and no worker is idle, it grows to Little's law: arrivals × handler time, the backlog gone within 250 ms, and two
// square roots for what varies (square-root staffing, Halfin and Whitt 1981); at most twofold at a time. After each growth of a
// quarter or more it looks at the throughput: one that brought less than a quarter of what it could have is a plateau. Then it
// goes back to the knee, which is the throughput had at the larger size times the handler time of the smaller (Kleinrock's operating
// point, as in BBR), and probes more rarely the oftener it fails. It shrinks by the workers that report an idle timeout: with last-in
// first-out wake-up these are exactly those that the busiest moment of the time did not need.
func ReportStatus() Policy { return &reportStatus{} }

type reportStatus struct {
	primed   bool
	fullAt   time.Duration // since when the queue is full
	calm     int           // steps with idle workers in a row
	seen     int           // workers at the last completion
	done     int64         // completions then
	grewAt   time.Duration // the last change of size by grow or by a verdict
	shrunkAt time.Duration // the last one by idle reports
	doubted  bool          // the last growth was let pass, but not proven to have paid
	patience time.Duration // at Max: see suspect
	topAt    time.Duration // since when at Max with work waiting
	was      int           // the size at the last step
	want     int           // and what was decided then
	trial    trial
	flat     plateau
}

// Step decides.
func (s *reportStatus) Step(o Observation) Decision {
	s.note(o)
	d := s.decide(o)
	s.want = max(o.Min, min(o.Max, d.Target))
	return d
}

func (s *reportStatus) decide(o Observation) Decision {
	if !o.starving() {
		s.arrivalLimited(o)
		return s.shrink(o)
	}
	s.calm = 0
	if verdict, ok := s.judge(o); ok {
		return verdict
	}
	full := o.Now-s.fullAt >= shortDelay
	if full || o.Rates.Proven == 0 || s.delay(o) > shortDelay {
		return s.grow(o, full)
	}
	return o.stay("short backlog", tick)
}

// note keeps what later steps need.
func (s *reportStatus) note(o Observation) {
	if !s.primed {
		s.primed, s.seen, s.grewAt, s.shrunkAt = true, o.Workers, -time.Hour, -time.Hour
		s.flat.hold, s.patience = probeHold, patience
	}
	switch {
	case o.Workers < min(s.want, s.was): // somebody else took workers away: nothing that was begun means anything now
		s.settle(anchor{})
		s.flat, s.grewAt = plateau{hold: probeHold}, o.Now
	case s.want > s.was && o.Workers == s.was: // growth was refused
		s.trial.pending = false
	}
	s.was = o.Workers
	if !o.starving() || o.Workers < o.Max {
		s.topAt = o.Now
	}
	if o.Done > s.done {
		s.seen, s.done = o.Workers, o.Done
	}
	if o.Busy > o.Workers { // the size changes until those that are to go have gone
		s.grewAt = o.Now
	}
	if !o.starving() || !o.Full {
		s.fullAt = o.Now
	}
}

// rest is how long the manager may sleep though nothing happens: for ever when nothing is in hand and no more workers are to go.
func (s *reportStatus) rest(o Observation) time.Duration {
	switch {
	case o.Busy > 0 || o.Backlog > 0:
		return tick
	case o.IdleLong > 0 && o.Workers > o.Min:
		return loadMemory / 5 // the load is only now forgotten
	}
	return 0
}

// delay is how long the workers as they are need for the backlog.
func (s *reportStatus) delay(o Observation) time.Duration {
	return seconds(float64(o.Backlog+o.Expected) * o.Rates.Proven.Seconds() / float64(max(1, o.Workers)))
}

// arrivalLimited: idle workers mean that arrivals, not workers, bound the throughput; unless they are idle only until the next
// arrivals, for less comes out than goes in.
func (s *reportStatus) arrivalLimited(o Observation) {
	if o.Idle > 0 && o.Rates.Throughput >= calmShare*o.Rates.Arrivals {
		s.calm++
	}
	if s.calm >= calmSteps {
		s.settle(anchor{float64(o.Workers), o.Rates.Handler.Seconds(), o.Rates.Samples, true})
		s.flat.on, s.flat.hold, s.flat.part = false, probeHold, 0
		s.doubted, s.patience = false, patience
	}
	s.trial.win.open = false // a window with idle workers proves nothing
}

// shrink lets those go that asked to, as far as the load allows.
func (s *reportStatus) shrink(o Observation) Decision {
	keep := s.keep(o)
	if o.IdleLong == 0 || keep >= o.Workers {
		return o.stay("enough", s.rest(o))
	}
	if rest := shrinkGap - (o.Now - s.shrunkAt); rest > 0 {
		return o.stay("just shrunk", rest)
	}
	s.shrunkAt = o.Now
	return Decision{Target: keep, Reason: fmt.Sprintf("%d idle all along", o.IdleLong), Next: shrinkGap}
}

// keep is the size without the workers that were idle for their whole timeout.
func (s *reportStatus) keep(o Observation) int {
	return max(o.Min, o.Workers-o.IdleLong, staff(o.Rates.Load, keepRoots))
}

// staff is square-root staffing.
func staff(load, roots float64) int {
	return int(math.Ceil(min(1e9, load+roots*math.Sqrt(load))))
}

// grow decides on a larger size, when there is reason for one.
func (s *reportStatus) grow(o Observation, full bool) Decision {
	n := o.Workers
	s.suspect(o)
	free := n < freeSize && o.Pressure.CPU < busyCPU && !s.flat.on
	if why := s.mustWait(o, full, free); why != "" {
		return o.stay(why, tick)
	}
	target, why := s.wanted(o, full)
	if target == n {
		return o.stay("enough for the backlog", tick)
	}
	blind := s.seen < n && !s.flat.on
	if blind { // nothing finished since the last growth
		base := max(s.seen, freeSize)
		if target = min(target, blindTimes*base, (base+o.Max+1)/2); target <= n {
			return o.stay("nothing finishes", tick)
		}
	}
	if !s.trial.pending && !s.begin(o, target, free, blind) {
		return o.stay("measuring", tick)
	}
	s.trial.win.open, s.trial.looked, s.grewAt = false, false, o.Now
	return Decision{Target: min(target, o.Max), Force: target < n, Reason: why, Next: tick}
}

// mustWait says why there is no growth now, or nothing.
func (s *reportStatus) mustWait(o Observation, full, free bool) string {
	gap := tick
	if full && !free { // else growth is to a size computed, and the clock of that is the handler time
		gap = max(tick, min(o.Rates.Proven, drainTime))
	}
	switch {
	case o.Workers >= o.Max && (!s.flat.on || s.flat.trimmed):
		return "at max"
	case o.Now-s.grewAt < gap:
		return "just grown"
	case s.trial.pending && !s.trial.foreign && !free:
		return "judging"
	case s.flat.on && (o.Now < s.flat.till || s.flat.windows == 0):
		return "plateau"
	}
	return ""
}

// wanted is the size that the load asks for.
func (s *reportStatus) wanted(o Observation, full bool) (target int, why string) {
	n := o.Workers
	if s.flat.on {
		return s.try(o)
	}
	target, why = 2*n, "double"
	up := o.Rates.Proven.Seconds()
	if o.Rates.Samples == 0 {
		up *= lindy
	}
	if !full && up > 0 { // a full queue hides the arrivals
		load := o.Rates.Rising*up + float64(o.Backlog+o.Expected)*up/drainTime.Seconds() // Little's law
		want := staff(load, growRoots)
		if want <= n && o.Now-s.grewAt >= rateMemory {
			want = n + 1 // by that it should do, and does not
		}
		target, why = min(target, max(n, want)), "arrivals × handler time"
	}
	return target, why
}
