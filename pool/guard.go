package pool

import (
	"fmt"
	"time"
)

// Shares of memory at which the manager acts.
const (
	memoryFull = 0.90                   // no more workers
	memoryOver = 0.95                   // fewer workers: a quarter each time ...
	memoryStep = 500 * time.Millisecond // ... but not again before a collection could show it, nor one more
	memoryCalm = 2 * time.Second        // below memoryFull for so long, before there may be more again
)

// guard keeps decisions within what memory and CPU allow, whatever the policy. It never goes under Min.
type guard struct {
	cutAt  time.Duration // when workers were last taken away for memory
	fullAt time.Duration // when memory was last full
	nextAt time.Duration // from when there may be one more, though memory tells of room for none
	acted  bool
	full   bool
}

// limit is d, or what is left of it. It is pure but for what guard remembers.
func (g *guard) limit(d Decision) Decision {
	o := &d.Observation
	m := o.Pressure.Memory
	if m >= memoryFull {
		g.full, g.fullAt = true, o.Now
	} else if o.Now-g.fullAt >= memoryCalm {
		g.full = false
	}
	switch {
	case m >= memoryOver && o.Workers > o.Min && (!g.acted || o.Now-g.cutAt >= memoryStep):
		g.acted, g.cutAt = true, o.Now
		target := min(d.Target, max(o.Min, o.Workers-max(1, o.Workers/4)))
		d = Decision{From: d.From, Target: target, Force: true, Reason: ReasonMemory,
			Detail: fmt.Sprintf("%.0f %% of the limit", 100*m), Next: d.Next, Observation: d.Observation}
	case g.full && d.Target > o.Workers:
		d = d.instead(o.Workers, ReasonMemory)
	case m > 0 && d.Target > o.Workers && float64(d.Target) > float64(o.Workers)*memoryFull/m:
		d = d.instead(g.fits(o), ReasonMemory)
	case o.Pressure.CPU >= busyCPU && d.Target > o.Workers:
		d = d.instead(o.Workers, ReasonCPU)
	}
	if g.full && d.Next == 0 {
		d.Next = memoryStep
	}
	return d
}

// fits is how many workers fill the memory, as if they held all that is in use. There may be one more now and then in any case:
// what the process holds without its workers grows by none of them, and few workers would stay few though memory is far from
// full.
func (g *guard) fits(o *Observation) int {
	n := int(float64(o.Workers) * memoryFull / o.Pressure.Memory)
	if n <= o.Workers && o.Now >= g.nextAt {
		g.nextAt = o.Now + memoryStep
		n = o.Workers + 1
	}
	return max(o.Workers, n)
}

// instead is d with another target, for a reason that comes before d's own.
func (d Decision) instead(target int, why Reason) Decision {
	d.Detail = fmt.Sprintf("not %d for %q", d.Target, d.Why())
	d.Target, d.Reason = target, why
	return d
}
