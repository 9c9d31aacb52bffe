// Package ledger keeps book of numbered messages, outside of those who handle them: what was produced, handed out and settled,
// and what that makes lost, repeated and overlapping. The conformance suite uses it, and so can any test that counts.
package ledger

import (
	"fmt"
	"slices"
	"sync"
)

// A Ledger keeps book. The zero value is ready. All methods are safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	entries  map[string]*entry
	overlaps int
	open     int // never settled
	unknown  []string
}

type entry struct {
	begun, running, settled int
}

func (l *Ledger) entry(id string) *entry {
	e := l.entries[id]
	if e == nil {
		l.unknown = append(l.unknown, id)
		e = l.add(id)
	}
	return e
}

func (l *Ledger) add(id string) *entry {
	if l.entries == nil {
		l.entries = make(map[string]*entry)
	}
	e := &entry{}
	l.entries[id] = e
	l.open++
	return e
}

// Produced enters a message. An id is produced once; again changes nothing.
func (l *Ledger) Produced(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[id] == nil {
		l.add(id)
	}
}

// Begin says that somebody has been handed the message. It returns how often that was so before, and whether somebody else has it
// still: an overlap.
func (l *Ledger) Begin(id string) (before int, overlap bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(id)
	before, overlap = e.begun, e.running > 0
	e.begun++
	e.running++
	if overlap {
		l.overlaps++
	}
	return before, overlap
}

// End says that who had the message has it no more. settled: it was handled, and the broker was told.
func (l *Ledger) End(id string, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(id)
	e.running--
	if settled {
		if e.settled == 0 {
			l.open--
		}
		e.settled++
	}
}

// A Report is the sum of it.
type Report struct {
	Produced int
	// Lost were never settled; Unseen of them were never handed out.
	Lost, Unseen []string
	// Repeated were handed out more than once; Repeats is how many times too many, all told.
	Repeated []string
	Repeats  int
	// Overlaps: handed out while somebody had it.
	Overlaps int
	// Unknown were handed out and never produced.
	Unknown []string
}

// Report sums up. Lists are sorted.
func (l *Ledger) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Produced: len(l.entries) - len(l.unknown), Overlaps: l.overlaps, Unknown: slices.Clone(l.unknown)}
	for id, e := range l.entries {
		if e.settled == 0 {
			r.Lost = append(r.Lost, id)
		}
		if e.begun == 0 {
			r.Unseen = append(r.Unseen, id)
		}
		if e.begun > 1 {
			r.Repeated = append(r.Repeated, id)
			r.Repeats += e.begun - 1
		}
	}
	for _, s := range [][]string{r.Lost, r.Unseen, r.Repeated, r.Unknown} {
		slices.Sort(s)
	}
	return r
}

// String gives the figures, and the first few ids of each list.
func (r Report) String() string {
	return fmt.Sprintf("produced %d, lost %s (unseen %s), repeated %s (%d times), overlaps %d, unknown %s",
		r.Produced, some(r.Lost), some(r.Unseen), some(r.Repeated), r.Repeats, r.Overlaps, some(r.Unknown))
}

func some(ids []string) string {
	const most = 5
	switch {
	case len(ids) == 0:
		return "0"
	case len(ids) > most:
		return fmt.Sprintf("%d %v…", len(ids), ids[:most])
	}
	return fmt.Sprintf("%d %v", len(ids), ids)
}

// Times is how often the message was handed out.
func (l *Ledger) Times(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[id]; e != nil {
		return e.begun
	}
	return 0
}

// Open is how many messages were never settled: len(Report().Lost), at no cost.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}
