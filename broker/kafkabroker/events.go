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

// note takes note of whether an exchange with a broker worked that began at a time. An answer that was on its way when contact
// was lost says nothing of now.
func (s *Source) note(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(began, err)
}

func (s *Source) noteLocked(began time.Time, err error) {
	if s.life.Err() != nil {
		return
	}
	switch {
	case err != nil:
		s.trouble = err
		if s.outages.Lost(time.Now(), err) {
			s.say(broker.Event{Kind: broker.Down, Err: err})
		} else {
			signal(s.kick) // the loop tells it when it is due
		}
	case s.phase == opened && s.outages.Found(began):
		s.say(broker.Event{Kind: broker.Up})
	}
}

// tellLate tells a Down that waited, and returns when to look again; it needs s.mu.
func (s *Source) tellLate(now time.Time) time.Time {
	if err := s.outages.Late(now); err != nil {
		s.say(broker.Event{Kind: broker.Down, Err: err})
	}
	return s.outages.Due()
}

// noteGroup is note for the membership's exchanges. The first answer, of whatever kind, lets Open return.
func (s *Source) noteGroup(began time.Time, err error) {
	s.note(began, err)
	if err == nil {
		s.metOnce.Do(func() { close(s.met) })
		signal(s.wake)
	}
}
