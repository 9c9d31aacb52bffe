package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// say queues an event for the loop.
func (s *Source) say(e broker.Event) { s.events.Say(e) }

// note takes note of whether an exchange with a broker worked that began at a time. Up is said by what launch started: before
// it, there is no member of the group.
func (s *Source) note(began time.Time, err error) {
	if s.life.Err() != nil {
		return
	}
	if err != nil {
		s.events.Lost(err)
	} else {
		s.events.Found(began)
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
