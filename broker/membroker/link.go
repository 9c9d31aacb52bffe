package membroker

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A link is the source's connection to the broker, and what was told to be wrong with it.
type link struct {
	mu     sync.Mutex
	cut    Direction
	thawed chan struct{} // nil: not frozen; closed by Thaw
	killed chan struct{}
}

func newLink() link { return link{killed: make(chan struct{})} }

// Cut cuts the connection in one direction, or both, until Heal.
func (s *Source) Cut(d Direction) {
	s.link.mu.Lock()
	s.link.cut |= d
	s.link.mu.Unlock()
	signal(s.kick)
}

// Heal ends Cut.
func (s *Source) Heal() {
	s.link.mu.Lock()
	s.link.cut = 0
	s.link.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
}

// Freeze stops the source as SIGSTOP stops a process: no heartbeat, no settle, no message, until Thaw. The caller must not call
// it meanwhile.
func (s *Source) Freeze() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.link.thawed == nil {
		s.link.thawed = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (s *Source) Thaw() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.link.thawed != nil {
		close(s.link.thawed)
		s.link.thawed = nil
	}
}

// Kill ends the source as SIGKILL ends a process: nothing is sent any more, the broker is not told. Receive returns an error,
// settles are ErrLost. Close afterwards does nothing.
func (s *Source) Kill() {
	s.mu.Lock()
	already := s.killed
	s.killed, s.closing, s.stopped = true, true, !s.mutant.is(killKeepsReceiving)
	open := s.phase == opened
	if s.phase == created {
		s.phase = closed
		close(s.done)
	}
	if !already {
		close(s.link.killed)
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
	if open {
		<-s.done
	}
}

// pass waits as long as the source is frozen, and the broker's delay; then it says whether a request gets through.
func (s *Source) pass() error {
	for {
		s.link.mu.Lock()
		thawed, cut := s.link.thawed, s.link.cut
		s.link.mu.Unlock()
		select {
		case <-s.link.killed:
			return errKilled
		default:
		}
		if thawed == nil {
			if err := s.latency(); err != nil {
				return err
			}
			if cut&ToBroker != 0 {
				return errCut
			}
			return nil
		}
		select {
		case <-thawed:
		case <-s.link.killed:
			return errKilled
		case <-s.abort:
			return errCut
		}
	}
}

// frozen waits for Thaw.
func (s *Source) frozen() {
	s.link.mu.Lock()
	thawed := s.link.thawed
	s.link.mu.Unlock()
	if thawed == nil {
		return
	}
	select {
	case <-thawed:
	case <-s.link.killed:
	case <-s.abort:
	}
}

func (s *Source) latency() error {
	s.b.mu.Lock()
	d := s.b.faults.latency
	s.b.mu.Unlock()
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.link.killed:
		return errKilled
	case <-s.abort:
		return errCut
	}
}

// answer says whether what the broker has answered gets back.
func (s *Source) answer() error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.link.cut&FromBroker != 0 {
		return errCut
	}
	return nil
}

// exchange does one request: f runs at the broker, under its lock. It may have run although there is an error, when the answer
// was lost.
func (s *Source) exchange(f func(now time.Time) error) error {
	err := s.pass()
	if err == nil {
		now := time.Now()
		s.b.mu.Lock()
		if s.b.faults.down {
			err = errDown
		} else {
			err = f(now)
		}
		s.b.mu.Unlock()
		if lost := s.answer(); lost != nil {
			err = lost
		}
	}
	s.note(err)
	return err
}

// note keeps the events of contact lost and found.
func (s *Source) note(err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err {
	case errDown, errCut:
		s.down = true
		tell := s.reach.Lost(now, err)
		if s.mutant.is(downEachSecond | downForgotten) {
			tell = now.Sub(s.downSaid) >= time.Second
		}
		if tell || s.mutant.is(downForgotten) {
			s.downSaid = now
		}
		if tell {
			s.sayDown(err)
		} else {
			signal(s.kick) // the loop tells it when it is due
		}
	case errKilled:
	default: // any answer is contact
		if s.down {
			signal(s.wake)
		}
		s.down = false
		if s.reach.Found(now) {
			s.say(broker.Event{Kind: broker.Up})
			signal(s.wake)
		}
	}
}

// sayDown tells a Down; it needs s.mu.
func (s *Source) sayDown(err error) {
	if s.mutant.is(downWithoutErr) {
		err = nil
	}
	s.say(broker.Event{Kind: broker.Down, Err: err})
}

// tellLate tells a Down that waited, and returns when to look again; zero: there is none.
func (s *Source) tellLate(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mutant.is(downForgotten) {
		return time.Time{}
	}
	if err := s.reach.Late(now); err != nil {
		s.sayDown(err)
	}
	return s.reach.Due()
}

// say queues an event for the loop to tell; it needs s.mu.
func (s *Source) say(e broker.Event) {
	s.events = append(s.events, e)
	signal(s.kick)
}

// emit tells what is queued. The loop calls it, and Open before there is one, so events keep their order.
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
