package natsbroker

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// What the stock does with a message that is delivered for the last time, by a max_deliver of the consumer. Whether it is given
// back or its ack wait runs out, the server gives it to nobody any more: it drops it, and there is no dead letter. So it is ours
// until it is settled. It is kept at a pause, and beyond its lease; and what the engine gives back is handed out once more, as
// that attempt, for it may have run as an earlier one. Only what cannot be handed out here any more goes back: at a stop, and
// when our turn is over.

// isLast says that the server delivers a message no more.
func (s *stock) isLast(delivered uint64) bool {
	return s.maxDeliver > 0 && delivered >= uint64(s.maxDeliver)
}

// last is isLast of what is here.
func (s *stock) last(sl *slot) bool { return s.isLast(uint64(sl.newest)) }

// lapsed says whether another process may have a message by now.
func (s *stock) lapsed(sl *slot, now int64) bool {
	return s.leases.expired(sl, now) && (sl.forgotten || !s.last(sl))
}

// keeps says whether what is given back stays here.
func (s *stock) keeps(ses *session, sl *slot) bool {
	return sl.msg != nil && !sl.forgotten && s.last(sl) && ses == s.ses && ses.pin.lost == nil && !s.flow.ends()
}

// keep has a message that was out wait here to be handed out again.
func (s *stock) keep(ses *session, i int32, b broker.Back) {
	sl := &ses.slots.all[i]
	sl.state, sl.runs = slotBuffered, b.Runs
	sl.gen++ // its token is void
	s.postpone(sl, dueAt(s.clock.now(), b.Delay))
	s.pulls.keep(sl.size)
	ses.out--
	ses.ready.push(i)
	ses.unsorted = true
}

// postpone lets a message wait here until then, where that is to come.
func (s *stock) postpone(sl *slot, due int64) {
	sl.due = due
	if rest := due - s.clock.now(); rest > 0 {
		time.AfterFunc(time.Duration(rest), s.bells.receive.Ring)
	}
}

// waits says whether a message may not be handed out yet.
func (s *stock) waits(sl *slot, now int64) bool {
	return sl.due > now || !s.ordered && len(s.stale) > 0 && s.outBefore(sl.seq, sl.nanos)
}

// mostOver is how often the budget is used up at most by deliveries that were not asked for. What comes for the last time may go
// over it by as much again: the server itself sends more than was asked for where it counts other sizes than we do.
func mostOver(last bool) int {
	if last {
		return 2
	}
	return 1
}

// dropped counts what was given back and the server drops by it. It is told together, a moment later.
func (s *stock) dropped(n int) {
	if s.drops.add(int64(n)) {
		time.AfterFunc(dropsWithin, s.tellDrops)
	}
}

const dropsWithin = 100 * time.Millisecond

// tellDropped tells what was counted.
func (h *holdings) tellDropped() {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.stock
	if n := s.drops.take(); n > 0 {
		s.warn(fmt.Errorf("natsbroker: consumer %s: its max_deliver is %d, and %d messages that were given back had been delivered "+
			"as often: the server drops them, and no dead letter is written; set it to -1", s.cfg.Consumer, s.maxDeliver, n))
	}
}
