package pool

import (
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Pressure is how much of the machine is in use. Zero: unknown.
type Pressure struct {
	// CPU is the share of the processors that the process may use (GOMAXPROCS) which is in use: 1 is all of them, with goroutines
	// that wait for one.
	CPU float64
	// Wait is how long a goroutine that could run waited for a processor on average since the last look.
	Wait time.Duration
	// Memory is the share in use of the memory limit (GOMEMLIMIT).
	Memory float64
}

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
		d = Decision{From: d.From, Target: target, Force: true, Reason: ReasonMemory, Detail: fmt.Sprintf("%.0f %% of the limit", 100*m), Next: d.Next, Observation: d.Observation}
	case g.full && d.Target > o.Workers:
		d = d.instead(o.Workers, ReasonMemory)
	case m > 0 && d.Target > o.Workers && float64(d.Target) > float64(o.Workers)*memoryFull/m:
		// As if the workers held all of it: then so many fill it.
		d = d.instead(max(o.Workers, int(float64(o.Workers)*memoryFull/m)), ReasonMemory)
	case o.Pressure.CPU >= busyCPU && d.Target > max(o.Workers, freeSize):
		d = d.instead(max(o.Workers, min(d.Target, freeSize)), ReasonCPU)
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

// RuntimeGauge is a Config.Gauge that reads this process: memory against GOMEMLIMIT (none set: not minded), and how the goroutines
// wait for processors. A pool whose handlers compute then stays near GOMAXPROCS workers. The function that it returns is for one
// manager.
func RuntimeGauge() func() Pressure {
	g := &runtimeGauge{samples: []metrics.Sample{
		{Name: "/sched/latencies:seconds"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}}
	return g.read
}

type runtimeGauge struct {
	samples []metrics.Sample
	counts  []uint64  // of the latency histogram at the last look
	looked  time.Time // at the histogram
	last    Pressure
}

// gaugeEvery spares the histogram at the manager's fastest pace.
const gaugeEvery = 20 * time.Millisecond

func (g *runtimeGauge) read() Pressure {
	if time.Since(g.looked) < gaugeEvery {
		return g.last
	}
	g.looked = time.Now()
	metrics.Read(g.samples)
	if h := g.samples[0].Value; h.Kind() == metrics.KindFloat64Histogram {
		g.last.Wait, g.last.CPU = g.waits(h.Float64Histogram())
	}
	g.last.Memory = memoryShare(g.samples[1].Value, g.samples[2].Value)
	return g.last
}

// longWait is beyond what a goroutine waits on a machine that has a processor free.
const longWait = time.Millisecond

// waits is the mean wait since the last look, and from the share of long ones how full the processors are.
func (g *runtimeGauge) waits(h *metrics.Float64Histogram) (mean time.Duration, cpu float64) {
	var n, long, sum float64
	for i, c := range h.Counts {
		if i < len(g.counts) {
			c -= g.counts[i]
		}
		at := h.Buckets[i+1]
		if math.IsInf(at, 1) {
			at = h.Buckets[i]
		}
		n, sum = n+float64(c), sum+float64(c)*at
		if at > longWait.Seconds() {
			long += float64(c)
		}
	}
	g.counts = append(g.counts[:0], h.Counts...)
	if n == 0 {
		return 0, 0
	}
	return seconds(sum / n), min(1, 2*long/n)
}

// memoryShare is what the runtime holds of its limit.
func memoryShare(total, released metrics.Value) float64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 || limit <= 0 || total.Kind() != metrics.KindUint64 || released.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(total.Uint64()-released.Uint64()) / float64(limit)
}
