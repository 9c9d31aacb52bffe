package consumer

import (
	"errors"
	"math"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Verdict is what becomes of a message after its handler returned.
type Verdict int

const (
	// VerdictAck: it is done.
	VerdictAck Verdict = iota
	// VerdictRetry: it is tried again after a delay.
	VerdictRetry
	// VerdictDeadLetter: it goes to the dead letters.
	VerdictDeadLetter
	// VerdictGiveBack: it goes back to the broker, uncounted: its handler was cancelled.
	VerdictGiveBack
	// VerdictDefer: it waits here and is handled again, uncounted: its handler put it off, or one before it in its batch and order
	// failed.
	VerdictDefer
)

var verdictNames = [...]string{"ack", "retry", "dead_letter", "give_back", "defer"}

// String returns the verdict's name in lower case, as it appears in logs.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return "unknown"
	}
	return verdictNames[v]
}

// outcome is what is known when a handler has returned an error, or was never called.
type outcome struct {
	err       error
	runs      int32 // failed runs known before this one: Message.Runs
	refused   int32 // of these, runs that are known to have been refused (Overloaded)
	attempt   int32 // the broker's count, this run included: Message.Attempt
	trust     broker.Trust
	cancelled bool          // the claim ended or the consumer shuts down: its context was ended before it returned
	letters   bool          // there is a place for dead letters
	maxDeliv  int           // the broker drops the message after so many deliveries; 0: never
	crowded   bool          // too many wait behind it, and it shall make room
	failing   time.Duration // for how long it has been failing: since its first failure, as far as is known here
	together  bool          // it ran in a batch with others, and it may be the fault of one of them
	random    float64       // 0..1, for the jitter
}

// decision is what to do about it.
type decision struct {
	verdict   Verdict
	class     string
	runs      int32 // failed runs, this one included
	delay     time.Duration
	exhausted bool
	keep      bool // retry here: another delivery would be one too many for the broker, or hide that it was refused
}

// generous: where the broker's count is only an upper bound, a message whose count has passed this many times MaxAttempts is
// given up although fewer failed runs are known: they were in other processes.
const generous = 3

// refusals is how often a message is refused before it is given up for that, if that is more than MaxAttempts: with the default
// backoff for three quarters of an hour. A limit that bears fewer calls than there are messages refuses most of them for no fault
// of theirs: by MaxAttempts a backlog became dead letters, more of it than was handled.
const refusals = 100

// decide says what becomes of a message whose handler failed. It has no clock and no I/O.
func decide(o outcome, p Retry) decision {
	if IsSkip(o.err) {
		return decision{verdict: VerdictAck}
	}
	if o.cancelled {
		return decision{verdict: VerdictGiveBack, runs: o.runs}
	}
	d := decision{class: classOf(o.err), runs: o.runs + 1}
	if noRun(d.class) {
		d.runs = o.runs
	}
	attempts, overloaded, after := p.MaxAttempts, IsOverloaded(o.err), said[*retryAfterError](o.err)
	d.delay = p.Backoff.delay(d.runs, o.random)
	if overloaded {
		attempts = max(attempts, refusals)
	}
	switch told := after != nil; {
	case told && overloaded: // those that are refused together are told the same, and would be together again
		b := p.Backoff
		b.Initial, b.Max = after.after, max(b.Max, after.after)
		d.delay = b.delay(d.runs, -o.random)
	case told:
		d.delay = after.after
	}
	used, late := exhausted(o, d.runs, attempts), p.GiveUpAfter > 0 && d.delay > p.GiveUpAfter-o.failing
	d.exhausted = used || late
	final := d.class == classPermanent || d.class == classDecode || d.class == classOversize || d.class == classCrash
	last := o.maxDeliv > 0 && int(o.attempt) >= o.maxDeliv
	if late && o.together && o.letters && after == nil && !used && !final && !last && !o.crowded {
		// Its last run, when the time is over: a batch of its own then (lastRun).
		d.exhausted, d.verdict, d.delay = false, VerdictRetry, max(0, p.GiveUpAfter-o.failing)
		return d
	}
	switch {
	case o.letters && (final || d.exhausted || last || o.crowded):
		d.verdict, d.delay = VerdictDeadLetter, 0
		return d
	case final || d.exhausted:
		d.exhausted, d.verdict = true, VerdictRetry
		if after == nil {
			d.delay = p.Backoff.delay(math.MaxInt32, o.random)
		}
	default:
		d.verdict = VerdictRetry
	}
	d.keep = last
	return d
}

// exhausted says whether the attempts are used up. It takes a failed run in this process (the caller's), and then what is known
// for sure; an upper bound counts only when it is far beyond, for deliveries that no handler saw are in it. What was refused
// stays with others (batches.lastRun), and is not given up with them for what may be the fault of one.
func exhausted(o outcome, runs int32, maxAttempts int) bool {
	if o.together && !IsOverloaded(o.err) {
		runs, o.attempt = runs-o.refused, o.attempt-o.refused
	}
	if int(runs) >= maxAttempts {
		return true
	}
	if o.trust == broker.AtMost {
		return int(o.attempt/generous) >= maxAttempts // the product may be more than there is
	}
	return int(o.attempt) >= maxAttempts
}

// lastRun says whether a message that was tried before is given up if this run fails as well, as far as its attempts decide, or
// since its time is over.
func lastRun(o outcome, p Retry) bool {
	again := o.runs > 0 || o.attempt > 1
	return o.letters && again && (exhausted(o, o.runs+1, p.MaxAttempts) || o.maxDeliv > 0 && int(o.attempt) >= o.maxDeliv ||
		p.GiveUpAfter > 0 && o.failing >= p.GiveUpAfter)
}

// The classes of failures: stable words for logs, metrics and dead letters.
const (
	classError     = "error"
	classPermanent = "permanent"
	classDecode    = "decode"
	classOversize  = "oversize"
	classTimeout   = "timeout"
	classPanic     = "panic"
	classGoexit    = "goexit"
	classCrash     = "crash"
)

// FailureClasses are the classes that a failure may have in logs, metrics and dead letters.
func FailureClasses() []string {
	return []string{classError, classPermanent, classDecode, classOversize, classTimeout, classPanic, classGoexit, classCrash}
}

// noRun says whether a failure of that class is of a message that no handler has seen.
func noRun(class string) bool { return class == classOversize || class == classCrash }

func classOf(err error) string {
	var panicked *PanicError
	switch {
	case errors.Is(err, ErrTooLarge):
		return classOversize
	case errors.Is(err, ErrCrashes):
		return classCrash
	case said[*undecodableError](err) != nil:
		return classDecode
	case said[*permanentError](err) != nil:
		return classPermanent
	case errors.As(err, &panicked):
		return classPanic
	case errors.Is(err, ErrGoexit):
		return classGoexit
	case errors.Is(err, ErrTimeout):
		return classTimeout
	}
	return classError
}

// delay is the wait after the n-th failed run (1 at first): exponential, capped, with a random share taken off.
func (b Backoff) delay(n int32, random float64) time.Duration {
	d := float64(b.Initial) * math.Pow(b.Factor, float64(max(0, n-1)))
	if d > float64(b.Max) || math.IsNaN(d) {
		d = float64(b.Max)
	}
	return time.Duration(min(d*(1-b.Jitter*random), math.MaxInt64/2))
}
