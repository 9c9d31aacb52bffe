package pool

import (
	"math"
	"time"
)

// Memories of the estimates.
const (
	tick        = 5 * time.Millisecond  // the shortest time between two estimates
	rateMemory  = 50 * time.Millisecond // of arrivals and handler time
	quickMemory = 15 * time.Millisecond // of a rise in arrivals, and of what the running handlers prove
	keepDone    = 64.0                  // completions that stay remembered, however old
)

// estimate turns totals into Rates.
type estimate struct {
	prev                Observation
	served              int64   // the most so far
	work, done, squares float64 // decaying sums: handler time, completions, squares of handler times
	rise, was           float64 // arrivals per second (quickMemory), and at the look before
	fresh, out          float64 // decaying sums (quickMemory): busy time also of the running, completions
	r                   Rates
}

// update takes the next Observation and returns the estimates as of then.
func (e *estimate) update(o *Observation) Rates {
	dt := (o.Now - e.prev.Now).Seconds()
	if o.Now-e.prev.Now < tick/2 {
		return e.r
	}
	n, in := float64(max(0, o.served()-e.served)), float64(o.In-e.prev.In)/dt
	e.served = max(e.served, o.served()) // a Do may call Refused for what it reported before: that never counts twice, or backwards
	work := (o.Work - e.prev.Work).Seconds()
	busy := max(0, work+(o.Age-e.prev.Age).Seconds()) // the integral of busy workers
	e.r.Arrivals += weight(dt, rateMemory) * (in - e.r.Arrivals)
	e.rise += weight(dt, quickMemory) * (in - e.rise)
	both := min(e.rise, e.was) // what comes in bunches shows at one look and not at the next
	e.was = e.rise
	e.r.Rising = max(e.r.Arrivals, both-math.Sqrt(max(0, both)/(2*quickMemory.Seconds())))
	e.r.Throughput += weight(dt, rateMemory) * (n/dt - e.r.Throughput)

	keep := math.Exp(-min(dt/rateMemory.Seconds(), n/keepDone)) // old ones go only as new ones come
	e.work, e.done, e.squares = e.work*keep+work, e.done*keep+n, e.squares*keep+o.Squares-e.prev.Squares
	fade := 1 - weight(dt, quickMemory)
	e.fresh, e.out = e.fresh*fade+busy, e.out*fade+n
	if e.r.Samples = e.done; e.done > 1e-6 {
		e.r.Handler = seconds(e.work / e.done)
	}
	if e.work > 0 {
		e.r.Usual = max(e.r.Handler, seconds(e.squares/e.work)) // the mean weighted with itself
	}
	e.r.Proven = max(e.r.Handler, e.runs(o))
	e.prev = *o
	return e.r
}

// runs is the handler time that the running handlers prove. Between two batches of equal handlers busy time per completion is
// too large, but then no handler is that old; with heavy tails one is old, but then the ratio is right: so the smaller of both.
func (e *estimate) runs(o *Observation) time.Duration {
	return min(o.Oldest, seconds(e.fresh/(e.out+sure*o.each())))
}

// weight is the share of the newest dt seconds in an exponential mean.
func weight(dt float64, memory time.Duration) float64 { return 1 - math.Exp(-dt/memory.Seconds()) }

func seconds(x float64) time.Duration { return time.Duration(min(x, 1e6) * 1e9) }
