package natsbroker

import (
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Ack implements broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	ses := s.sessionOf(c)
	if ses == nil {
		return errForeign
	}
	var t tally
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := s.clock(), s.ackWait()
	for _, token := range tokens {
		i := ses.slots.out(token)
		if i == noSlot {
			t.settled = true
			continue
		}
		sl := &ses.slots.all[i]
		if ses.ended && (ses.pin.lost == nil || ses.givenBack) {
			t.lost++
			s.giveBackFenced(ses, sl, 0, now)
		} else {
			until := sl.lease + wait
			if ses.ended || s.expired(sl, now) {
				t.lost++
				until = never
			}
			s.finished.add(sl.seq, sl.nanos)
			s.runs.settled(sl.seq, sl.nanos)
			s.said.acks = append(s.said.acks, pendingAck{sl.reply, until}) // a late one is of use, too
		}
		s.free(ses, i)
	}
	s.say()
	s.afterSettle(ses)
	return t.err(ses)
}

// Nack implements broker.Source.
func (s *Source) Nack(c *broker.Claim, back []broker.Back) error {
	ses := s.sessionOf(c)
	if ses == nil {
		return errForeign
	}
	var t tally
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := s.clock(), s.ackWait()
	for _, b := range back {
		i := ses.slots.out(b.Token)
		if i == noSlot {
			t.settled = true
			continue
		}
		sl := &ses.slots.all[i]
		switch {
		case ses.ended:
			t.lost++
			s.giveBackFenced(ses, sl, b.Delay, now)
		case s.expired(sl, now):
			t.lost++
		default:
			s.said.naks = append(s.said.naks, nak{sl.reply, max(b.Delay, 0), sl.lease + wait, true})
		}
		if !ses.ended {
			s.runs.put(sl.seq, sl.nanos, b.Runs, dueAt(now, b.Delay))
		}
		s.free(ses, i)
	}
	s.say()
	s.regather(ses)
	s.afterSettle(ses)
	return t.err(ses)
}

// say puts what was settled into the outbox. The caller holds s.mu.
func (s *Source) say() {
	s.outbox.add(&s.said, s.ackWait())
	s.said.reset()
}

// giveBackFenced gives back what is settled between Close's fence and giveBackAll, which does not find it any more, or after the
// pin was lost, when whoever is pinned waits for it. Its handler is done, so another may have it at once. The caller holds s.mu.
func (s *Source) giveBackFenced(ses *session, sl *slot, delay time.Duration, now int64) {
	if (s.closing || ses.pin.lost != nil) && !ses.givenBack && !s.expired(sl, now) {
		s.said.naks = append(s.said.naks, nak{sl.reply, max(delay, 0), sl.lease + s.ackWait(), false})
	}
}

func dueAt(now int64, delay time.Duration) int64 {
	if delay <= 0 {
		return 0
	}
	return now + int64(delay)
}

// free frees a handed-out message's slot and budget. The caller holds s.mu.
func (s *Source) free(ses *session, i int32) {
	s.credit.out--
	ses.out--
	s.credit.bytes -= int64(ses.slots.all[i].size)
	ses.slots.remove(i)
}

// afterSettle does what freed budget allows. The caller holds s.mu.
func (s *Source) afterSettle(ses *session) {
	if now := s.ses; now != nil && now.ready.n > 0 && (ses == now || s.opts.Ordered) {
		if s.givesBack() && s.credit.out == 0 {
			s.giveBackBuffered()
		} else {
			s.rouse()
		}
	}
	if s.group != "" && ses.out == 0 && (ses.pin.lost != nil || s.givesBack()) {
		s.tendPin()
	}
	s.wantPull()
}

// sessionOf returns the session that c is the claim of; nil when it is none of this source.
func (s *Source) sessionOf(c *broker.Claim) *session {
	if ses, ok := c.State.(*session); ok && ses.src == s {
		return ses
	}
	return nil
}

var (
	errForeign = fmt.Errorf("natsbroker: settling: %w", broker.ErrForeign)
	errExpired = errors.New("the lease of at least one message had run out")
)

// tally is what became of the tokens of one settle.
type tally struct {
	lost    int
	settled bool
}

func (t tally) err(ses *session) error {
	switch {
	case t.lost > 0 && ses.claim.Startable():
		return &broker.LostError{N: t.lost, Why: errExpired}
	case t.lost > 0:
		return &broker.LostError{N: t.lost}
	case t.settled:
		return broker.ErrSettled
	}
	return nil
}
