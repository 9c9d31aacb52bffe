package consumer

import (
	"iter"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// A shelf has the incomplete batches of a claim. Nothing is put on it once its claim is closed, so who closes that and takes
// everything then has all.
type shelf struct {
	mu     sync.Mutex
	plain  *gathering           // what gathers where nothing keeps messages apart
	groups map[group]*gathering // what gathers by key, or by level
}

// get, set and all are called under mu. get is nil where nothing of a group gathers; set with nil takes it out.
func (s *shelf) get(of group) *gathering {
	if of == (group{}) {
		return s.plain
	}
	return s.groups[of]
}

func (s *shelf) set(of group, g *gathering) {
	switch {
	case of == (group{}):
		s.plain = g
	case g == nil:
		delete(s.groups, of)
	default:
		if s.groups == nil {
			s.groups = map[group]*gathering{}
		}
		s.groups[of] = g
	}
}

func (s *shelf) all() iter.Seq[*gathering] {
	return func(yield func(*gathering) bool) {
		if s.plain != nil && !yield(s.plain) {
			return
		}
		for _, g := range s.groups {
			if !yield(g) {
				return
			}
		}
	}
}

// each calls do with each message that gathers, under the lock.
func (s *shelf) each(do func(*Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.all() {
		for i := range g.ms {
			do(&g.ms[i])
		}
	}
}

// A group is what a claim's messages gather by. The zero value: all of them together.
type group struct {
	byKey bool
	lane  uint64 // with an order: the lane, whose messages come one after the other
	key   string // without
	null  bool   // they have no key
	level int    // of the priority; with a lane 0, since those behind its first cannot pass it
}

// A gathering is a batch that is not complete: a work that is still filled. It is its claim's shelf's, under that one's lock.
type gathering struct {
	*work
	of    group
	bytes int
	own   bool             // its messages share no bytes with what came together with them
	due   *due[*gathering] // when it has lingered; nil: it was complete at once
}

// keep has what gathers, and what comes, lie in memory of its own. Each would else keep an answer of the broker in memory, for as
// long as it waits for others, with all that came in it: of other keys, levels and partitions.
func (g *gathering) keep() {
	g.own = true
	for i := range g.ms {
		g.ms[i] = *g.ms[i].Clone()
	}
}

// add takes a message in.
func (g *gathering) add(m *broker.Message, lanes []uint64, was past) {
	if g.own {
		m = m.Clone()
	}
	g.ms = append(g.ms, *m)
	g.lanes = append(g.lanes, lanes...)
	g.pasts = append(g.pasts, was)
	g.bytes += len(m.Key) + len(m.Value)
}

func (g *gathering) complete(b *Batch) bool { return len(g.ms) >= b.Size || g.bytes >= b.Bytes }
