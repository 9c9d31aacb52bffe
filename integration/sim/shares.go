package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// judgeShares looks whether all processes of a group together have more than the whole of the work. It runs while all else stands
// still: what one gives another is somebody's.
func (r *run) judgeShares() {
	for group, shares := range r.shares() {
		held, all, parts := 0, 0, 0.0
		for _, s := range shares {
			held, all, parts = held+s.Held, max(all, s.All), parts+s.Part()
		}
		// Who has not heard of partitions that were added has fewer in all. Where those of a topic are taken without a word, or it
		// was made anew, who is cut off has the old ones until its session ends.
		unheard := r.takesUnheard()
		// A server that starts again has forgotten whose turn it was, and who had it has yet to hear that.
		unheard = unheard || r.takesTurns() && r.book.troubledAt(nil, -1, time.Now().Add(-r.lease()), time.Now(), 0)
		if parts > 1.001 && (r.kind.Shared || held > all) && !unheard {
			r.book.find("the processes of group %s have more than the whole of the work: %+v", group, shares)
		}
	}
}

// shares are what the processes that are alive have of each group.
func (r *run) shares() map[string][]broker.Share {
	all := map[string][]broker.Share{}
	if !r.schedule.Settings.Share {
		return all
	}
	r.ownersMu.Lock()
	processes := slices.Clone(r.processes)
	r.ownersMu.Unlock()
	for _, p := range processes {
		if p.isDead() || p.hasEnded() {
			continue
		}
		for _, s := range p.spies {
			share, err := s.Source.(broker.Sharer).Share()
			if err != nil {
				r.book.find("%s does not know its share: %v", p.name, err)
			}
			all[s.group] = append(all[s.group], share)
		}
	}
	return all
}

// unshared lists the groups of whose work nobody has a part. Where processes take turns, nobody has one while there is no work.
func (r *run) unshared() (left []string) {
	if r.takesTurns() {
		return nil
	}
	for group, shares := range r.shares() {
		parts := 0.0
		for _, s := range shares {
			parts += s.Part()
		}
		if parts < 0.999 {
			left = append(left, fmt.Sprintf("of group %s some work is nobody's: %+v", group, shares))
		}
	}
	slices.Sort(left)
	return left
}

// takesUnheard says whether partitions were taken a moment ago from who may not have heard of it.
func (r *run) takesUnheard() bool {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	return time.Since(r.stolenAt) <= r.lease() || time.Since(r.renewedAt) <= r.lease()
}

// takesTurns says whether one process at a time has all of the work.
func (r *run) takesTurns() bool {
	return r.kind.Pins && r.schedule.Settings.Order != consumer.OrderNone
}
