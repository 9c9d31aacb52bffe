package natsbroker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// ack settles messages of a session as handled.
func (s *stock) ack(ses *session, tokens []uint64) (t kit.Tally) {
	now := s.clock.now()
	for _, token := range tokens {
		i := ses.slots.out(token)
		if i == noSlot {
			t.Again++
			continue
		}
		sl := &ses.slots.all[i]
		if ses.ended && (ses.pin.lost == nil || ses.givenBack || ses.gone) {
			t.Lost++
			s.giveBackFenced(ses, sl, 0, now)
		} else {
			until := s.leases.until(sl)
			if ses.ended || s.leases.expired(sl, now) {
				t.Lost++
				until = never
			}
			s.memory.settled(sl)
			ses.pin.balance.acked(sl.others)
			if !sl.forgotten { // else it is said when it comes again
				s.said.acks = append(s.said.acks, pendingAck{sl.reply, until, sl.nth}) // a late one is of use, too
			}
		}
		s.free(ses, i)
	}
	s.settled(ses)
	return ses.reason(t)
}

// nack gives messages of a session back.
func (s *stock) nack(ses *session, back []broker.Back) (t kit.Tally) {
	now, dropped := s.clock.now(), 0
	for _, b := range back {
		i := ses.slots.out(b.Token)
		if i == noSlot {
			t.Again++
			continue
		}
		sl := &ses.slots.all[i]
		switch {
		case ses.ended:
			t.Lost++
			s.giveBackFenced(ses, sl, b.Delay, now)
		case s.keeps(ses, sl):
			s.keep(ses, i, b)
			continue
		case s.leases.expired(sl, now):
			t.Lost++
		case sl.forgotten: // it comes again
		default:
			s.said.naks = append(s.said.naks, nak{reply: sl.reply, delay: max(b.Delay, 0), until: s.leases.until(sl), said: true})
			if s.last(sl) {
				dropped++
			}
		}
		if !ses.ended {
			s.memory.givenBack(sl, b.Runs, dueAt(now, b.Delay))
		}
		s.free(ses, i)
	}
	s.dropped(dropped)
	s.regather(ses)
	s.settled(ses)
	return ses.reason(t)
}

// giveBackFenced gives back what is settled between Close's fence and giveBackAll, which does not find it any more, or after the
// pin was lost, when whoever is pinned waits for it. Its handler is done, so another may have it at once.
func (s *stock) giveBackFenced(ses *session, sl *slot, delay time.Duration, now int64) {
	if ses.givenBack || ses.gone || !s.holds(sl, now) {
		return
	}
	if s.flow.closing || ses.pin.lost != nil {
		s.said.naks = append(s.said.naks, nak{reply: sl.reply, delay: max(delay, 0), until: s.leases.until(sl)})
		if s.last(sl) {
			s.dropped(1)
		}
	}
}

func dueAt(now int64, delay time.Duration) int64 {
	if delay <= 0 {
		return 0
	}
	return now + int64(delay)
}

// free frees a handed-out message's slot and budget.
func (s *stock) free(ses *session, i int32) {
	s.pulls.gate.Free(1, int64(ses.slots.all[i].size))
	ses.out--
	ses.slots.remove(i)
	if ses.out == 0 && len(s.stale) > 0 {
		s.stale = slices.DeleteFunc(s.stale, func(old *session) bool { return old == ses })
	}
}

// settled puts what was settled into the outbox, and does what freed budget allows.
func (s *stock) settled(ses *session) {
	s.outbox.add(&s.said, s.leases.ackWait, s.pulls.gate.Out())
	s.said.reset()
	if now := s.ses; now != nil && now.ready.n > 0 { // also by what is of an earlier claim: until now that had the budget
		if s.flow.givesBack() && now.out == 0 {
			s.giveBackBuffered()
		} else {
			s.receiver.rouse()
		}
	}
	if ses.pin.group != "" && ses.out == 0 && (ses.pin.lost != nil || s.flow.givesBack()) {
		s.bells.pin.Ring()
	}
	s.wantPull()
}

var (
	errForeign = fmt.Errorf("natsbroker: settling: %w", broker.ErrForeign)
	errExpired = errors.New("the lease of at least one message had run out")
)

// reason adds why some are lost, where it is not that the claim has ended.
func (s *session) reason(t kit.Tally) kit.Tally {
	if s.claim.Startable() {
		t.Why = errExpired
	}
	return t
}
