package deadletters

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A mark is what the journal says of a letter.
type mark struct {
	done *stroke // its latest confirmed replay
	open *stroke // a replay that was begun and neither confirmed nor undone
	// twice: it was perhaps published twice.
	twice bool
	// late: while it was open another replay said that it had published it.
	late bool
}

// A stroke is what is kept of a record.
type stroke struct {
	run, suffix, to string
	of              string // the run that published: another one may have found it
	at              time.Time
	handled, edited bool
}

// marks are all that the journal says of one log of dead letters. What they take grows with the journal's bytes, not with the
// letters that it names: a record of sixty bytes can name 65,536.
type marks struct {
	log   string
	by    map[bucket][]stretch // sorted and disjoint
	n     int                  // stretches
	run   string               // the replay that began last
	again repeats
	// who has begun each replay; empty: it does not say.
	who map[string]string
}

// A stretch of letters, [from, to), has one mark.
type stretch struct {
	from, to int64
	mark
}

// A bucket has the stretches of so many offsets of a partition: few enough to move when one is put between them.
type bucket struct {
	partition int32
	no        int64
}

const (
	bucketSize = 1 << 10
	// maxStretches bounds what is kept, to about 100 MiB. A replay of letters that lie together makes one a batch, one of every
	// other letter one a letter.
	maxStretches = 1 << 20
)

func newMarks(log string) *marks {
	return &marks{log: log, by: map[bucket][]stretch{}, again: repeats{}, who: map[string]string{}}
}

// add takes the next record of the journal in. Records come in the order in which they were stored; one may come twice. An error:
// there are too many.
func (m *marks) add(r record) error {
	_, began := m.who[r.Run]
	begins := r.Step == stepRun && !began // else it is a copy, stored late: no replay begins twice
	if begins {
		m.run, m.who[r.Run] = r.Run, r.By
	}
	if r.Log != m.log { // of a topic that was deleted and made again
		return m.full()
	}
	switch {
	case begins && r.Again:
		m.again[r.Run] = repeat{named: r.Named}
	case r.Step == stepEnd:
		m.again.end(r.Named)
	}
	if r.Step == stepBegin && began && r.Run != m.run {
		// Another replay had begun by then. Between this record and its publish it has looked at the journal, up to this record at
		// least, so it has seen that, and has ended (journal.taken). Whether it lived to write down that it published nothing does
		// not matter. Where it tried the record again, what counts is the copy before the other one's.
		return m.full()
	}
	of := cmp.Or(r.Of, r.Run)
	for to, s := range r.Letters {
		now := &stroke{run: r.Run, of: of, suffix: r.Suffix, to: to, at: r.At, handled: r.Handled, edited: r.Edited}
		s.each(func(partition int32, from, end int64) {
			m.change(partition, from, end, func(was mark) mark { return was.next(r.Step, now) })
		})
	}
	for _, s := range r.Twice {
		s.each(func(partition int32, from, end int64) {
			m.change(partition, from, end, func(was mark) mark { was.twice = true; return was })
		})
	}
	return m.full()
}

// full is an error where the journal says more than is kept.
func (m *marks) full() error {
	if m.n+len(m.again)+len(m.who) > maxStretches {
		return fmt.Errorf("it speaks of more than %d stretches of letters, which is more than is kept in memory. Purge the dead "+
			"letters and delete it, or, if somebody else has written to it, "+
			"delete it: then all letters count as waiting", maxStretches)
	}
	return nil
}

// next is what a record makes of a mark. A replay that lives may be so slow that another one did not find what it has on its way,
// and published it, too: then both say that it is done. A replay with Again, whose ids have a suffix, means to do so, with what
// was done before it began the letter.
func (was mark) next(step string, now *stroke) mark {
	ours := was.open != nil && was.open.run == now.of
	other := was.done != nil && was.done.of != now.of // has published it
	switch {
	case step == stepBegin:
		was.twice = was.twice || was.open != nil && was.open.run != now.run // begun again though nobody knows what became of it
		was.late = was.late && was.open != nil && was.open.run == now.run   // else it is no copy of the record
		was.open = now
	case step == stepDone && ours:
		was.twice = was.twice || other && (now.suffix == "" || was.late)
		was.done, was.open, was.late = now, nil, false
	case step == stepDone: // another replay has begun it meanwhile, or undone it
		was.twice = was.twice || other
		was.late = was.open != nil && (was.late || was.done == nil || other)
		was.done = now
	case step == stepUndone && ours:
		was.open, was.late = nil, false
	}
	return was
}

// change makes the marks of [from, to) what f says.
func (m *marks) change(partition int32, from, to int64, f func(mark) mark) {
	for from < to {
		end := from + min(to-from, bucketSize-from%bucketSize)
		b := bucket{partition, from / bucketSize}
		was := len(m.by[b])
		list := change(m.by[b], from, end, f)
		if m.n += len(list) - was; len(list) == 0 {
			delete(m.by, b)
		} else {
			m.by[b] = list
		}
		from = end
	}
}

// change does it within a list.
func change(list []stretch, from, to int64, f func(mark) mark) []stretch {
	first := after(list, from)
	last := first
	var fresh []stretch
	put := func(from, to int64, k mark) {
		n := len(fresh)
		switch {
		case from >= to || k.done == nil && k.open == nil && !k.twice:
		case n > 0 && fresh[n-1].to == from && fresh[n-1].mark == k:
			fresh[n-1].to = to
		default:
			fresh = append(fresh, stretch{from, to, k})
		}
	}
	at := from
	for ; last < len(list) && list[last].from < to; last++ {
		s := list[last]
		put(s.from, from, s.mark)
		put(at, s.from, f(mark{}))
		put(max(s.from, from), min(s.to, to), f(s.mark))
		put(to, s.to, s.mark)
		at = s.to
	}
	put(at, to, f(mark{}))
	return slices.Replace(list, first, last, fresh...)
}

// after is the index of the first stretch that ends behind an offset.
func after(list []stretch, offset int64) int {
	i, _ := slices.BinarySearchFunc(list, offset, func(s stretch, offset int64) int {
		if s.to <= offset {
			return -1
		}
		return 1
	})
	return i
}

// of is what the journal says of one letter.
func (m *marks) of(p broker.Place) mark {
	list := m.by[bucket{p.Partition, p.Offset / bucketSize}]
	if i := after(list, p.Offset); i < len(list) && list[i].from <= p.Offset {
		return list[i].mark
	}
	return mark{}
}

// tell writes what is known of a letter into it.
func (m *marks) tell(l *Letter) {
	k := m.of(l.Place)
	r := k.open
	switch {
	case k.open != nil:
		l.State = Uncertain
	case k.done != nil:
		l.State, r = Replayed, k.done
	default:
		l.State = Waiting
		return
	}
	l.ReplayedAt, l.ReplayedTo, l.ReplayedBy, l.Edited, l.PerhapsTwice = r.at, r.to, m.who[r.of], r.edited, k.twice
}

// uncertain says whether there are letters of which it is not known whether they were published.
func (m *marks) uncertain() bool {
	for _, list := range m.by {
		if slices.ContainsFunc(list, func(s stretch) bool { return s.open != nil }) {
			return true
		}
	}
	return false
}
