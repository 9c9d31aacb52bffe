package pool

import (
	"math"
	"time"
)

// Knobs of a proof.
const (
	sure      = 3.0                    // standard errors that prove something
	proof     = 6.0                    // the logarithm of a likelihood ratio that does
	part      = 0.125                  // the smallest growth or cut that is tried
	firstHold = 100 * time.Millisecond // the wait before the first probe, times 8 each time ...
	mostHold  = 16 * time.Second       // ... up to this, and three times this where a growth did harm
	longest   = 5 * time.Second        // that a trial may take
)

// yard is a yardstick: a size, and the throughput that was had at it with all workers busy.
type yard struct {
	n, rate, done, span float64 // workers, completions per second, completions behind that, seconds
	cv2                 float64 // squared coefficient of variation of their times
	over, under         float64 // by which share the rate may be too high, and too low, besides chance
	proven              bool    // less than n is proven to bring less
}

// read returns what was measured since w. Handlers that did not end count as unknown, but not where all take the same; and up to
// (cv²-1)/2 handler times are won or lost: at a start only short ones end, after a cut those stay that have long ones in hand.
func (s *reportStatus) read(w, o *Observation) yard {
	n, work := float64(o.served()-w.served()), (o.Work - w.Work).Seconds()
	y := yard{n: float64(o.Workers), done: n, span: (o.Now - w.Now).Seconds(), proven: s.ref.proven}
	if n == 0 || y.span <= 0 {
		return y
	}
	old := o.Oldest.Seconds() // the oldest that runs belongs to the tail, though it has not ended
	y.cv2 = max(0, (n+1)*(o.Squares-w.Squares+old*old)/((work+old)*(work+old))-1)
	off, known := (o.Age-w.Age).Seconds()/(y.n*y.span), 1-min(1, math.Sqrt(y.cv2))
	y.rate = n / y.span / max(1e-3, 1-min(off, 0)-max(off, 0)*known)
	y.over = math.Abs(off) * (1 - known)
	y.under = y.over
	if bias := max(0, y.cv2-1) / 2 * y.n / y.rate / y.span; s.change.Workers > o.Workers {
		y.under += bias
	} else {
		y.over += bias
	}
	return y
}

// doubt is how far off y may be by itself.
func (y yard) doubt() float64 { return sure*math.Sqrt(y.cv2/y.done) + max(y.over, y.under) }

// verdict on two sizes: the logarithms of the larger over the smaller, and of its throughput over the smaller's, with the least
// and the most that this may be; more: the larger is proven to pay, less: not to.
type verdict struct {
	size, r, low, high float64
	more, less         bool
}

// weigh holds y against a yardstick by a sequential test (Wald 1945): is the throughput in proportion to the workers, or the
// same at both sizes? So half of what it could bring, in logarithms, decides whether the larger pays. Chance is in the ratio of
// likelihoods; what a start, a cut and handlers that run still hide is held against whoever it would prove right.
func (s *reportStatus) weigh(a, b yard) verdict {
	if a.n == 0 {
		return verdict{more: true}
	}
	if a.n > b.n {
		a, b = b, a
	}
	v := max(a.cv2, b.cv2)*(1/a.done+1/b.done) + s.others
	size, r := math.Log(b.n/a.n), math.Log(b.rate/a.rate)
	low, high, chance := r-b.over-a.under, r+b.under+a.over, sure*math.Sqrt(v)
	return verdict{size, r, low - chance, high + chance, size*(low-size/2) > proof*v, size*(high-size/2) < -proof*v}
}

