package membroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// loop is the source's own goroutine, from Open to Close.
func (s *Source) loop() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer s.flushTimer.Stop()
	flush := false
	for {
		next, more := s.step(time.Now(), flush)
		if !more {
			return
		}
		flush = false
		timer.Reset(time.Until(next))
		select {
		case <-s.kick:
		case <-s.call: // the broker has something to say
			if !s.failing { // else at the next try: its joining would wake us again and again
				s.beatAt = time.Time{}
			}
		case <-s.flushTimer.C:
			flush = true
		case <-timer.C:
		}
	}
}

// step does what is due and returns when it must run next.
func (s *Source) step(now time.Time, flush bool) (next time.Time, more bool) {
	s.emit()
	s.mu.Lock()
	killed, closing := s.killed, s.closing
	s.mu.Unlock()
	switch {
	case killed:
		s.die()
		return next, false
	case closing:
		s.shutdown()
		return next, false
	}
	s.watchLease(now)
	if !now.Before(s.beatAt) {
		s.beat(now)
	}
	next = s.beatAt
	next = earlier(next, s.finishRevoked(now))
	s.returnPrefetch()
	if flush {
		next = earlier(next, s.flush(now))
	}
	next = earlier(next, s.release(now))
	next = earlier(next, s.tellLate(now))
	s.emit()
	return next, true
}

// beat sends a heartbeat, which extends what is out, and follows what the broker says.
func (s *Source) beat(now time.Time) {
	if s.rejoins {
		s.rejoin(now)
		return
	}
	var ns []notice
	var at time.Time
	has := s.leased()
	err := s.exchange(func(now time.Time) (err error) {
		at = now
		ns, err = s.m.heartbeat(has, now)
		return err
	})
	switch {
	case errors.Is(err, errUnknown):
		s.expelled(errUnknown)
		s.beatAt = now
		return
	case err != nil:
		s.failing, s.beatAt = true, now.Add(retryEvery)
		return
	}
	s.failing = false
	s.watchLease(at)
	if s.rejoins { // it was silent too long, whatever the broker thinks
		s.beatAt = now
		return
	}
	s.beatAt = at.Add(s.b.cfg.Lease / 3)
	for _, n := range ns {
		s.follow(n)
	}
	s.refreshLag(at, len(ns))
	s.touched(at)
}

// touched notes contact. What the broker had to say was followed by now, so Receive may go on.
func (s *Source) touched(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaseLost, s.contact = false, at
	if s.lapsed {
		signal(s.wake)
	}
}

// leased lists what this source has of the stream: what is out, prefetched, or settled and not sent yet.
func (s *Source) leased() (os []int64) {
	if s.b.stream == nil || s.mutant.is(noExtension) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holdings {
		for o := h.w.lo; o < h.w.hi; o++ {
			if h.w.at(o).state == out {
				os = append(os, o)
			}
		}
		for _, sp := range h.spans {
			for o := sp.from; o < sp.from+sp.n && !s.mutant.is(prefetchNotExtended); o++ {
				os = append(os, o)
			}
		}
		if s.mutant.is(unsentNotExtended) {
			continue
		}
		os = append(os, h.acks...)
		for _, b := range h.backs { // else their leases run out, and they pull the message from the next holder when they are sent
			os = append(os, b.offset)
		}
	}
	return os
}

// refreshLag also tells the broker how many notices were followed.
func (s *Source) refreshLag(now time.Time, followed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.m.notices = s.m.notices[followed:]
	s.learnLag(now)
}

// rejoin becomes a new member after the broker has forgotten the old one, or may have.
func (s *Source) rejoin(now time.Time) {
	var at time.Time
	err := s.exchange(func(now time.Time) error {
		at = now
		return s.enter()
	})
	s.beatAt = now
	if s.failing = err != nil; s.failing {
		s.beatAt = now.Add(retryEvery)
		return
	}
	s.rejoins = false
	s.touched(at)
}

