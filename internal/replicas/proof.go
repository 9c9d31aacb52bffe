package replicas

import (
	"math"
	"time"
)

const (
	// settleFor is how long after a change of the members nothing is measured: partitions move, processes start.
	settleFor = 15 * time.Second
	// blindAfter is how far apart two readings are that leave it open what was between them: more than the longest time from one to
	// the next. The broker may have been away, and what came out then is no measure.
	blindAfter = 30 * time.Second
	// judgeAfter is how long is measured at one number before it is judged, at least: fewest that the members could have finished
	// tell something, and callsOver as long as a call takes. Calls of minutes began together, and end together.
	judgeAfter = 45 * time.Second
	fewest     = 20
	callsOver  = 2
	// busyEnough is the part of what members could do below which they are not kept busy.
	busyEnough = 0.7
	// ownShare is the part of its share that a further process has to bring.
	ownShare = 0.5
	// apart is how far apart two numbers are that tell something: less is noise.
	apart = 1.2
	// holdFor is how long a hold lasts, and longestHold how long where each look was in vain.
	holdFor, longestHold = 10 * time.Minute, time.Hour
	// staleAfter is when what was measured at another number tells nothing any more, beside the time that a measure takes.
	staleAfter = 15 * time.Minute
	// recovered is how much more has to come out than at the hold's begin to end it.
	recovered = 1.3
)

// A proof finds out whether more processes bring more, by what comes out at two numbers of them while work waits. Where they do
// not (what they call is saturated, or few keys have all the work) it holds the number, and looks again later.
type proof struct {
	members int
	since   time.Time     // of this number, or since when it is seen again
	last    time.Time     // sample
	could   float64       // messages a second, by what the members tell
	window  time.Duration // of a judgement
	from    sample        // where the measure begins; zero: not begun
	here    measure       // at this number
	before  measure       // at the number before

	hold    int
	untried bool // without a comparison
	until   time.Time
	held    float64 // what came out when it began
	patient time.Duration
	each    float64
}

// A measure is what came out a second at a number of members, while work waited.
type measure struct {
	members  int
	out      float64
	from, at time.Time // begin and end
}

// look takes the next sample.
func (p *proof) look(now sample, f Figures) {
	if f.Members != p.members {
		p.moved(now.at)
		p.members, p.since, p.from, p.here = f.Members, now.at, sample{}, measure{}
	}
	if now.at.Sub(p.last) > blindAfter {
		p.since, p.from = now.at, sample{}
	}
	p.last = now.at
	p.could, p.window = f.Each*float64(f.Members), max(judgeAfter, callsOver*f.Call)
	if p.hold > 0 && !now.at.Before(p.until) {
		p.hold, p.from = 0, sample{} // what is asked for now is tried before it is judged
	}
	if f.Members <= 0 || f.Each == 0 || f.Paused || f.Open || f.Limited || !waits(f) {
		p.from = sample{}
		return
	}
	if p.from.at.IsZero() {
		if now.at.Sub(p.since) >= settleFor {
			p.from = now
		}
		return
	}
	took := now.at.Sub(p.from.at)
	if took < max(settleFor, callsOver*f.Call) || p.could*took.Seconds() < fewest {
		return
	}
	p.here = measure{f.Members, float64(now.settled-p.from.settled) / took.Seconds(), p.from.at, now.at}
	if p.hold > 0 && p.here.out > recovered*p.held {
		p.release()
	}
	if took < p.window {
		return
	}
	p.judge(f)
	p.from = now
}

// moved keeps what was measured at a number that is left. Where it was left too soon for that, or nothing waited there, it is
// what the members could have done; of several numbers that were left soon after each other, only the first tells something.
func (p *proof) moved(now time.Time) {
	switch stayed := now.Sub(p.since); {
	case p.here.members > 0:
		p.before = p.here
	case p.members > 0 && p.could > 0 && (p.before.members == 0 || stayed >= settleFor+p.window):
		p.before = measure{p.members, p.could, now, now}
	}
}

// waits says whether work waits that the members would have done if they could: for 10 s and more of what comes out.
func waits(f Figures) bool { return f.Backlog > 0 && float64(f.Backlog) >= 10*f.Out }

// judge decides what the measures say.
func (p *proof) judge(f Figures) {
	gain, enough, ok := compare(p.here, p.before, staleAfter+p.window)
	busy := p.here.out >= busyEnough*p.could
	each := p.here.out / float64(p.here.members)
	switch {
	case ok && gain < ownShare:
		p.holdTo(enough, false)
	case ok && busy:
		p.release()
		p.each = 0
	case ok: // each is bound by itself, by a rate limit for example
		p.release()
		p.each = each
	case busy:
	case p.enough(f): // more work waits than there should be: what they could do is wrong, or shared. More of them will tell.
		p.each = each
	case p.here.members > 1 && p.here.out == 0: // none of them can do anything: fewer will do no better
		p.holdTo(p.here.members, true)
	case p.here.members > 1:
		p.holdTo(min(p.here.members, int(math.Ceil(p.here.out/f.Each))+1), true)
	}
}

// enough says whether the members should do, by what they could.
func (p *proof) enough(f Figures) bool {
	return f.In+float64(f.Backlog)/time.Minute.Seconds() <= (1-headroom)*p.could
}

// compare tells which part of its share a further process brings, and how many are enough for what comes out. ok is false where
// the two cannot tell: they are too close, or that before was over for longer than stale when the other began.
func compare(now, before measure, stale time.Duration) (gain float64, enough int, ok bool) {
	low, high := now, before
	if low.members > high.members {
		low, high = high, low
	}
	if low.members < 1 || now.from.Sub(before.at) > stale || float64(high.members) < apart*float64(low.members) {
		return 0, 0, false
	}
	if low.out <= 0 {
		return 0, now.members, high.out <= 0
	}
	gain = (high.out/low.out - 1) / (float64(high.members)/float64(low.members) - 1)
	enough = low.members + int(math.Ceil(float64(high.members-low.members)*max(0, gain)))
	return gain, enough, true
}

func (p *proof) holdTo(members int, untried bool) {
	if p.hold > 0 { // it lasts as long as it was to
		return
	}
	if p.patient = min(2*p.patient, longestHold); p.patient == 0 {
		p.patient = holdFor
	}
	p.hold, p.until, p.held, p.each = max(1, members), p.here.at.Add(p.patient), p.here.out, 0
	p.untried = untried
}

func (p *proof) release() { p.hold, p.patient = 0, 0 }

// holdAt is how many processes there should be at most; 0: no bound.
func (p *proof) holdAt(now time.Time) int {
	if p.hold > 0 && now.Before(p.until) {
		return p.hold
	}
	return 0
}
