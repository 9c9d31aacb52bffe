package pool

import (
	"fmt"
	"math"
	"time"
)

// Knobs of ReportStatus. Times and shares: but for freeSize nothing here depends on how large a pool is.
const (
	drainTime = 250 * time.Millisecond // in which a backlog should be gone
	freeSize  = 16                     // so many workers need no evidence
	busyCPU   = 0.95                   // share of the processors in use at which more workers bring nothing
)

// ReportStatus is the default policy: as many workers as bring something. The package's text has it in five sentences.
func ReportStatus() Policy { return &reportStatus{seen: math.MaxInt, hold: firstHold} }

type reportStatus struct {
	want      int           // the size decided
	change    Observation   // at the last change of size, or when that was through
	fullAt    time.Duration // since when the queue is full
	calmAt    time.Duration // since when no worker was idle, and the size the same
	seen      int           // workers when handlers last ended as expected
	refusals  refusals
	refusedAt time.Duration // when workers were last taken away for that
	before    yard          // what was measured when that began; n is 0: it has not, or it was right
	ref       yard          // what more and less are compared with; n is 0 without any
	kept      yard          // the last one that less was proven to bring less than, when work ceased to wait
	open      bool          // a window, since opened
	opened    Observation
	others    float64       // variance of the logarithm of the throughput at one size, which is what others do to it
	moved     float64       // the last change of it
	quiet     float64       // what was known of others when more was last barred, or the bar lifted for them
	free      bool          // the last cut cost nothing
	most      int           // more is proven to bring nothing; 0: is not
	till      time.Duration // until when that is believed
	hold      time.Duration // and how long the next time
	part      float64       // a probe adds this share
}

// Step decides.
func (s *reportStatus) Step(o Observation) Decision {
	if o.Pressure.CPU >= busyCPU { // as many as there are is then the most
		o.Max = max(o.Min, min(o.Max, o.Workers))
	}
	if o.Workers != s.want { // somebody else changed it, or this is the first step
		s.changed(o, o.Workers)
	}
	if !s.blind(o) && o.served()-s.change.served() >= int64(o.Workers) || o.Workers < s.seen {
		s.seen = o.Workers
	}
	if !o.starving() || !o.Full {
		s.fullAt = o.Now
	}
	d := s.decide(o)
	if t := max(o.Min, min(o.Max, d.Target)); t != o.Workers {
		if t > o.Workers {
			s.passed(o)
		}
		s.changed(o, t)
	}
	return d
}

// changed: the size changes, so what was measured ends here.
func (s *reportStatus) changed(o Observation, size int) {
	s.change, s.calmAt, s.want, s.open, s.free = o, o.Now, size, false, false
}

// blind: nothing has ended yet, or what runs is older than what ended explains, or nothing ends any more.
func (s *reportStatus) blind(o Observation) bool {
	return o.Busy > 0 && (o.Rates.Samples < 1 || o.Rates.Proven > max(2*o.Rates.Handler, o.Rates.Usual) || s.stalled(o))
}

// stalled: work has waited for drainTime, in which no handler is expected to end. What the running ones prove is bounded by
// what few workers can do in the time that is looked at, so it cannot tell.
func (s *reportStatus) stalled(o Observation) bool {
	return o.starving() && o.Now-s.calmAt >= drainTime && o.Rates.Throughput*drainTime.Seconds() < 1
}

func (s *reportStatus) decide(o Observation) Decision {
	if s.refusals.many(&o) {
		if d, ok := s.refuse(o); ok {
			return d
		}
	}
	if !o.starving() {
		s.open, s.calmAt = false, o.Now // a window with idle workers proves nothing
		if o.Idle > 0 {                 // arrivals are the limit, not workers
			if s.ref.proven {
				s.kept = s.ref
			}
			s.ref, s.most, s.hold, s.free = yard{}, 0, firstHold, false
			s.before = yard{}
		}
		return s.shrink(o)
	}
	if d, ok := s.undo(o); ok {
		return d
	}
	if d, ok := s.judge(o); ok {
		return d
	}
	return s.grow(o)
}

// shrink lets those go that asked to.
func (s *reportStatus) shrink(o Observation) Decision {
	keep := max(o.Min, o.Workers-o.IdleLong)
	switch rest := rateMemory - (o.Now - s.change.Now); {
	case keep < o.Workers && rest > 0: // idle reports come one by one
		return o.stay(ReasonIdle, "just changed", rest)
	case keep < o.Workers:
		return Decision{Target: keep, Reason: ReasonIdle, Detail: fmt.Sprint(o.IdleLong), Next: rateMemory}
	case o.Busy > 0 || o.Backlog > 0:
		return o.stay(ReasonStaff, "enough", tick)
	}
	return o.stay(ReasonStaff, "enough", 0)
}

