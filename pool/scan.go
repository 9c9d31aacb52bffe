package pool

import "time"

// held is a T in hand, as the scan found it.
type held[T any] struct {
	w     *Worker[T]
	t     T
	class int
	seq   uint64
	d     time.Duration
	rest  time.Duration // what Held asked for
}

// scanner is the loop that looks at what is in hand for long. It sleeps until a T is due for a look: a scan after it was taken
// (ScanOne, of one message), then once a scan, or as Held asked for.
type scanner[T any] struct {
	cfg   *Config[T]
	floor *floor[T]
}

// run ends when the pool is over.
func (s *scanner[T]) run() {
	defer s.floor.crew.look.Stop()
	var hs []held[T]
	for {
		select {
		case <-s.floor.ending.over:
			return
		case <-s.floor.crew.look.C:
		}
		var now time.Duration
		hs, now = s.floor.held(hs[:0])
		for i := range hs { // without the lock: the callbacks may requeue
			s.tell(&hs[i])
		}
		s.floor.lookedAt(hs, now)
		clear(hs)
	}
}

func (s *scanner[T]) tell(h *held[T]) {
	if s.cfg.Split != nil && h.d >= 2*s.cfg.Scan {
		if rest, ok := s.cfg.Split(h.t); ok {
			s.floor.splitOff(*h, item[T]{rest, s.cfg.messages(rest)})
		}
	}
	if s.cfg.Held == nil {
		return
	}
	h.w.rest = 0
	if s.cfg.Held(h.w, h.t, h.d) {
		s.floor.abandon(h.w, h.seq)
	}
	h.rest = h.w.rest
}
