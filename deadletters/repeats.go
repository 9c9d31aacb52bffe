package deadletters

import "maps"

// Repeats are replays with Again that did not get to their end, and those that went on with them, by their runs: what they have
// replayed is not replayed again. Those of named letters are for themselves: somebody stops the replay of all, has one letter
// replayed again, and goes on with all.
type repeats map[string]repeat

// A repeat is a replay with Again.
type repeat struct {
	named bool // its letters were
	ended bool // and only one of all goes on with it
}

// leaveOut says whether a replay with Again leaves out what a run has replayed.
func (rs repeats) leaveOut(run string, named bool) bool {
	r, there := rs[run]
	return there && (!named || r.named && !r.ended)
}

// end is that of a replay with Again: it has gone on with all that it left out. What was named meanwhile is done for one of all
// that was stopped.
func (rs repeats) end(named bool) {
	if !named {
		clear(rs)
		return
	}
	stopped := false
	for _, r := range rs {
		stopped = stopped || !r.named
	}
	maps.DeleteFunc(rs, func(_ string, r repeat) bool { return r.named && !stopped })
	for run, r := range rs {
		r.ended = r.named
		rs[run] = r
	}
}
