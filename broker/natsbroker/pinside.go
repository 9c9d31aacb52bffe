package natsbroker

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// pinSide is the pinner's side of the holdings.
type pinSide struct{ *holdings }

// step says what there is to do about the pin of which session, and when to look again.
func (s pinSide) step(idle time.Duration) (ses *session, a pinAction, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	ses = k.ses
	if ses == nil || ses.pin.group == "" || ses.ended || k.flow.closing || k.flow.fatal != nil {
		return nil, pinRest, idle
	}
	now := k.clock.now()
	if ses.pin.lost == nil && ses.pin.doubtful(now, k.term(ses)) {
		k.lose(ses, errPinSilent)
	}
	a, wait = ses.pin.action(pinView{now, k.leases.ackWait, ses.out, ses.ready.n, k.flow.givesBack()})
	if a == pinRevoke {
		k.revoke(ses)
	}
	return ses, a, wait
}

// fence is the first half of a session's end: settles say broker.ErrLost from now on. cause is nil where it has ended already.
func (s pinSide) fence(ses *session) (cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.ended {
		return nil
	}
	ses.ended = true
	return fmt.Errorf("%w: natsbroker: consumer %s: %w", broker.ErrLost, s.stock.cfg.Consumer, ses.pin.lost)
}

// follow is the second half: another session stands by. The inbox is to be drained.
func (s pinSide) follow(ses *session) (old *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	if k.ses == ses && k.flow.fatal == nil && !k.flow.closing {
		k.follow(ses.next(k.pulls.gate.Budget().Messages))
		k.pinnedAgain(ses)
		old = k.leave()
	}
	return old
}

// A pinLease is what a request about the pin needs to know.
type pinLease struct {
	group, id string
	at        int64 // when it was asked for
	term      time.Duration
	ours      bool // for certain
}

// renew is the beginning of a renewal.
func (s pinSide) renew(ses *session) pinLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, p := &s.stock, &ses.pin
	p.renewed = k.clock.now()
	return pinLease{group: p.group, id: p.id, at: p.renewed, term: time.Duration(k.term(ses))}
}

// renewed takes the answer.
func (s pinSide) renewed(ses *session, l pinLease, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v {
	case pullEnded, pullTooLarge:
		ses.pin.seen = max(ses.pin.seen, l.at)
		s.stock.receiver.rouse() // it may have been in doubt
	case pullUnpinned:
		s.stock.lose(ses, errPinTaken)
	}
}

// term is for how long after its last sign the pin is relied upon.
func (s pinSide) term(ses *session) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.stock.term(ses))
}

// question is for what the server is asked now whom it pins.
func (s pinSide) question(ses *session) pinQuestion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ses.pin.question()
}

// learned takes the id of whoever was pinned when q was asked.
func (s pinSide) learned(ses *session, q pinQuestion, info *jetstream.ConsumerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	if k.ses != ses || ses.ended || ses.pin.lost != nil {
		return
	}
	if id := pinnedNow(info); ses.pin.learned(q, id, k.clock.now()) {
		k.beginTurn(ses, id)
		if k.brought != "" {
			k.giveBack(k.brought)
		}
		k.bells.pin.Ring()
	}
	if ses.pin.unread == 0 { // it is known whose the delivery was
		k.brought = ""
	}
}

// young is for how long yet the server may keep our newest request, where it may be pinned, though nobody listens to its inbox.
func (s pinSide) young() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	if !k.standsBy() || !k.pulls.mayBePinned() {
		return 0
	}
	return keepsYoung - time.Duration(k.clock.now()-k.pulls.lastSent)
}

// isOurs says whether that is the id of a pin that was given to us, the last one.
func (s pinSide) isOurs(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id != "" && id == s.stock.pinID
}

// complete says whether as much is here as the server counts, and the stream may be asked whether it is the same; or whether
// this is the first look, to which what goes later is compared.
func (s pinSide) complete(ses *session, info *jetstream.ConsumerInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := ses.slots.above(info.AckFloor.Stream, removed{}).all
	return s.stock.from.started && here > 0 && (here >= info.NumAckPending || !ses.pin.balance.looked)
}

// mark is how things stand before the server is asked what it counts.
func (s pinSide) mark(ses *session) mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return mark{ses.pin.balance.done, s.outbox.allTaken(), ses.pin.last}
}

// gathered takes what the server counts, and when nothing is missing lets what came be handed out. gone is what the stream has
// let go of: it may be here, and is not counted. m was made before the server was asked.
func (s pinSide) gathered(ses *session, info *jetstream.ConsumerInfo, gone removed, m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, p := &s.stock, &ses.pin
	if k.ses != ses || ses.ended || p.lost != nil || !p.gathering {
		return
	}
	if pinnedNow(info) != p.id {
		k.lose(ses, errPinTaken)
		return
	}
	c, exact, now := count{info.Delivered.Consumer, info.NumAckPending}, p.exact(m), k.clock.now()
	floor := info.AckFloor.Stream // up to it all is settled, what is here too
	if c.last > p.last && p.isLost(c.last, now, k.leases.ackWait) {
		p.passed(c.last) // so that what others settled is seen
	}
	if c.last == p.last && exact && k.weigh(ses, c.pending, floor, gone) {
		k.bells.pin.Ring()
		return
	}
	switch p.gathered(c, ses.slots.above(floor, gone), exact, now, k.leases.ackWait) {
	case gatherBack:
		k.giveBackIf(ses, k.mayBeSettled)
		k.bells.pin.Ring()
	case gatherDone:
		k.giveBackIf(ses, isSettled)
		ses.sort()
		k.receiver.rouse()
	}
	// More has come meanwhile, or more acks were taken; else the outbox rings when they are.
	if p.behind(c, m, now, k.leases.ackWait) || !exact && k.outbox.hasTaken() {
		k.bells.pin.Ring()
	}
	k.bells.pull.Ring()
}

// free gives the pin up. Where it is a pause that ends the session, another process may go on.
func (s pinSide) free(ses *session) pinLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, p := &s.stock, &ses.pin
	ours := p.free(k.clock.now(), k.term(ses))
	if k.flow.paused && !k.flow.stopped {
		k.lose(ses, errPinPaused)
	}
	return pinLease{group: p.group, ours: ours}
}
