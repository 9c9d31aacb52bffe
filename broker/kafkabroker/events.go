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

// note takes note of whether an exchange with a broker worked that began at a time. An answer that was on its way when contact was lost says nothing of now: an Up by
// it would be false, and the next failure, within a second of the last, would not be told.
func (s *Source) note(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(began, err)
}

func (s *Source) noteLocked(began time.Time, err error) {
	if s.life.Err() != nil {
		return
	}
	if err != nil {
		s.trouble = err
	}
	switch now := time.Now(); {
	case err != nil && !s.down, err != nil && now.Sub(s.downSaid) >= time.Second:
		if s.down || now.Sub(s.downSaid) >= time.Second {
			s.downSaid = now
			s.say(broker.Event{Kind: broker.Down, Err: err})
			if !s.down {
				s.down, s.downSince = true, now
			}
		}
	case err == nil && (s.down && began.After(s.downSince) || !s.down && !s.up) && s.phase == opened:
		s.down, s.up = false, true
		s.say(broker.Event{Kind: broker.Up})
	}
}

// noteGroup is note for the membership's exchanges. The first answer, of whatever kind, lets Open return.
func (s *Source) noteGroup(began time.Time, err error) {
	s.note(began, err)
	if err == nil {
		s.metOnce.Do(func() { close(s.met) })
		signal(s.wake)
	}
}
