package sim

import (
	"slices"
	"time"
)

// troubledAt says whether a process, nil: any, was in trouble with a message between two instants. What lasts is trouble for so
// much longer.
func (b *book) troubledAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.troubles, func(t trouble) bool { return t.isAt(p, message, from, until, longer) })
}

// troubledHere is troubledAt for any message, which needs b.mu.
func (b *book) troubledHere(p *process, from, until time.Time) bool {
	return slices.ContainsFunc(b.troubles, func(t trouble) bool { return t.isAt(p, -1, from, until, p.run.lease()) })
}

// hitAt is troubledAt without the light troubles that came alone.
func (b *book) hitAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range b.troubles {
		if t.isAt(p, message, from, until, longer) && (!t.light || b.isJoined(i, longer)) {
			return true
		}
	}
	return false
}

// isJoined says whether another trouble of the same process was within a time of one. It needs b.mu.
func (b *book) isJoined(i int, within time.Duration) bool {
	t := b.troubles[i]
	for j, other := range b.troubles {
		if j != i && other.isAt(t.process, -1, t.from.Add(-within), t.until.Add(within), within) {
			return true
		}
	}
	return false
}

// isAt says whether it befell a process, nil: any, with a message, between two instants. What lasts is trouble for so much
// longer.
func (t trouble) isAt(p *process, message int, from, until time.Time, longer time.Duration) bool {
	end := t.until
	if !t.until.Equal(t.from) {
		end = end.Add(longer)
	}
	mine := (p == nil || t.process == nil || t.process == p) && (t.message < 0 || t.message == message)
	return mine && !t.from.After(until) && !end.Before(from)
}