// judge reads what was measured at the present size, if anything is; with a verdict it decides.
func (s *reportStatus) judge(o Observation) (Decision, bool) {
	size, before := float64(o.Workers), s.change.Workers
	grown := s.ref.n > 0 && size > s.ref.n
	if o.Busy > o.Workers { // those that are to go have not gone
		s.change, s.open = o, false
		s.change.Workers = before
	}
	if grown && s.missing(o) {
		return s.harm(o), true
	}
	if !s.open {
		s.open, s.opened = s.settled(o), o
		return Decision{}, false
	}
	y := s.read(&s.opened, &o)
	if s.before.n > 0 && y.done >= 8 && y.span >= y.n/y.rate {
		if d, ok := s.relent(o, y); ok {
			return d, true
		}
	}
	switch least := max(tick.Seconds(), y.n/y.rate); {
	case y.done < 8 || y.span < least && !(grown && y.span >= s.ref.n/s.ref.rate): // young, it tells of less at most
	case y.n == s.ref.n:
		s.same(o, y)
	case s.ref.n > 0:
		return s.compare(o, y, y.span >= least)
	case o.Workers >= min(freeSize, o.Max) || s.most > 0:
		y.proven = y.n == s.kept.n && math.Log(y.rate/s.kept.rate) > -0.25
		s.ref, s.opened = y, o
	}
	return Decision{}, false
}

// compare decides between the present size and the yardstick's. What will not become clearer is taken as it looks.
func (s *reportStatus) compare(o Observation, y yard, ripe bool) (Decision, bool) {
	v := s.weigh(s.ref, y)
	up, long, proven := y.n > s.ref.n, o.Now-s.change.Now > longest, v.more
	probe := s.most > 0 && o.Workers > s.most
	if !v.more && !v.less && ripe {
		switch tried := probe && o.Workers < o.Max; {
		case tried && y.done > 4*s.ref.done && s.ref.doubt() > v.size: // it is the yardstick that is in doubt: they change places
			y, s.ref = s.ref, y
			return Decision{Target: int(y.n), Force: true, Reason: ReasonHold, Detail: "less is tried", Next: tick}, true
		case tried && long: // twice as much proves four times as soon
			n := min(o.Max, int(2*y.n-s.ref.n))
			return Decision{Target: n, Reason: ReasonGrow, Detail: "more proved nothing yet", Next: tick}, true
		case long && !up && s.most > 0 && s.ref.n > float64(s.most): // nor did it help to change places
			n := min(o.Max, int(2*s.ref.n-y.n))
			s.ref = y
			return Decision{Target: n, Reason: ReasonGrow, Detail: "more proved nothing yet", Next: tick}, true
		case !tried && (up && long || y.done > 4*s.ref.done):
			v.more = v.r > v.size/2
			v.less = !v.more
		}
	}
	knee := s.ref.n * math.Exp(max(0, v.high)) * (1 + part/4) // there the line through the smaller size reaches this throughput
	if probe {
		knee = s.ref.n * math.Exp(max(0, v.low))
	}
	switch {
	case up && v.less && v.high < 0:
		return s.harm(o), true
	case !ripe || !v.more && !v.less:
	case up && v.less && math.Round(knee) < y.n:
		return s.bar(o, knee, mostHold, ReasonUndo, "more brought too little"), true
	case up:
		step := min(1, 2*(y.n/s.ref.n-1))
		y.proven = proven || s.ref.proven
		s.ref, s.opened = y, o
		if v.more && probe { // the bar goes up, the more the oftener
			s.most, s.till, s.part = o.Workers, o.Now, step
		}
	case v.more:
		s.ref.proven = true
		return s.bar(o, s.ref.n, 0, ReasonUndo, "less hurts"), true
	default:
		s.ref, s.opened, s.hold = y, o, firstHold // if that was wrong, a little more soon shows it
		s.bar(o, y.n, 0, "", "")
		s.free = true
	}
	return Decision{}, false
}

// harm takes back a growth with which less comes out.
func (s *reportStatus) harm(o Observation) Decision {
	return s.bar(o, s.ref.n, 3*mostHold, ReasonUndo, "less comes out")
}

