package kafkabroker

import (
	"maps"
	"slices"
)

// An ownership is which partitions a member of the classic protocol has, from one generation to the next. It decides; it has no
// lock and no I/O.
type ownership struct {
	cooperative bool

	owned    map[partitionID]bool // told as assigned and not released or lost
	draining map[partitionID]bool // of those: told as revoking
	target   map[partitionID]bool // what the group wants us to have
	gave     bool                 // something was given up since the last join
	owes     bool                 // something is to be given up, and we have not joined again since: the others wait for that
	rejoin   bool                 // the group is to be joined again
}

func newOwnership(cooperative bool) ownership {
	return ownership{cooperative: cooperative, owned: make(map[partitionID]bool), draining: make(map[partitionID]bool)}
}

// join returns what we have as we join.
func (a *ownership) join() []partitionID {
	a.rejoin, a.gave = false, false
	return sorted(a.owned)
}

// follow takes up a plan of the group. It returns what is ours now and was not, and what is to be given up.
func (a *ownership) follow(plan []partitionID) (add, drop []partitionID) {
	a.target = make(map[partitionID]bool)
	for _, p := range plan {
		a.target[p] = true
		if !a.owned[p] {
			a.owned[p] = true
			add = append(add, p)
		}
	}
	for _, p := range sorted(a.owned) {
		if !a.target[p] && !a.draining[p] {
			a.draining[p] = true
			drop = append(drop, p)
		}
	}
	a.owes = a.owes || len(a.draining) > 0
	return add, drop
}

// release gives up what is drained. It returns what the group wants us to have again by now. What nobody wants given up stays:
// Close releases what it had, and must not join again for it.
func (a *ownership) release(parts []partitionID) (again []partitionID) {
	for _, p := range parts {
		if !a.draining[p] {
			continue
		}
		delete(a.draining, p)
		if a.target[p] {
			again = append(again, p)
		} else {
			delete(a.owned, p)
			a.gave = true
		}
	}
	if a.gave && len(a.draining) == 0 && a.cooperative {
		a.rejoin, a.gave = true, false
	}
	return again
}

// lose returns all that we had. Where that was something it calls for a join, if none follows by itself. The sequence: we join,
// and say what we have; the plan keeps from the others what we are to give up first; we lose it before we hear the plan, and then
// have nothing to give up. Without another join it would be nobody's for good.
func (a *ownership) lose() []partitionID {
	parts := sorted(a.owned)
	a.rejoin = a.rejoin || len(parts) > 0
	clear(a.owned)
	clear(a.draining)
	a.target = nil
	return parts
}

func sorted(set map[partitionID]bool) []partitionID {
	return slices.SortedFunc(maps.Keys(set), comparePartitions)
}
