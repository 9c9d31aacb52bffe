package pool

import (
	"math"
	"time"
)

// Knobs of a proof.
const (
	// standard errors that prove something, and completions per worker in which a change of size shows
	sure      = 3.0
	paidShare = 0.5 // a growth paid if it brought this share of what it could
	// a doubt, or a share of time in handlers that have not ended, beyond which a window tells nothing by itself
	noise = 0.25
	// the smallest growth or cut that is tried; a quarter of it is what a size is held above the knee
	part      = 0.125
	firstHold = 100 * time.Millisecond // the wait before the first probe, times 8 each time ...
	mostHold  = 20 * time.Second       // ... up to this, and three times this where a growth did harm
	longest   = 5 * time.Second        // that a trial may take
)

// yard is a yardstick: a size, and the throughput that was had at it with all workers busy.
type yard struct {
	n, rate, done float64 // workers, completions per second, completions behind that
	cv2           float64 // squared coefficient of variation of their times
	off, span     float64 // share of the time that went into handlers which did not end; seconds
	cut           bool    // measured after a cut
	proven        bool    // less than n is proven to bring less
}

// read returns what was measured since w.
func (s *reportStatus) read(w, o *Observation) yard {
	n, work, cut := float64(o.served()-w.served()), (o.Work - w.Work).Seconds(), s.change.Workers > o.Workers
	y := yard{n: float64(o.Workers), done: n, span: (o.Now - w.Now).Seconds(), proven: s.ref.proven, cut: cut}
	if n == 0 || y.span <= 0 {
		return y
	}
	old := o.Oldest.Seconds() // the oldest that runs belongs to the tail, though it has not ended
	y.cv2 = max(0, (n+1)*(o.Squares-w.Squares+old*old)/((work+old)*(work+old))-1)
	y.off = (o.Age - w.Age).Seconds() / (y.n * y.span)
	known := 1 - min(1, math.Sqrt(y.cv2)) // handlers that all take the same are known before they end
	y.rate = n / y.span / (1 - min(y.off, 0) - max(y.off, 0)*known)
	y.off = math.Abs(y.off) * (1 - known)
	return y
}

// hidden is by which share the rate may be too high, and too low, whatever the number of completions: handlers did not end; and
// until (cv²-1)/2 handler times are won or lost, at a start only short ones end, and after a cut those stay that have long ones
// in hand (inspection paradox).
func (y yard) hidden(cv2, h float64) (over, under float64) {
	bias := max(0, cv2-1) / 2 * h / y.span
	if y.cut {
		return y.off, y.off + bias
	}
	return y.off + bias, y.off
}

// bias is the larger of what is hidden.
func (y yard) bias() float64 {
	over, under := y.hidden(y.cv2, y.n/y.rate)
	return max(over, under)
}

// own is how far off y may be by itself.
func (y yard) own() float64 { return sure*math.Sqrt(y.cv2/y.done) + y.bias() }

// against is the throughput at y over that at x, and the least and the most that it may be.
func (y yard) against(x yard, others float64) (q, low, high float64) {
	q, cv2, h := y.rate/x.rate, max(y.cv2, x.cv2), y.n/max(y.rate, x.rate/4)
	n := max(y.done, x.rate*y.span/4)
	doubt := max(q, 0.25) * sure * (math.Sqrt(cv2*(1/n+1/x.done)) + math.Sqrt(others))
	over, under := y.hidden(cv2, h)
	overX, underX := x.hidden(cv2, h)
	return q, q - doubt - over - underX, q + doubt + under + overX
}

// compare holds y against the yardstick, as far as others let the two be compared.
func (s *reportStatus) compare(y yard) (q, low, high float64) { return y.against(s.ref, s.others) }

// least is the throughput at y over the yardstick's with which the growth paid.
func (s *reportStatus) least(y yard) float64 { return 1 + paidShare*(y.n/s.ref.n-1) }

// pays: y is proven to be more than the yardstick, and has what makes it pay.
func (s *reportStatus) pays(y yard) bool {
	q, low, _ := s.compare(y)
	return q >= s.least(y) && low > 1
}

