package pool

// Reason is why a Decision is what it is. A Policy of one's own may have others than these.
type Reason string

// The reasons of this package's policies and of the manager.
const (
	// ReasonGrow: work waits and nothing tells yet how many workers it needs, or more are tried where more may bring something.
	ReasonGrow Reason = "grow"
	// ReasonStaff: arrivals × handler time, Little's law.
	ReasonStaff Reason = "staff"
	// ReasonUndo: the last change of size did not bring what it should, or did harm, and is taken back.
	ReasonUndo Reason = "undo"
	// ReasonHold: more workers are not known to bring more; fewer are tried, or what there is stays until that is measured.
	ReasonHold Reason = "hold"
	// ReasonIdle: workers that were idle for their whole timeout go.
	ReasonIdle Reason = "idle"
	// ReasonLimit: Min or Max, or a downstream that says that it is full.
	ReasonLimit Reason = "limit"
	// ReasonMemory: the memory limit is near.
	ReasonMemory Reason = "memory"
	// ReasonCPU: the processors are in use.
	ReasonCPU Reason = "cpu"
	// ReasonStuck: nothing finishes.
	ReasonStuck Reason = "stuck"
)

// Reasons are all that this package gives.
func Reasons() []Reason {
	return []Reason{ReasonGrow, ReasonStaff, ReasonUndo, ReasonHold, ReasonIdle, ReasonLimit, ReasonMemory, ReasonCPU, ReasonStuck}
}

var reasonTexts = map[Reason]string{
	ReasonGrow:   "work waits",
	ReasonStaff:  "arrivals × handler time",
	ReasonUndo:   "the last change did not pay",
	ReasonHold:   "more is not known to bring more",
	ReasonIdle:   "idle all along",
	ReasonLimit:  "at a limit",
	ReasonMemory: "memory is short",
	ReasonCPU:    "processors are full",
	ReasonStuck:  "nothing finishes",
}

// Text says it in a few words; of a reason that this package does not have, the reason itself.
func (r Reason) Text() string {
	if text := reasonTexts[r]; text != "" {
		return text
	}
	return string(r)
}
