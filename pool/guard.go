package pool

import (
	"fmt"
	"time"
)

// Shares of memory at which the manager acts.
const (
	memoryFull = 0.90                   // no more workers
	memoryOver = 0.95                   // fewer workers: a quarter each time ...
	memoryStep = 500 * time.Millisecond // ... but not again before a collection could show it
	memoryCalm = 2 * time.Second        // below memoryFull for so long, before there may be more again
)

// guard keeps decisions within what memory and CPU allow, whatever the policy. It never goes under Min.
type guard struct {
	cutAt  time.Duration // when workers were last taken away for memory
	fullAt time.Duration // when memory was last full
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
		// As if the workers held all of it: then so many fill it.
		d = d.instead(max(o.Workers, int(float64(o.Workers)*memoryFull/m)), ReasonMemory)
	case o.Pressure.CPU >= busyCPU && d.Target > o.Workers:
		d = d.instead(o.Workers, ReasonCPU)
	}
	if g.full && d.Next == 0 {
		d.Next = memoryStep
	}
	return d
}

// instead is d with another target, for a reason that comes before d's own.
func (d Decision) instead(target int, why Reason) Decision {
	d.Detail = fmt.Sprintf("not %d for %q", d.Target, d.Why())
	d.Target, d.Reason = target, why
	return d
}
