package replicas

import (
	"maps"
	"slices"
	"time"
)

const (
	// rateOver is how long rates are a mean of.
	rateOver = 15 * time.Second
	// workOver is how long the time of handlers is a mean of, and fewestRuns how many runs that takes.
	workOver   = time.Minute
	fewestRuns = 10
	// headroom is the part of a process that is left free.
	headroom = 0.2
)

// A Tracker turns readings into figures. Not safe for concurrent use.
type Tracker struct {
	samples []sample // of workOver, the oldest first
	parts   map[string]Part
	procs   map[string]Process
	now     sample
	last    Reading
	each    float64 // messages a second that a process can do; 0: unknown
	call    time.Duration
	outage  bool // a breaker was open: what processes did since their start is no measure
	proof   proof
}

// A sample is a reading with its counts added up; these never go back.
type sample struct {
	at               time.Time
	arrived, settled int64
	backlog, later   int64
	held             int64
	runs             int64
	work             time.Duration
}

// Add takes the next reading. Readings come in the order of their time.
func (t *Tracker) Add(r Reading) {
	if len(t.samples) > 0 && !r.At.After(t.now.at) {
		return
	}
	t.now.at, t.now.backlog, t.now.later, t.now.held = r.At, 0, 0, 0
	t.addParts(r.Parts)
	if r.Members != nil {
		t.addProcesses(r.Members.Told)
	}
	t.last = r
	t.samples = append(t.samples, t.now)
	t.forget(r.At.Add(-workOver))
	t.measure()
	t.proof.look(t.now, t.Figures())
}

// addParts adds what came and what was finished since the reading before. Of a part that counts anew, or that was not there
// before, nothing is taken for that: it only has its backlog. Of one that is held nothing can be done.
func (t *Tracker) addParts(parts []Part) {
	latest := make(map[string]Part, len(parts))
	for _, p := range parts {
		if was, known := t.parts[p.Name]; known && p.Arrived >= was.Arrived && !p.Held {
			came := p.Arrived - was.Arrived
			t.now.arrived += came
			t.now.settled += max(0, was.Backlog+came-p.Backlog)
		}
		latest[p.Name] = p
		switch {
		case p.Held:
			t.now.held += p.Backlog
		case p.Later:
			t.now.later += p.Backlog
		default:
			t.now.backlog += p.Backlog
		}
	}
	t.parts = latest
}

// addProcesses adds what processes did. One that begins to count anew was started again. One whose breaker is open does nothing
// but wait, and try.
func (t *Tracker) addProcesses(told []Process) {
	procs := make(map[string]Process, len(told))
	for _, p := range told {
		if was, known := t.procs[p.Name]; known && p.Runs >= was.Runs && p.Work >= was.Work && !p.Open && !was.Open {
			t.now.runs, t.now.work = t.now.runs+p.Runs-was.Runs, t.now.work+p.Work-was.Work
		}
		procs[p.Name] = p
	}
	t.procs = procs
	t.outage = t.outage || t.open()
}

// forget drops what is older than all means, but for one sample: where readings failed for a while, the mean is over that while.
func (t *Tracker) forget(before time.Time) {
	i := 0
	for i+2 < len(t.samples) && t.samples[i+1].at.Before(before) {
		i++
	}
	t.samples = slices.Delete(t.samples, 0, i)
}

// measure finds out what one process can do, by the last minute. What is told too little of stays as it was; as long as nothing
// was, what the processes did since their start will do.
func (t *Tracker) measure() {
	workers, runs, work := 0, int64(0), time.Duration(0)
	for p := range maps.Values(t.procs) {
		workers, runs, work = workers+p.Workers, runs+p.Runs, work+p.Work
	}
	if first := t.samples[0]; t.now.runs-first.runs >= fewestRuns {
		runs, work = t.now.runs-first.runs, t.now.work-first.work
	} else if t.each > 0 || t.outage {
		return
	}
	if workers > 0 && runs >= fewestRuns && work > 0 {
		t.each = float64(workers) / float64(len(t.procs)) * float64(runs) / work.Seconds()
		t.call = work / time.Duration(runs)
	}
}

// open says whether a breaker of a process is not closed.
func (t *Tracker) open() bool {
	for _, p := range t.procs {
		if p.Open {
			return true
		}
	}
	return false
}

// since is the newest sample that is at least so old, or the oldest.
func (t *Tracker) since(d time.Duration) sample {
	for i := len(t.samples) - 1; i > 0; i-- {
		if t.now.at.Sub(t.samples[i].at) >= d {
			return t.samples[i]
		}
	}
	return t.samples[0]
}

// Figures are those of now.
type Figures struct {
	At time.Time
	// Known: there are two readings, so there are rates.
	Known bool
	// In and Out are messages a second that came, and that were finished.
	In, Out float64
	// Backlog is to do; Later waits for its time in retry topics, and Held is what the broker hands out nothing of.
	Backlog, Later, Held int64
	// Missing and Most are as in the Reading.
	Missing bool
	Most    int
	// Members is how many processes there are; -1: unknown. Paused: one is.
	Members int
	Paused  bool
	// Without is how many of those asked do not have the consumer, and Silent why one that is there tells nothing.
	Without int
	Silent  string
	// Open: a circuit breaker of one is not closed. Limited: one waits for a limit that they share.
	Open, Limited bool
	// Each is how many messages a second one process can do, by what they tell of themselves, and Call how long a run takes; 0:
	// unknown.
	Each float64
	Call time.Duration
	// Hold is how many processes there should be at most, because more did not bring more; 0: no bound. Untried: there were no
	// more, and these do far less than they could.
	Hold    int
	Untried bool
	// Proved is what one process really does, where each brings its share and that is less than Each; 0: not known.
	Proved float64
}

// Figures returns what the readings say together.
func (t *Tracker) Figures() Figures {
	f := Figures{
		At: t.now.at, Backlog: t.now.backlog, Later: t.now.later, Held: t.now.held, Missing: t.last.Missing, Most: t.last.Most,
		Members: -1, Each: t.each, Call: t.call, Hold: t.proof.holdAt(t.now.at), Untried: t.proof.untried,
		Proved: t.proof.each,
	}
	if m := t.last.Members; m != nil {
		f.Members, f.Without, f.Silent, f.Open = m.There, m.Without, m.Silent, t.open()
		f.Paused = slices.ContainsFunc(m.Told, func(p Process) bool { return p.Paused })
		f.Limited = slices.ContainsFunc(m.Told, func(p Process) bool { return p.Limited })
	}
	if len(t.samples) > 1 {
		then := t.since(rateOver)
		seconds := t.now.at.Sub(then.at).Seconds()
		f.Known = true
		f.In = float64(t.now.arrived-then.arrived) / seconds
		f.Out = float64(t.now.settled-then.settled) / seconds
	}
	return f
}