// judge reads what was measured at the present size, if anything is; with a verdict it decides.
func (s *reportStatus) judge(o Observation) (Decision, bool) {
	grown := s.ref.n > 0 && float64(o.Workers) > s.ref.n
	if o.Busy > o.Workers { // those that are to go have not gone
		before := s.change.Workers
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
	if y.done < 8 {
		return Decision{}, false
	}
	if grown && y.span >= max(tick.Seconds(), s.ref.n/s.ref.rate) {
		if _, _, high := s.compare(y); high < 1 {
			return s.harm(o), true
		}
	}
	if y.span < max(tick.Seconds(), y.n/y.rate) {
		return Decision{}, false
	}
	switch {
	case s.ref.n == 0 && o.Workers < min(freeSize, o.Max) && s.most == 0: // not worth it
	case s.ref.n == 0:
		s.measured(o, y)
	case grown:
		return s.more(o, y)
	case y.n < s.ref.n:
		return s.less(o, y)
	case y.span >= firstHold.Seconds():
		s.same(o, y)
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
	if y.done == 0 {
		return false
	}
	y.done += y.n
	y.rate, y.cv2, y.off = y.done/y.span, max(1, y.cv2), 0
	_, _, high := s.compare(y)
	return high < 1
}

// settled: what was begun before the last change of size has ended, or should have.
func (s *reportStatus) settled(o Observation) bool {
	since, h, cv2 := o.Now-s.change.Now, o.Rates.Handler, 1.0
	if s.ref.n > float64(o.Workers) { // those that stayed have the long ones in hand
		h, cv2 = max(h, seconds(s.ref.n/s.ref.rate)), max(1, s.ref.cv2)
	}
	return since >= h && o.Now-o.Oldest >= s.change.Now || since >= 2*seconds(h.Seconds()*(1+cv2))
}

// measured makes y the yardstick, and measures on.
func (s *reportStatus) measured(o Observation, y yard) { s.ref, s.opened = y, o }

// more: did the growth bring what it should?
func (s *reportStatus) more(o Observation, y yard) (Decision, bool) {
	q, low, high := s.compare(y)
	least := s.least(y)
	knee := s.ref.n * (max(1, high) + part/4) // there the line through the smaller size reaches this throughput
	probe, long := s.most > 0 && o.Workers > s.most, o.Now-s.change.Now > longest
	switch {
	case high < least && probe:
		return s.bar(o, s.ref.n, mostHold, ReasonUndo, "more brought too little"), true
	case high < least && (knee < y.n*(1-part) || high-q <= noise/4 && math.Round(knee) < y.n):
		return s.bar(o, knee, mostHold, ReasonUndo, "more brought too little"), true
	case high < least, s.most > 0 && !probe && y.n <= s.ref.n*(1+part): // near enough
		y.proven = low > 1 || s.ref.proven
		s.measured(o, y)
	case s.pays(y):
		y.proven = true
		s.measured(o, y)
		if probe { // the bar goes up, the more the oftener
			s.most, s.till, s.part = o.Workers, o.Now, min(1, 2*s.part)
		}
	case probe && long && o.Workers < o.Max: // twice as much proves four times as soon
		s.part *= 2
		n := min(o.Max, int(s.ref.n*(1+s.part)))
		return Decision{Target: n, Reason: ReasonGrow, Detail: "more proved nothing yet", Next: tick}, true
	case (o.Workers >= o.Max || long) && y.own() <= s.ref.own():
		s.measured(o, y)
	}
	return Decision{}, false
}

// less: did the cut cost anything?
func (s *reportStatus) less(o Observation, y yard) (Decision, bool) {
	q, low, high := s.compare(y)
	known := y.done > 4*s.ref.done // it will not become clearer
	switch {
	case high < 1-part/4, known && q < 1-noise:
		s.ref.proven = true
		return s.bar(o, s.ref.n, 0, ReasonUndo, "less hurts"), true
	case known, (q+low)/2 > 1-noise:
		s.measured(o, y)
		s.hold = firstHold // if that was wrong, a little more soon shows it
		s.bar(o, y.n, 0, "", "")
		s.free = true
	}
	return Decision{}, false
}

// same: at one size the throughput should stay. Where it does not, that is not our doing, and nothing known holds any more.
func (s *reportStatus) same(o Observation, y yard) {
	q, low, high := y.against(s.ref, 0)
	s.disturbed(math.Pow(math.Log(q), 2) - math.Pow((high-low)/2/sure, 2))
	switch {
	case low > 1+sure*math.Sqrt(s.others): // nor is that what others do
		s.till = o.Now
	case high < 1:
		y.proven = s.ref.proven && q > 1-noise
	case y.own() < s.ref.own()/2: // the better yardstick
	default:
		a := y.done / (y.done + s.ref.done)
		y.rate, y.cv2 = s.ref.rate+a*(y.rate-s.ref.rate), s.ref.cv2+a*(y.cv2-s.ref.cv2)
		y.done, y.off, y.span = min(s.ref.done+y.done, 8*max(y.done, 1e4)), s.ref.off*(1-a), s.ref.span+y.span
	}
	s.measured(o, y)
}

// disturbed learns what others do to the throughput: by how much it changes at one size. One change is none: the downstream may
// have become another.
func (s *reportStatus) disturbed(change float64) {
	change = min(noise*noise, max(0, change))
	s.others += (min(change, s.shift) - s.others) * part
	s.shift = max(change, s.shift*(1-part/4))
}

// bar goes to a size and stays there for a while that lengthens, never quite the same, lest many probe one downstream together.
func (s *reportStatus) bar(o Observation, target float64, most time.Duration, why Reason, detail string) Decision {
	// of what differs from one pool to the next
	jitter := float64((uint64(o.Work)^uint64(o.Done)<<32)*0x9e3779b97f4a7c15>>40) / (1 << 24)
	size := max(1, int(math.Round(target)))
	s.most, s.part = size, max(part, s.part/2)
	if size >= o.Max { // nothing is known of more
		s.most = 0
	}
	s.till = o.Now + seconds(s.hold.Seconds()*(0.75+jitter/2))
	s.hold = max(s.hold, min(8*s.hold, most))
	return Decision{Target: size, Force: true, Reason: why, Detail: detail, Next: tick}
}
