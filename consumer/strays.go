package consumer

import (
	"maps"
	"sync"
)

// strays are the handler calls that the watchdog has given up with their messages, and that have not returned: no claim has them
// any more.
type strays struct {
	mu sync.Mutex
	of map[*work]sighting
}

// add notes a call that is about to be given up.
func (s *strays) add(w *work, seen sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[*work]sighting{}
	}
	s.of[w] = seen
}

// remove forgets a call: it has returned, or was not given up after all.
func (s *strays) remove(w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, w)
}

// all are the calls, by their first message.
func (s *strays) all() map[*Message]sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[*Message]sighting, len(s.of))
	for seen := range maps.Values(s.of) {
		all[seen.m] = seen
	}
	return all
}
