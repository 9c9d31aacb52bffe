package pool

import "time"

// Stats is a look at a pool. Messages are counted as by Config.Count.
type Stats struct {
	// In is the messages submitted so far, Done those handled, Work the handler time of these, but for what abandoned workers did
	// not report before they were.
	In, Done int64
	Work     time.Duration
	// Backlog is the messages that wait, with blocked submitters too; Queued the T's in the queue; Blocked the submitters.
	Backlog, Queued, Blocked int
	// Expected is the messages that Expect announced and that were not requeued yet. They are in In, and not in Backlog.
	Expected int
	// InHand is the messages that workers have.
	InHand int
	// Live is the workers: Busy with a T in hand, Idle on the stack, or just started. Stuck ones are abandoned and not in it.
	Live, Busy, Idle, Stuck int
	// Min and Max are the limits as last set.
	Min, Max int
	// Reports is the idle timeouts that workers reported, Panics and Goexits what Do did not return from.
	Reports, Panics, Goexits int64
	// Decisions is how often the size was changed, Last the latest of these.
	Decisions int64
	Last      Decision
	// Rates are the manager's estimates as of its last step.
	Rates Rates
}

// Stats takes a look. It costs a lock held for some tens of nanoseconds.
func (p *Pool[T]) Stats() Stats { return p.floor.stats() }

// InHand returns the T's that workers with a slot have in hand, the one that was begun first at the front. Do may not have begun
// with one yet, or have returned already: the worker itself tells the pool, when it gets a processor.
func (p *Pool[T]) InHand() []T { return p.floor.inHand() }

// Load is what a submitter may want to know in each of its rounds.
type Load struct {
	// Queued is the T's in the queue, PerSecond how many are taken from it at the pace of the last moments.
	Queued    int
	PerSecond float64
	// Backlog is the messages that wait, with blocked submitters too.
	Backlog int
	// Live is the workers, of Max.
	Live, Max int
}

// Load costs a lock held for some nanoseconds.
func (p *Pool[T]) Load() Load { return p.floor.load() }
