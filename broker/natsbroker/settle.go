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
	now := s.clock()
	s.outbox.mu.Lock()
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
			p := s.outbox.promise(sl.reply, sl.lease, s.ackWait())
			if ses.ended || s.expired(sl, now) {
				t.lost++
				p.until = noPromise
			}
			s.finished.add(sl.seq, sl.nanos)
			s.runs.settled(sl.seq, sl.nanos)
			s.outbox.acks = append(s.outbox.acks, p) // a late one is of use, too
		}
		s.free(ses, i)
	}
	s.outbox.mu.Unlock()
	s.afterSettle(ses)
	s.mu.Unlock()
	s.outbox.rouse()
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
	now := s.clock()
	s.outbox.mu.Lock()
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
			s.outbox.naks = append(s.outbox.naks, nak{sl.reply, max(b.Delay, 0), sl.lease + s.ackWait(), true})
		}
		if !ses.ended {
			s.runs.put(sl.seq, sl.nanos, b.Runs, dueAt(now, b.Delay))
		}
		s.free(ses, i)
	}
	s.outbox.mu.Unlock()
	s.regather(ses)
	s.afterSettle(ses)
	s.mu.Unlock()
	s.outbox.rouse()
	return t.err(ses)
}

// giveBackFenced gives back what is settled between Close's fence and giveBackAll, which does not find it any more, or after the
// pin was lost, when whoever is pinned waits for it. Its handler is done, so another may have it at once. The caller holds s.mu
// and outbox.mu.
func (s *Source) giveBackFenced(ses *session, sl *slot, delay time.Duration, now int64) {
	if (s.closing || ses.pin.lost != nil) && !ses.givenBack && !s.expired(sl, now) {
		s.outbox.naks = append(s.outbox.naks, nak{sl.reply, max(delay, 0), sl.lease + s.ackWait(), false})
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
