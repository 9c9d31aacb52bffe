package natsbroker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// pullSide is the puller's side of the holdings.
type pullSide struct{ *holdings }

// A pullStep is what to do now.
type pullStep struct {
	idle   bool    // nothing may be asked for
	old    inboxes // to be drained
	revive bool    // the requests are void
}

func (s pullSide) step() (p pullStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	switch {
	case k.flow.fatal != nil || k.flow.closing:
		p.idle, p.old = true, k.pulls.leaveAll()
	case k.flow.givesBack() || k.ses == nil || k.ses.ended || k.ses.pin.lost != nil:
		p.idle, p.old = true, append(k.pulls.lingered(k.clock.now()), k.leave())
	default:
		p.old = k.pulls.lingered(k.clock.now())
	}
	p.revive = !p.idle && k.pulls.mayRevive(k.clock.now())
	return p
}

// listen looks whether something is heard of the server; where not, all is to be asked anew.
func (s pullSide) listen(q *quiet, patience int64) (signs, silenceKind, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	now := signs{
		now: k.clock.now(), heard: k.pulls.heard, asked: k.pulls.asked > 0, idle: k.pulls.revive || k.ses == nil,
		standsBy: k.standsBy(), contact: k.leases.contact, ackWait: k.leases.ackWait,
		crowded: k.pulls.crowded,
	}
	v, since := q.look(now, patience)
	k.pulls.revive = k.pulls.revive || v != notSilent && v != silenceOver
	if v == pullSilent || v == noAnswer {
		k.doubt()
	}
	return now, v, since
}

// revive says that the requests are void; reviving that this is being mended: a connection lost from now on voids them again.
func (s pullSide) revive()   { s.setRevive(true) }
func (s pullSide) reviving() { s.setRevive(false) }

func (s pullSide) setRevive(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.pulls.revive = on
}

// heard is how many answers there were.
func (s pullSide) heard() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.pulls.heard
}

func (s pullSide) session() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.ses
}

// enter has pulls answered at an inbox from now on. One inbox is to be drained: the one before, unless it is to be listened to,
// or this one, where it came too late.
func (s pullSide) enter(b *inbox) (old *inbox, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	// What has ended has left its inbox already, and what is asked for at this one would not be listened to.
	if k.flow.closing || k.ses != b.ses || b.ses.ended {
		return b, false
	}
	old = k.leave()
	k.pulls.enter(b)
	return old, true
}

// A pull is one request to send, and to which inbox it is answered.
type pull struct {
	request
	to         *inbox
	group, pin string
	maxExpires time.Duration
}

// next says what to send now, and counts it as sent.
func (s pullSide) next() (p pull, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.stock
	if !k.pulls.mayPull(k.clock.now()) {
		return p, false
	}
	r, ok := k.nextRequest()
	if !ok {
		return p, false
	}
	k.pulls.sent(r)
	k.pulls.lastSent = k.clock.now()
	k.pulls.meter.send(r.id, k.pulls.lastSent)
	to := k.pulls.in
	to.stood = to.ses.pin.group != "" && to.ses.pin.id == ""
	to.ses.pin.asked()
	return pull{r, to, to.ses.pin.group, to.ses.pin.id, k.pulls.maxExpires}, true
}

// delivered takes a delivery, and says which requests are over by it.
func (s pullSide) delivered(b *inbox, m *nats.Msg, d delivery) (ended []endedPull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.arrived(b, m, d)
	return s.stock.pulls.over(0, status{})
}

// answered takes an answer without a message, and says whether it is about a request that counts, and which requests are over
// by it.
func (s pullSide) answered(b *inbox, id uint64, st status) (current bool, ended []endedPull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current = s.stock.answered(b, id, st)
	return current, s.stock.pulls.over(id, st)
}

// refused counts a request that was refused, and says how many are to be told now.
func (s pullSide) refused() (tell int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock.pulls.refused.happened(s.stock.clock.now())
}

// holdOff lets no pull be sent for a while.
func (s pullSide) holdOff(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock.pulls.notBefore = max(s.stock.pulls.notBefore, s.stock.clock.now()+int64(d))
}
