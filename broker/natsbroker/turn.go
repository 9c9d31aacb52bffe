package natsbroker

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// What the stock does when it is our turn, and when it is over (pin.go).

// mine says whether a delivery is for the session as it is.
func (s *stock) mine(ses *session, id string, m *nats.Msg, d delivery) bool {
	p := &ses.pin
	if id == "" && unreadable(m) {
		if id = p.id; id == "" && p.lost == nil { // it is our turn, and the consumer's info has the id
			p.perhaps("", s.clock.now())
			s.giveBack(m.Reply)
			s.bells.pin.Ring()
			return false
		}
	}
	if p.lost == nil && id == "" {
		s.lose(ses, errNotPinned)
		s.fail(fmt.Errorf("natsbroker: consumer %s of stream %s: it pins no process any more", s.cfg.Consumer, s.cfg.Stream))
	}
	if p.lost == nil && p.id != "" && p.id != id {
		s.lose(ses, errPinTaken)
	}
	twice := ses.slots.find(d.stream, d.nanos) != nil
	if p.lost != nil {
		if !twice {
			s.giveBack(m.Reply)
		}
		return twice // it runs here: its lease counts anew
	}
	if p.id == "" {
		s.beginTurn(ses, id)
	}
	p.delivered(d, s.clock.now(), twice)
	if p.gathering {
		s.bells.pin.Ring()
	}
	return true
}

// pinnedBefore takes the id of a pin, and the delivery, that came to an inbox of a session on an earlier consumer. It is our turn
// if the present one says so, or the one that follows it, and then the delivery is its.
func (s *stock) pinnedBefore(id, reply string) {
	switch p := &s.ses.pin; {
	case id == "" || p.group == "":
	case p.id == id && p.lost == nil:
		s.giveBack(reply)
	default:
		s.brought = reply
		if p.id == "" && p.lost == nil {
			p.perhaps(id, s.clock.now())
			s.bells.pin.Ring()
		}
	}
}

// pinnedAgain looks whether a pin came after a session's own: a request of when we stood by, which was with the server still, has
// our next turn then.
func (s *stock) pinnedAgain(ses *session) {
	if p := &s.ses.pin; s.pinID != ses.pin.id && p.id == "" && p.lost == nil {
		p.perhaps(s.pinID, s.clock.now())
		s.bells.pin.Ring()
	}
}

// beginTurn takes the id of the pin: it is our turn.
func (s *stock) beginTurn(ses *session, id string) {
	ses.pin.got(id, s.leases.contact)
	ses.assigned = !s.flow.stopped // else it goes back at once
	// A second request, of another inbox: without the pin's id nobody answers it now.
	if s.pulls.asked > 0 {
		s.pulls.revive = true
		s.bells.pull.Ring()
	}
	if ses.assigned {
		s.events.Say(broker.Event{Kind: broker.Assigned, Claim: ses.claim})
	}
}

// regather has nothing handed out until all that is unsettled is here.
func (s *stock) regather(ses *session) {
	if ses.pin.regather() {
		s.bells.pin.Ring()
	}
}

// weigh compares what the server counts with the look before, and marks what is here that others settled, or may have. It says
// whether something went back by it: it comes again at once, if it is not settled.
func (s *stock) weigh(ses *session, pending int, floor uint64, gone removed) (gaveBack bool) {
	b := &ses.pin.balance
	switch b.look(pending, ses.slots.found(floor, gone)) {
	case fallFirst:
		return s.giveBackIf(ses, s.cameBefore)
	case fallSome:
		ses.slots.doubt()
	}
	if b.fell == 0 {
		ses.slots.trust()
	}
	return false
}

// What of that which waits goes back.
func (s *stock) cameBefore(sl *slot) bool { return sl.delivered > 1 && !s.last(sl) }

// mayBeSettled: it comes again where it is not, but for what was delivered for the last time. That is handled here: once more,
// where others settled it.
func (s *stock) mayBeSettled(sl *slot) bool {
	if sl.others == othersMay && s.last(sl) {
		sl.others = othersDidNot
	}
	return sl.others == othersMay
}

// isSettled: what came for the first time nobody else had, and it is handled also where the stream has let go of it since.
func isSettled(sl *slot) bool { return sl.others == othersDid && sl.delivered > 1 }

// lose is the beginning of the end of a session: nothing more of it is handed out, and what was not goes back. Whoever is pinned
// next waits for what is out.
func (s *stock) lose(ses *session, why error) {
	if ses.pin.lost != nil || ses.ended {
		return
	}
	ses.pin.lost = why
	if errors.Is(why, errPinTaken) { // perhaps of another consumer of that name, to which nothing of this one is to be said
		s.older = s.came
		s.outbox.doubtIt()
	}
	s.giveBackReady(ses)
	s.bells.pull.Ring()
	s.bells.pin.Ring()
}

// revoke announces the end.
func (s *stock) revoke(ses *session) {
	by := ses.pin.revoke(s.clock.now(), s.term(ses), s.cfg.RevokeWait)
	ses.keeper.Revoke(s.clock.at(by))
}

// checkPin takes what an info says that was asked for when the pin had this id.
func (s *stock) checkPin(ses *session, id string, info *jetstream.ConsumerInfo) {
	if id != "" && ses.pin.id == id && pinnedNow(info) != id && !ses.pin.freed {
		s.lose(ses, errPinTaken)
	}
}