// undo takes back a growth without a yardstick: handlers were quick before it, and now fewer have ended than workers were added,
// in one and a half times the time that these took, while all that run were begun since and are older still.
func (s *reportStatus) undo(o Observation) (Decision, bool) {
	c := &s.change
	n, since := float64(o.served()-c.served()), o.Now-c.Now
	if !s.blind(o) || c.Rates.Samples < keepDone/2 || n < sure || n >= float64(o.Workers-s.seen) ||
		o.Oldest > since*5/4 || since.Seconds() < 1.5*(o.Work-c.Work).Seconds()/n {
		return Decision{}, false
	}
	return s.bar(o, float64(s.seen), 3*mostHold, ReasonUndo, "nothing finishes any more"), true
}

// grow decides on a larger size, when there is reason for one, or on a smaller when there is doubt of this one.
func (s *reportStatus) grow(o Observation) Decision {
	n, size := o.Workers, float64(o.Workers)
	full, blind, held := o.Now-s.fullAt >= 2*tick, s.blind(o), s.most > 0 && n >= s.most
	short := o.Rates.Handler // a delay that is no reason to grow
	if n < freeSize {        // few are often all busy with long ones
		short = 3 * o.Rates.Usual
	}
	short = seconds(short.Seconds() * o.each())
	known, wait := s.ref.n == size, held && o.Now < s.till
	doubted := known && !s.ref.proven && n > o.Min
	switch {
	case !full && o.Rates.Proven > 0 && o.delay() <= max(2*tick, min(short, drainTime)) && !s.stalled(o):
		return o.stay(ReasonStaff, "the backlog is short", tick)
	case doubted && max(s.ref.over, s.ref.under)+sure*math.Sqrt(s.others) <= 2*part &&
		(s.free || (wait || size*(1+part) >= float64(o.Max)) && o.Now-s.calmAt >= 2*drainTime && (full || s.piled(&o))):
		return Decision{Target: max(o.Min, n/2), Force: true, Reason: ReasonHold, Detail: "less is tried", Next: tick}
	case n >= o.Max && o.Pressure.CPU >= busyCPU:
		return o.stay(ReasonCPU, "", tick)
	case n >= o.Max:
		return o.stay(ReasonLimit, "at Max", tick)
	case wait || size < s.ref.n:
		return o.stay(ReasonHold, "", tick)
	case held && (!known || doubted && s.free || !s.settled(o)):
		return o.stay(ReasonHold, "measuring", tick)
	case held:
		return Decision{Target: min(o.Max, n+max(1, int(min(1, max(s.part, s.ref.doubt()))*size))), Reason: ReasonGrow,
			Detail: "a little more is tried", Next: tick}
	}
	target, why := s.wanted(o, full, blind)
	switch {
	case target <= n && blind:
		return o.stay(ReasonStuck, "", tick)
	case target <= n:
		return o.stay(ReasonStaff, "enough for the backlog", tick)
	case n < freeSize && s.most == 0, blind && s.ref.n == 0:
	case !known && float64(o.served()-s.change.served()) < 2*size: // too soon to see what the last growth brought
		return o.stay(ReasonHold, "measuring", tick)
	}
	return Decision{Target: min(target, o.Max), Reason: why, Next: tick}
}

// piled: more work waits than would by chance, were the workers enough for what arrives. While all are busy and used to a share
// of r, more than n wait with a probability of r^n, however many they are: with exponential times and at 98 % one time in 50 for
// the n below; with others n is (1+cv²)/2 times that (Kingman 1961). What is not known to wait shows by the time in which nobody
// was idle.
func (s *reportStatus) piled(o *Observation) bool {
	if o.Waiting < 0 && o.Now-s.calmAt >= mostHold {
		return true
	}
	return float64(o.waiting()) > 6*freeSize*(1+s.ref.cv2) && o.delay() > max(drainTime, o.Rates.Handler)
}

// wanted is the size that the load asks for: Little's law, and the backlog gone in drainTime, or in a handler time if that is
// more; from freeSize on with square-root staffing (Halfin and Whitt 1981), for a root of few is as many again.
func (s *reportStatus) wanted(o Observation, full, blind bool) (int, Reason) {
	n, h, roots := o.Workers, o.Rates.Proven.Seconds(), 1.0
	switch {
	case o.Rates.Samples == 0:
		h *= 2 // a handler of that age takes on average so long (Lindy)
	case !blind && n < freeSize: // few of which some hold long ones prove less than what ended
		h = o.Rates.Handler.Seconds()
	}
	switch {
	case n < freeSize:
		roots = 0
	case blind:
		roots = 4
	}
	target, why := 2*n, ReasonGrow
	if !full && h > 0 { // a full queue hides the arrivals
		waits, soon := float64(o.waiting()), drainTime.Seconds()
		load := o.Rates.Rising*h + waits*h/max(h, soon)
		most := float64(n) + (waits+o.Rates.Rising*soon)/o.each() // a worker for all of them, and for what comes soon
		want := int(math.Ceil(min(1e9, load+roots*math.Sqrt(load), most)))
		if want <= n && o.Now-s.change.Now >= rateMemory {
			want = n + max(1, int(part*float64(n))) // by that it should do, and does not
		}
		target, why = min(2*n, max(n, want)), ReasonStaff
	}
	if blind { // at most half way to Max, which may be math.MaxInt
		target = min(target, o.Max-(o.Max-max(s.seen, freeSize))/2)
	}
	return target, why
}