// watchLease notices that there was no contact for a whole lease: what is out may be somebody else's now.
func (s *Source) watchLease(now time.Time) {
	if now.Sub(s.contact) < s.b.cfg.Lease || s.rejoins {
		return
	}
	if s.b.stream == nil {
		s.expelled(fmt.Errorf("no contact for %v", now.Sub(s.contact)))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaseLost || s.mutant.is(nackExpired) {
		return
	}
	s.leaseLost = true
	for _, h := range s.holdings {
		h.expire()
	}
}

// expire marks what is out as perhaps somebody else's. Give-backs that were not sent must not be any more: they would pull the
// message from whoever has it now.
func (h *holding) expire() {
	h.forgetPrefetch()
	for o := h.w.lo; o < h.w.hi; o++ {
		if sl := h.w.at(o); sl.state == out {
			sl.state = expired
		}
	}
	if n := len(h.backs) + len(h.acks); n > 0 && !h.s.mutant.is(lostSilently|neverUnconfirmed) {
		h.s.say(broker.Event{Kind: broker.Unconfirmed, Claim: h.claim.claim, N: int64(n), Err: errors.New("membroker: lease has run out")})
	}
	h.backs = nil
}

// expelled ends all claims, for the broker does not know us any more, and joins again.
func (s *Source) expelled(cause error) {
	s.mu.Lock()
	hs := append([]*holding(nil), s.holdings...)
	s.mu.Unlock()
	for _, h := range hs {
		s.lose(h, cause)
	}
	for _, e := range s.ending {
		if e.cs != nil {
			s.unconfirmed(e.cs.claim, e.h.promised, cause)
		}
	}
	s.ending = nil
	s.rejoins = true
}

// follow does what the broker says.
func (s *Source) follow(n notice) {
	s.mu.Lock()
	stopped := s.stopped
	h := s.holdingOf(n.cur)
	s.mu.Unlock()
	switch {
	case n.kind == assigned, n.kind == bounced && h == nil: // its claim has ended by itself, and was not released yet
		s.assigned(n, stopped)
		return
	case n.kind == recreated:
		s.recreated(h, n, stopped)
		return
	}
	if h == nil {
		return
	}
	switch n.kind {
	case revoked:
		s.revoke(h.claim)
	case taken:
		s.lose(h, errFenced)
	case bounced:
		s.bounced(h, n, stopped)
	case rewound:
		s.mu.Lock()
		h.rewind(n.offset)
		s.mu.Unlock()
		signal(s.wake)
	}
}

func (s *Source) holdingOf(c *cursor) *holding {
	for _, h := range s.holdings {
		if h.cur == c {
			return h
		}
	}
	return nil
}

func (s *Source) assigned(n notice, stopped bool) {
	h := s.newHolding(n)
	if stopped { // no new claims: somebody else may have it
		s.ending = append(s.ending, &ending{h: h, p: n.start})
		return
	}
	s.begin1(h, n)
}

// begin1 tells of the claim first and lets Receive see it then.
func (s *Source) begin1(h *holding, n notice) {
	s.mu.Lock()
	cs := h.begin()
	s.say(broker.Event{Kind: broker.Assigned, Claim: cs.claim})
	if n.gap != nil {
		s.sayGap(cs.claim, n.gap, nil)
	}
	early := s.mutant.is(assignedLate)
	if early {
		s.holdings = append(s.holdings, h)
		signal(s.wake)
	}
	s.mu.Unlock()
	s.emit()
	if early {
		return
	}
	s.mu.Lock()
	s.holdings = append(s.holdings, h)
	s.mu.Unlock()
	signal(s.wake)
}

// recreated begins anew on the log that took the place of the old one, with nothing remembered.
func (s *Source) recreated(old *holding, n notice, stopped bool) {
	h := s.newHolding(n)
	if old != nil {
		s.mu.Lock()
		old.promised = 0 // they do not come again
		s.mu.Unlock()
		s.lose(old, errors.New("the topic was deleted and made again"))
		if s.mutant.is(doneBySequence) {
			h.w, h.floor = old.w, old.floor
		}
	}
	if stopped {
		s.ending = append(s.ending, &ending{h: h, p: n.start})
		return
	}
	s.begin1(h, n)
}

// bounced lets the next claim begin beside the old one, which revokes. What was on its way to the broker meanwhile was refused by
// the old term, so it is sent again. Who has stopped begins no claim, and releases when the old one has ended.
func (s *Source) bounced(h *holding, n notice, stopped bool) {
	s.revoke(h.claim)
	s.mu.Lock()
	h.term = n.term
	s.dirtied(h)
	if stopped {
		s.mu.Unlock()
		return
	}
	old := h.claim
	cs := h.begin()
	h.claim = old // until it was told
	s.say(broker.Event{Kind: broker.Assigned, Claim: cs.claim})
	s.mu.Unlock()
	s.emit()
	s.mu.Lock()
	h.claim = cs
	s.mu.Unlock()
	signal(s.wake)
}
