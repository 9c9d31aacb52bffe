package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// say queues an event for the loop; it needs s.mu.
func (s *Source) say(e broker.Event) {
	s.events = append(s.events, e)
	signal(s.kick)
}

// emit calls Observe. The loop does, and before and after its life Open and Close.
func (s *Source) emit() {
	for {
		s.mu.Lock()
		es := s.events
		s.events = nil
		s.mu.Unlock()
		if len(es) == 0 {
			return
		}
		for _, e := range es {
			s.o.Observe(e)
		}
	}
}

// note takes note of whether an exchange with a broker worked.
func (s *Source) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(err)
}

func (s *Source) noteLocked(err error) {
	if s.life.Err() != nil {
		return
	}
	switch now := time.Now(); {
	case err != nil && !s.down, err != nil && now.Sub(s.downSaid) >= time.Second:
		if s.down || now.Sub(s.downSaid) >= time.Second {
			s.downSaid = now
			s.say(broker.Event{Kind: broker.Down, Err: err})
			s.down = true
		}
	case err == nil && (s.down || !s.up) && s.phase == opened:
		s.down, s.up = false, true
		s.say(broker.Event{Kind: broker.Up})
	}
}

// noteGroup is note for the membership's exchanges. The first answer, of whatever kind, lets Open return.
func (s *Source) noteGroup(err error) {
	s.note(err)
	if err == nil {
		s.metOnce.Do(func() { close(s.met) })
		signal(s.wake)
	}
}
