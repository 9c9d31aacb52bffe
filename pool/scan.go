package pool

import "time"

// held is a T in hand, as the scan found it.
type held[T any] struct {
	w     *Worker[T]
	t     T
	class int
	seq   uint64
	d     time.Duration
}

// scanner is the loop that looks at what is in hand for long. It sleeps while nothing is.
type scanner[T any] struct {
	cfg   *Config[T]
	floor *floor[T]
}

// run ends when the pool is over.
func (s *scanner[T]) run() {
	timer := time.NewTimer(s.cfg.Scan)
	defer timer.Stop()
	var hs []held[T]
	for {
		if s.floor.idle() {
			select {
			case <-s.floor.ending.over:
				return
			case <-s.floor.crew.look:
			}
		}
		timer.Reset(s.cfg.Scan)
		select {
		case <-s.floor.ending.over:
			return
		case <-timer.C:
		}
		hs = s.floor.held(hs[:0], s.cfg.Scan)
		for _, h := range hs { // without the lock: the callbacks may requeue
			s.tell(h)
		}
		clear(hs)
	}
}

func (s *scanner[T]) tell(h held[T]) {
	if s.cfg.Split != nil && h.d >= 2*s.cfg.Scan {
		if rest, ok := s.cfg.Split(h.t); ok {
			s.floor.splitOff(h, item[T]{rest, s.cfg.messages(rest)})
		}
	}
	if s.cfg.Held != nil && s.cfg.Held(h.w, h.t, h.d) {
		s.floor.abandon(h.w, h.seq)
	}
}
