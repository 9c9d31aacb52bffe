package sim

import (
	"fmt"
	"slices"
)

// unfinished lists what keeps the run from being over, in words.
func (r *run) unfinished() (left []string, err error) {
	kept, err := r.keptLetters()
	if err != nil {
		return nil, err
	}
	if open := slices.DeleteFunc(r.book.open(kept), r.isMistaken); len(open) > 0 {
		left = append(left, fmt.Sprintf("%d messages are neither handled nor dead-lettered, as m%d", len(open), open[0]))
	}
	if n := r.untold(); n > 0 {
		left = append(left, fmt.Sprintf("%d messages were dropped before anybody was given them, and nobody tells a gap of them", n))
	}
	n, where, err := r.world.Unsettled()
	if err != nil {
		return nil, fmt.Errorf("asking the broker what is not settled: %w", err)
	}
	if n != 0 {
		left = append(left, fmt.Sprintf("the broker has %d messages that are not settled: %s", n, where))
	}
	for _, p := range r.processes {
		if p.stopped.IsZero() {
			left = append(left, p.holds()...)
		}
	}
	return append(left, r.unshared()...), nil
}

// holds lists what a process has that it should not have when all is settled.
func (p *process) holds() (left []string) {
	s := p.c.Stats()
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"in flight", s.InFlight}, {"parked", int64(s.Parked)}, {"lanes", int64(s.Lanes)}, {"waiting in lanes", int64(s.Waiting)},
		{"waiting for a worker", int64(s.Pool.Backlog)}, {"lag", max(0, s.Lag.Unsettled)}, {"stuck", int64(s.Stuck)},
	} {
		if f.n != 0 {
			left = append(left, fmt.Sprintf("%s has %s: %d", p.name, f.name, f.n))
		}
	}
	return left
}

// isMistaken says whether the broker may have taken a settle of an older message for one of this: see Kind.Confuses. The older
// one was under way when the topic was made anew, or finished by somebody who was cut off and said so later.
func (r *run) isMistaken(n int) bool {
	b := r.book
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stored[n]
	if !r.kind.Confuses || s.epoch == 0 {
		return false
	}
	for _, e := range b.entries {
		old := b.stored[e.message]
		same := old.topic == s.topic && old.offset == s.offset && old.epoch < s.epoch
		if same && (e.ended.IsZero() || e.ended.After(old.goneAt.Add(-4*r.lease()))) {
			return true
		}
	}
	return false
}

// keptLetters are the messages that the topics of dead letters have.
func (r *run) keptLetters() (map[int]bool, error) {
	kept := map[int]bool{}
	if !r.schedule.Settings.Letters {
		return kept, nil
	}
	for _, topic := range r.schedule.LetterTopics() {
		ms, err := r.world.Messages(topic)
		if err != nil {
			return nil, fmt.Errorf("reading the dead letters: %w", err)
		}
		for i := range ms {
			kept[numberOf(ms[i].Value)] = true
		}
	}
	return kept, nil
}

// untold is how many messages were dropped before anybody was given them, where the partition was somebody's by then, and not
// told in a gap yet. Of a topic that was made anew nobody knows how many there were; and where processes share a partition only
// who sees both sides of the gap can tell.
func (r *run) untold() (n int64) {
	if r.kind.Shared || r.schedule.has(Recreate) {
		return 0
	}
	r.book.mu.Lock()
	for m, s := range r.book.stored {
		if s.held && r.book.givenFirst(m).IsZero() {
			n++
		}
	}
	r.book.mu.Unlock()
	for _, p := range r.processes {
		p.events.mu.Lock()
		n -= p.events.skips
		p.events.mu.Unlock()
	}
	return max(0, n)
}