// missing: since a growth fewer have ended than the workers of before would have ended alone, so at a cliff the proof need not
// wait until something ends. One for each worker may be late without harm: it is in hand, and equal handlers end together.
func (s *reportStatus) missing(o Observation) bool {
	y := s.read(&s.change, &o)
	n := y.done + y.n
	chance := sure * math.Sqrt(max(1, s.ref.cv2, y.cv2)*(1/n+1/s.ref.done)+s.others)
	young := max(0, y.cv2-max(1, s.ref.cv2)) / 2 * s.ref.n / s.ref.rate / s.ref.span // it had not met what takes long
	return y.done > 0 && math.Log(n/y.span/s.ref.rate)+s.ref.over+young+chance < 0
}

// settled: what was begun before the last change of size has ended, or should have.
func (s *reportStatus) settled(o Observation) bool {
	since, h, cv2 := o.Now-s.change.Now, o.Rates.Handler, 1.0
	if s.ref.n > float64(o.Workers) { // those that stayed have the long ones in hand
		h, cv2 = max(h, seconds(s.ref.n/s.ref.rate)), max(1, s.ref.cv2)
	}
	return since >= h && o.Now-o.Oldest >= s.change.Now || since >= 2*seconds(h.Seconds()*(1+cv2))
}

// passed: growth goes on before this size was measured. What it brought is a yardstick all the same, where that is sure enough:
// of two sizes beyond a cliff the larger does more, and without one from before the cliff nothing leads back.
func (s *reportStatus) passed(o Observation) {
	y := s.read(&s.change, &o)
	if s.ref.n >= y.n || y.n < freeSize || s.calmAt > s.change.Now || y.done < 8 || y.doubt() > part { // or workers were idle
		return
	}
	if s.weigh(s.ref, y).more {
		s.ref = y
	}
}

// same: at one size the throughput should stay. Where it does not, others did that, as far as it comes again, or nothing known
// holds any more.
func (s *reportStatus) same(o Observation, y yard) {
	if y.span < firstHold.Seconds() {
		return
	}
	r, v := math.Log(y.rate/s.ref.rate), max(y.cv2, s.ref.cv2)*(1/y.done+1/s.ref.done)
	least := sure*math.Sqrt(v) + max(y.over+s.ref.under, y.under+s.ref.over)
	moved := max(0, r*r-least*least)
	d := min(moved, s.moved, 1./16) - s.others
	s.others += max(d*part, d*part/4) // a lull does not say that they are gone
	if s.others > 2*s.quiet {         // what barred more may have been their doing
		s.till, s.quiet = o.Now, s.others
	}
	s.moved = max(moved, s.moved*(1-part/4))
	switch {
	case r > least+sure*math.Sqrt(s.others):
		s.till = o.Now
	case r < -least:
		y.proven = s.ref.proven && r > -0.25
	case r < least && y.doubt() >= s.ref.doubt()/2: // it confirms
		a := y.done / (y.done + s.ref.done)
		y.rate, y.cv2 = s.ref.rate+a*(y.rate-s.ref.rate), s.ref.cv2+a*(y.cv2-s.ref.cv2)
		y.done, y.span = min(s.ref.done+y.done, 8*max(y.done, 1e4)), s.ref.span+y.span
		y.over, y.under = s.ref.over*(1-a), s.ref.under*(1-a)
	}
	s.ref, s.opened = y, o
}

// bar goes to a size and stays there for a while that lengthens, never quite the same, lest many probe one downstream together.
func (s *reportStatus) bar(o Observation, target float64, most time.Duration, why Reason, detail string) Decision {
	jitter := float64((uint64(o.Work)^uint64(o.Done)<<32)*0x9e3779b97f4a7c15>>40) / (1 << 24) // of what differs between pools
	size := max(1, int(math.Round(target)))
	s.most, s.part, s.quiet = size, max(part, s.part/2), max(part*part/16, s.others)
	if size >= o.Max { // nothing is known of more
		s.most = 0
	}
	s.till = o.Now + seconds(s.hold.Seconds()*(0.75+jitter/2))
	s.hold = max(s.hold, min(8*s.hold, most))
	return Decision{Target: size, Force: true, Reason: why, Detail: detail, Next: tick}
}
