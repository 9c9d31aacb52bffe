package sim

import (
	"sync"
	"time"
)

// A silence is since when nothing is heard of the broker, because of so many faults. It is safe for concurrent use.
type silence struct {
	mu     sync.Mutex
	faults int
	since  time.Time
}

// hush enters that a fault keeps the broker from being heard, until undo.
func (s *silence) hush(undo func()) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults++; s.faults == 1 {
		s.since = time.Now()
	}
	return func() {
		s.end()
		undo()
	}
}

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults--
}

// lasts is for how long nothing has been heard; 0: something is.
func (s *silence) lasts() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == 0 {
		return 0
	}
	return time.Since(s.since)
}
