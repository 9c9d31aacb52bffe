package pool

import (
	"math"
	"time"
)

// fewRefused is a share of what ends: a downstream that refuses so many is not full.
const fewRefused = 1. / 16

// refusals tell a full downstream from one that refuses some for reasons of their own, as the limit of one customer.
type refusals struct {
	refused, served int64
	sum             float64       // the logarithm of a likelihood ratio, never under 0
	share           float64       // that was refused when workers were first taken away for it
	size            int           // at the last look
	calm            time.Duration // when those that were added last have had the time to be served
	usual           float64       // the share that is refused with fewer workers, too, until fewer do as much; 0: is not known
}

// longestCalm bounds for how long refusals tell nothing after a growth.
const longestCalm = time.Second

// many takes what ended since the last look, and says whether too many were refused to be the usual share, or fewRefused: the
// cumulative sum test (Page 1954) between that and four times as many. Not where workers were just added: what limits calls by
// time refuses one that comes between two of the others, and a refusal is quick, so that the same worker comes again and again
// until it has its place among them. Those are many refusals, and then it has none. That takes a handler's time at most; handlers
// that end within two looks have it by then.
func (r *refusals) many(o *Observation) bool {
	refused, served := float64(o.Refused-r.refused), float64(max(0, o.served()-r.served))
	r.refused, r.served = o.Refused, max(r.served, o.served())
	if o.Workers > r.size {
		r.calm = o.Now + min(o.Rates.Handler, longestCalm) - 2*tick
	}
	if r.size = o.Workers; o.Now < r.calm {
		return false
	}
	few := max(fewRefused, r.usual)
	full := min(4*few, (1+few)/2)
	r.sum = max(0, r.sum+refused*math.Log(full/few)+served*math.Log((1-full)/(1-few)))
	return r.sum > 2*proof
}

// shareRefused is the share since w that was refused, at most, as far as chance goes.
func shareRefused(w, o *Observation) float64 {
	n := float64(o.Done - w.Done)
	x := float64(o.Refused-w.Refused) / n
	return min(0.9, x+sure*math.Sqrt(x*(1-x)/n))
}

// refuse: the downstream says that it is full. The last growth is undone, or an eighth of the workers goes; and when what they
// have in hand has ended, more. What was done before is kept, for it may show that less hurts.
func (s *reportStatus) refuse(o Observation) (Decision, bool) {
	s.refusals.sum = 0
	if o.Now-s.refusedAt < max(2*tick, o.Rates.Handler) || o.Workers <= o.Min {
		return Decision{}, false
	}
	if y := s.read(&s.change, &o); s.before.n == 0 && y.done >= 8 {
		s.before, s.refusals.share = y, shareRefused(&s.change, &o)
	}
	keep := (1 - part) * float64(o.Workers)
	if n := s.change.Workers; n < o.Workers {
		keep = min(keep, float64(n))
	}
	s.refusedAt, s.ref = o.Now, yard{}
	return s.bar(o, keep, mostHold, ReasonLimit, "the downstream is full"), true
}

// relent: fewer workers do less than those did whom the downstream had enough of. So many are refused whatever is done.
func (s *reportStatus) relent(o Observation, y yard) (Decision, bool) {
	if y.n >= s.before.n {
		s.before = yard{}
		return Decision{}, false
	}
	v := s.weigh(s.before, y)
	if v.less {
		s.before, s.refusals.usual = yard{}, 0
	}
	if !v.more {
		return Decision{}, false
	}
	s.ref, s.before, s.most, s.hold = s.before, yard{}, 0, firstHold
	s.ref.proven, s.refusals.usual = true, s.refusals.share
	return Decision{Target: int(s.ref.n), Force: true, Reason: ReasonUndo, Detail: "less hurts", Next: tick}, true
}
