package pool

import (
	"math"
	"time"
)

// Memories of the estimates.
const (
	tick        = 5 * time.Millisecond   // the shortest time between two estimates
	rateMemory  = 50 * time.Millisecond  // of arrivals and handler time
	riseMemory  = 15 * time.Millisecond  // of a rise in arrivals
	proofMemory = 20 * time.Millisecond  // of what the running handlers prove
	loadMemory  = 250 * time.Millisecond // of busy workers
	shortMemory = 10 * time.Second       // of the shortest handler time
	keepDone    = 64.0                   // completions that stay remembered, however old
	doubt       = 3.0                    // T's that must be missing to prove slower handlers
)

// Rates are the manager's estimates. Zero means that nothing is known yet.
type Rates struct {
	// Arrivals per second, and Throughput: completions per second.
	Arrivals, Throughput float64
	// Rising is Arrivals, or what the last milliseconds show to be more, by one standard error at least.
	Rising float64
	// Handler is the mean time that a message took of late.
	Handler time.Duration
	// Proven is Handler, or what the running handlers prove already, if that is more: a slowdown shows before anything ends.
	Proven time.Duration
	// Exposure is busy time per completion, of the running handlers too: the estimate for lifetimes cut short by the observation.
	// Unlike Handler it does not favour the short ones just after a start.
	Exposure time.Duration
	// Shortest is the least that Handler was in the last 10 to 20 s: the handler time without a crowd.
	Shortest time.Duration
	// Samples is how many completions are behind Handler.
	Samples float64
	// Scatter is the squared coefficient of variation of handler times; 1 while unknown.
	Scatter float64
	// Load is the mean number of busy workers.
	Load float64
}

// estimate turns totals into Rates.
type estimate struct {
	primed         bool
	prev           Observation
	work, done     float64          // decaying sums: handler time, completions
	squares, spent float64          // the same: squares of handler times, busy time also of the running
	rise           float64          // arrivals per second (riseMemory)
	shortest       [2]time.Duration // least Handler in this window and in the one before
	since          time.Duration    // start of this window
	fresh, out     float64          // decaying sums (proofMemory): busy time also of the running, completions
	r              Rates
}

// update takes the next Observation and returns the estimates as of then.
func (e *estimate) update(o *Observation) Rates {
	if !e.primed {
		e.primed, e.prev = true, *o
	}
	dt := (o.Now - e.prev.Now).Seconds()
	if o.Now-e.prev.Now < tick/2 {
		return e.r
	}
	n := float64(o.Done - e.prev.Done)
	work := (o.Work - e.prev.Work).Seconds()
	busy := max(0, work+(o.Age-e.prev.Age).Seconds()) // the integral of busy workers
	e.r.Arrivals += weight(dt, rateMemory) * (float64(o.In-e.prev.In)/dt - e.r.Arrivals)
	e.rise += weight(dt, riseMemory) * (float64(o.In-e.prev.In)/dt - e.rise)
	e.r.Rising = max(e.r.Arrivals, e.rise-math.Sqrt(max(0, e.rise)/(2*riseMemory.Seconds())))
	e.r.Throughput += weight(dt, rateMemory) * (n/dt - e.r.Throughput)
	e.r.Load += weight(dt, loadMemory) * (busy/dt - e.r.Load)

	keep := math.Exp(-min(dt/rateMemory.Seconds(), n/keepDone)) // old ones go only as new ones come
	e.work, e.done = e.work*keep+work, e.done*keep+n
	e.squares, e.spent = e.squares*keep+o.Squares-e.prev.Squares, e.spent*keep+busy
	fade := 1 - weight(dt, proofMemory)
	e.fresh, e.out = e.fresh*fade+busy, e.out*fade+n
	if e.done > 1e-6 {
		e.r.Handler, e.r.Exposure = seconds(e.work/e.done), seconds(max(e.work, e.spent)/e.done)
	}
	e.r.Samples, e.r.Scatter, e.r.Shortest = e.done, e.scatter(), e.least(o.Now)
	e.r.Proven = max(e.r.Handler, e.proof(o))
	e.prev = *o
	return e.r
}

// least keeps Shortest over two windows, of which the older is forgotten.
func (e *estimate) least(now time.Duration) time.Duration {
	if now-e.since > shortMemory {
		e.since, e.shortest = now, [2]time.Duration{0, e.shortest[0]}
	}
	if h := e.r.Handler; e.done >= enough && (e.shortest[0] == 0 || h < e.shortest[0]) {
		e.shortest[0] = h
	}
	if e.shortest[0] == 0 || e.shortest[1] > 0 && e.shortest[1] < e.shortest[0] {
		return e.shortest[1]
	}
	return e.shortest[0]
}

// proof is the handler time that the running handlers prove. Between two batches of equal handlers busy time per completion is too
// large, but then no handler is that old; with heavy tails one is old, but then the ratio is right: so the smaller of both.
func (e *estimate) proof(o *Observation) time.Duration {
	each := 1.0 // messages in a worker's hand
	if o.Busy > 0 {
		each = max(1, float64(o.InHand)/float64(o.Busy))
	}
	return min(o.Oldest, seconds(e.fresh/(e.out+doubt*each)))
}

func (e *estimate) scatter() float64 {
	if e.squares <= 0 || e.work <= 0 {
		return 1
	}
	return max(0, e.squares*e.done/(e.work*e.work)-1)
}

// weight is the share of the newest dt seconds in an exponential mean.
func weight(dt float64, memory time.Duration) float64 { return 1 - math.Exp(-dt/memory.Seconds()) }

func seconds(x float64) time.Duration { return time.Duration(min(x, 1e6) * 1e9) }
