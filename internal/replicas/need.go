package replicas

import (
	"fmt"
	"math"
	"time"
)

// Settings say what is asked for.
type Settings struct {
	// PerReplica is how many messages a second one process does with all of its workers, where the processes did not tell. 0:
	// unknown.
	PerReplica float64
	// Drain is in which time a backlog is to be done.
	Drain time.Duration
}

// An Answer is how many processes a consumer needs.
type Answer struct {
	// Replicas has a fraction: an autoscaler rounds up.
	Replicas float64
	// Active: there is work for one process at least.
	Active bool
	// Reason is one of few stable words, Why a sentence.
	Reason Reason
	Why    string
}

// Whole is the number of processes: Replicas rounded up, and 1 at least where there is work.
func (a Answer) Whole() int {
	n := int(math.Ceil(a.Replicas - 1e-9))
	if a.Active {
		n = max(1, n)
	}
	return n
}

// A Reason is the rule that gave an answer.
type Reason string

// The reasons.
const (
	Idle       Reason = "idle"       // nothing waits, and nothing comes
	Load       Reason = "load"       // arrivals and backlog ask for it
	Bound      Reason = "bound"      // they ask for more than can have work at a time
	Hold       Reason = "hold"       // they ask for more than helps
	Missing    Reason = "missing"    // the durable is not there yet
	Paused     Reason = "paused"     // by an operator, or at the broker: the number stays
	Open       Reason = "open"       // a circuit breaker is: the number goes up no further
	Limit      Reason = "limit"      // that processes share is used up: the number goes up no further
	Unmeasured Reason = "unmeasured" // nobody has told what one process does: the number stays
)

// mostReplicas is how many an autoscaler can have. What one process does may be said by mistake as next to nothing.
const mostReplicas = math.MaxInt32

// stillActive is how few messages a second are none.
const stillActive = 0.01

// idle: nothing is there to be done, and nothing comes.
func (f Figures) idle() bool { return f.Backlog == 0 && f.Later == 0 && f.In <= stillActive }

// Need answers. f has to be Known, unless it is Missing.
func Need(f Figures, s Settings) Answer {
	there := max(1, f.Members)
	switch {
	case f.Missing && there > 1: // of one source, or somebody has deleted it: the others may have work for all of them
		return Answer{float64(there), true, Missing, fmt.Sprintf("a durable is not there: a process makes it, and the number stays at "+
			"%d", there)}
	case f.Missing:
		return Answer{1, true, Missing, "the durable is not there: the first process makes it"}
	case f.idle() && f.Held > 0 && f.Members == 0:
		return Answer{Reason: Paused, Why: fmt.Sprintf("%d wait, and the durable is paused at the broker: no process could do any",
			f.Held)}
	case f.idle() && f.Held > 0:
		return Answer{float64(there), true, Paused, fmt.Sprintf("%d wait, and the durable is paused at the broker: the number stays "+
			"at %d", f.Held, there)}
	case f.idle():
		return Answer{Reason: Idle, Why: "nothing waits, and nothing comes"}
	case f.Paused:
		return Answer{float64(there), true, Paused, fmt.Sprintf("a process was paused: the number stays at %d", there)}
	}
	each := f.Each
	if each == 0 {
		each = s.PerReplica
	}
	if each == 0 {
		return Answer{float64(there), true, Unmeasured, fmt.Sprintf("nobody has told yet what one process does%s: the number stays "+
			"at %d", f.whyUntold(), there)}
	}
	if f.Proved > 0 {
		each = min(each, f.Proved)
	}
	each *= 1 - headroom
	asked := min(mostReplicas, (f.In+float64(f.Backlog)/s.Drain.Seconds())/each)
	a := Answer{asked, true, Load, fmt.Sprintf("%.4g/s come, %d wait, one process is to do %.4g/s", f.In, f.Backlog, each)}
	if asked == 0 { // an autoscaler that is told 0 takes the last process away, and nobody is there when their time has come
		a.Replicas = 1
		a.Why = fmt.Sprintf("%d wait in retry topics, which keeps one process there", f.Later)
	}
	if f.Most > 0 && a.Replicas > float64(f.Most) {
		a.Replicas, a.Reason = float64(f.Most), Bound
		a.Why += fmt.Sprintf("; that asks for %.3g, and no more than %d can have work at a time", asked, f.Most)
	}
	if f.Hold > 0 && a.Replicas > float64(f.Hold) {
		a.Replicas, a.Reason = float64(f.Hold), Hold
		a.Why += fmt.Sprintf("; that asks for %.3g, and %s", asked, f.whyHold())
	}
	stay := func(reason Reason, why string) {
		if a.Replicas > float64(there) {
			a.Replicas, a.Reason = float64(there), reason
			a.Why += fmt.Sprintf("; that asks for %.3g, and %s; the number stays at %d", asked, why, there)
		}
	}
	if f.Open {
		stay(Open, "a circuit breaker is open: more would only wait, too")
	}
	if f.Limited {
		stay(Limit, "a limit that processes share is used up: more would have parts of the same")
	}
	return a
}

// whyUntold names a reason that time may not mend.
func (f Figures) whyUntold() string {
	if f.Silent != "" {
		return fmt.Sprintf(" (%s)", f.Silent)
	}
	if f.Members != 0 || f.Without == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of the addresses asked answer 404: no admin address, or none with a consumer of this name)", f.Without)
}

// whyHold says why more than Hold are not asked for.
func (f Figures) whyHold() string {
	if f.Untried {
		return fmt.Sprintf("those there do far less than they could: no more than %d are needed for that", f.Hold)
	}
	return fmt.Sprintf("more than %d brought no more", f.Hold)
}
