package natsbroker

import "time"

// leaseSide is the lease keeper's side of the holdings.
type leaseSide struct{ *holdings }

func (s leaseSide) ackWait() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.leases.ackWait
}

// extend begins a round over a connection, and returns the replies to extend.
func (s leaseSide) extend(maxHold time.Duration, over connEpoch) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ses := s.stock.clock.now(), s.stock.ses
	if ses == nil || ses.ended {
		s.stock.leases.start(now, over)
		return nil
	}
	return s.stock.leases.extend(ses.slots, now, int64(maxHold), over)
}

// ping is the one to send now.
func (s leaseSide) ping(over connEpoch) ping {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.leases.ping(s.stock.clock.now(), over)
}

// answered takes the PONG.
func (s leaseSide) answered(p ping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.leases.answered(p)
	if ses := s.stock.ses; ses != nil {
		s.stock.leases.extended(ses.slots, p, s.stock.clock.now())
	}
}
