package pool

import "time"

// A Policy decides how many workers there should be.
//
// Step is called by one goroutine, with no lock held, and is pure but for the state that it keeps inside: no clock, no I/O, no
// goroutine. A Policy serves one pool.
type Policy interface {
	Step(Observation) Decision
}

// An Observation is what the manager sees of its pool. Totals count from the pool's start. In, Done, Backlog and InHand are
// messages (see Config.Count), the others workers.
type Observation struct {
	// Now is the time since the pool's start.
	Now time.Duration

	// In is what was submitted or expected so far; what was requeued is not in it.
	In int64
	// Done is what was handled so far, Work the handler time of that, and Squares the sum of the squares of its parts, in seconds².
	Done    int64
	Work    time.Duration
	Squares float64
	// Backlog is what waits: in the queue, or with submitters that are blocked.
	Backlog int
	// Waiting is what waits where the pool's work comes from and was not taken yet (see Config.Waiting); negative: unknown. It asks
	// for workers only where Backlog lasts until the next Observation: else the source brings no more than is handled already.
	Waiting int64
	// Refused is how much of Done the handlers said a full downstream to have refused (see Worker.Refused).
	Refused int64
	// Expected is what was announced by Expect and not requeued yet: it waits for what is in the queue or in hand, and not for a
	// worker.
	Expected int
	// InHand is what the workers hold, started or not.
	InHand int
	// Full: since the last Observation the queue was full for a submitter, or nearly. What arrives is then more than In tells.
	Full bool
	// Fill is the part of the queue's bound in use, the fullest class counting.
	Fill float64

	// Workers is the size as last decided: those that are to go when they finish are not in it.
	Workers int
	// Busy is how many of them have a T in hand, for Age together, the longest for Oldest.
	Busy        int
	Age, Oldest time.Duration
	// Idle is how many have none. IdleLong of them have reported an idle timeout and asked to retire, LongestIdle is the longest.
	Idle, IdleLong int
	LongestIdle    time.Duration
	// Reports is how many idle timeouts were reported so far.
	Reports int64
	// IdleTimeout is Config.IdleTimeout.
	IdleTimeout time.Duration
	// Min and Max are the limits as last set.
	Min, Max int

	// Pressure is what Config.Gauge said: zero where it is not known.
	Pressure Pressure
	// Rates are the manager's estimates.
	Rates Rates
}

// Rates are the manager's estimates. Zero means that nothing is known yet. What a downstream refused counts as no completion.
type Rates struct {
	// Arrivals per second, and Throughput: completions per second.
	Arrivals, Throughput float64
	// Rising is Arrivals, or what the last milliseconds show to be more, at two looks and by one standard error at least.
	Rising float64
	// Handler is the mean time that a message took of late.
	Handler time.Duration
	// Usual is the mean time that a handler takes that one meets running: longer than Handler where times scatter, for long ones
	// are met more often.
	Usual time.Duration
	// Proven is Handler, or what the running handlers prove already, if that is more: a slowdown shows before anything ends.
	Proven time.Duration
	// Samples is how many completions are behind Handler.
	Samples float64
}

// A Decision is how many workers there should be from now on, and why.
type Decision struct {
	// At is when it was taken, and From the size before: the manager sets both.
	At   time.Time
	From int
	// Target is the size wanted; the manager keeps it within Min and Max.
	Target int
	// Force retires busy workers too, as they finish; else only idle ones go.
	Force bool
	// Reason says why, and Detail more of it, perhaps with figures; Detail may be empty.
	Reason Reason
	Detail string
	// Next is when Step wants to be called again though nothing happened. 0: only when a worker reports an idle timeout, work
	// waits with no worker idle, or the limits change. Where Min is Max and there is nothing to decide, it is later than that, up
	// to 50 ms.
	Next time.Duration
	// Observation is what the decision is based on.
	Observation Observation
}

// Why is the reason's text, with the detail where there is one.
func (d Decision) Why() string {
	if d.Detail == "" {
		return d.Reason.Text()
	}
	return d.Reason.Text() + ": " + d.Detail
}

// starving: work waits and no worker is free for it.
func (o *Observation) starving() bool { return o.Idle == 0 && o.Backlog > 0 }

// served is what was handled and not refused.
func (o *Observation) served() int64 { return o.Done - o.Refused }

// waiting is what waits for workers, here and at the source. Where that here is gone before the next look, the source is what
// bounds the throughput: more workers would bring no more of it.
func (o *Observation) waiting() int64 {
	here := int64(o.Backlog) + int64(o.Expected)
	if o.Rates.Proven > 0 && o.takes(here) < tick {
		return here
	}
	return here + max(0, o.Waiting)
}

// delay is how long the workers as they are need for that.
func (o *Observation) delay() time.Duration { return o.takes(o.waiting()) }

// takes is how long the workers as they are need for n messages.
func (o *Observation) takes(n int64) time.Duration {
	return seconds(float64(n) * o.Rates.Proven.Seconds() / float64(max(1, o.Workers)))
}

// each is how many messages a worker has in hand.
func (o *Observation) each() float64 { return max(1, float64(o.InHand)/float64(max(1, o.Busy))) }

// stay is the decision to change nothing.
func (o *Observation) stay(reason Reason, detail string, next time.Duration) Decision {
	return Decision{Target: o.Workers, Reason: reason, Detail: detail, Next: next}
}

// Fixed keeps Max workers.
func Fixed() Policy { return fixed{} }

type fixed struct{}

func (fixed) Step(o Observation) Decision {
	return Decision{Target: o.Max, Force: true, Reason: ReasonLimit, Detail: "fixed"}
}
