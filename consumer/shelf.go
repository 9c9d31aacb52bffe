package consumer

import (
	"iter"
	"maps"
	"sync"

	"github.com/longshoremq/longshore/broker"
)

// A shelf has the incomplete batches of a claim. Nothing is put on it once its claim is closed, so who closes that and takes
// everything then has all.
type shelf struct {
	mu    sync.Mutex
	plain *gathering           // what gathers, whatever its key
	byKey map[group]*gathering // or what gathers by key
}

// get, set and all are called under mu. get is nil where nothing of a group gathers; set with nil takes it out.
func (s *shelf) get(of group) *gathering {
	if !of.byKey {
		return s.plain
	}
	return s.byKey[of]
}

func (s *shelf) set(of group, g *gathering) {
	switch {
	case !of.byKey:
		s.plain = g
	case g == nil:
		delete(s.byKey, of)
	default:
		if s.byKey == nil {
			s.byKey = map[group]*gathering{}
		}
		s.byKey[of] = g
	}
}

func (s *shelf) all() iter.Seq[*gathering] {
	if s.plain == nil {
		return maps.Values(s.byKey)
	}
	return func(yield func(*gathering) bool) { yield(s.plain) }
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
}

// A gathering is a batch that is not complete: a work that is still filled. It is its claim's shelf's, under that one's lock.
type gathering struct {
	*work
	of    group
	bytes int
	own   bool             // its messages share no bytes with what came together with them
	due   *due[*gathering] // when it has lingered; nil: it was complete at once
}

// add takes a message in. Where few of a key come and wait for long, each would else keep an answer of the broker in memory.
func (g *gathering) add(m *broker.Message, lanes []uint64, first int64) {
	if g.own {
		m = m.Clone()
	}
	g.ms = append(g.ms, *m)
	g.lanes = append(g.lanes, lanes...)
	g.firsts = append(g.firsts, first)
	g.bytes += len(m.Key) + len(m.Value)
}

func (g *gathering) complete(b *Batch) bool { return len(g.ms) >= b.Size || g.bytes >= b.Bytes }
