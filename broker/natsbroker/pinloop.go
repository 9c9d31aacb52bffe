package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// tendPin has pinLoop look at everything. It does not block.
func (s *Source) tendPin() {
	select {
	case s.pinned <- struct{}{}:
	default:
	}
}

// pinLoop keeps the pin, gathers what is missing after it was got, and ends the session when it is lost.
func (s *Source) pinLoop(ctx context.Context) {
	for wait := time.Duration(0); ; wait = s.tend(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-s.pinned:
		case <-time.After(wait):
		}
	}
}

// A duty is what there is to do about the pin.
type duty int

const (
	pinRest   duty = iota
	pinRevoke      // it is lost: say so
	pinEnd         // and now the session is over
	pinFree        // it is not needed
	pinRenew       // it is time
	pinGather
)

// tend does one thing, and returns after how long to look again.
func (s *Source) tend(ctx context.Context) time.Duration {
	s.mu.Lock()
	ses := s.ses
	if s.group == "" || ses == nil || ses.ended || s.closing || s.fatal != nil {
		s.mu.Unlock()
		return s.cfg.Heartbeat
	}
	d, wait := s.duty(ses, s.clock())
	if d == pinRevoke {
		s.revoke(ses)
	}
	s.mu.Unlock()
	switch d {
	case pinEnd:
		s.endSession(ses)
	case pinFree:
		s.unpin(ctx, ses)
	case pinRenew:
		s.renewPin(ctx, ses)
	case pinGather:
		s.gather(ctx, ses)
	}
	return wait
}

// duty says what to do, and when to look again. The caller holds s.mu.
func (s *Source) duty(ses *session, now int64) (duty, time.Duration) {
	p, every := &ses.pin, renewEvery(s.term())
	if p.lost == nil && p.doubtful(now, s.term()) {
		s.lose(ses, errPinSilent)
	}
	switch {
	case p.lost != nil && p.by == 0:
		return pinRevoke, 0
	case p.lost != nil && (ses.out == 0 || now >= p.by):
		return pinEnd, 0
	case p.lost != nil:
		return pinRest, min(time.Duration(p.by-now), every)
	case p.id == "" || p.freed:
		return pinRest, every
	case s.givesBack() && ses.out == 0 && ses.ready.n == 0:
		return pinFree, 0
	case now-p.renewed >= int64(every):
		return pinRenew, 0
	case p.gathering && !s.givesBack():
		return pinGather, min(time.Duration(gatherPause(s.ackWait())), every)
	}
	return pinRest, max(every-time.Duration(now-p.renewed), time.Millisecond)
}

func (s *Source) term() int64 { return term(s.ackWait(), s.pinTTL) }

// mine says whether a delivery is for the session as it is. The caller holds s.mu.
func (s *Source) mine(ses *session, id, reply string, d delivery) bool {
	p := &ses.pin
	if p.lost == nil && id == "" {
		s.lose(ses, errNotPinned)
		s.failed(fmt.Errorf("natsbroker: consumer %s of stream %s: it pins no process any more", s.cfg.Consumer, s.cfg.Stream))
	}
	if p.lost == nil && p.id != "" && p.id != id {
		s.lose(ses, errPinTaken)
	}
	if p.lost != nil {
		if ses.slots.find(d.stream, d.nanos) == nil {
			s.outbox.nak(reply, 0, s.contact+s.ackWait())
			return false
		}
		return true // it runs here: its lease counts anew
	}
	if p.id == "" {
		p.id, p.seen, p.gathering = id, s.contact, true
		ses.assigned = true
		if s.credit.asked > 0 { // a second request, of another inbox: without the pin's id nobody answers it now
			s.revive = true
			s.poke()
		}
		s.herald.tell(broker.Event{Kind: broker.Assigned, Claim: ses.claim})
	}
	p.last, p.again, p.arrived = max(p.last, d.consumer), d.delivered > 1, s.clock()
	if p.gathering {
		if ses.slots.find(d.stream, d.nanos) != nil {
			p.twice++
		}
		s.tendPin()
	}
	return true
}

// regather has nothing handed out until all that is unsettled is here. The caller holds s.mu.
func (s *Source) regather(ses *session) {
	if p := &ses.pin; p.id != "" && p.lost == nil {
		p.gathering = true
		s.tendPin()
	}
}

// lose is the beginning of the end of a session: nothing more of it is handed out, and what was not goes back. Whoever is pinned
// next waits for what is out. The caller holds s.mu.
func (s *Source) lose(ses *session, why error) {
	if ses.pin.lost != nil || ses.ended {
		return
	}
	ses.pin.lost = why
	s.dropReady(ses)
	s.poke()
	s.tendPin()
}

// revoke announces the end. The caller holds s.mu.
func (s *Source) revoke(ses *session) {
	now, p := s.clock(), &ses.pin
	p.by = now + int64(s.cfg.RevokeWait)
	if errors.Is(p.lost, errPinSilent) { // then they may run elsewhere
		p.by = min(p.by, max(p.seen+s.term(), now))
	}
	ses.keeper.Revoke(s.base.Add(time.Duration(p.by)))
}

// endSession ends a session and begins another, which stands by. What is still out comes again when its handler has returned, or
// its ack wait is over.
func (s *Source) endSession(ses *session) {
	s.mu.Lock()
	if ses.ended {
		s.mu.Unlock()
		return
	}
	ses.ended = true // the fence
	cause := fmt.Errorf("%w: natsbroker: consumer %s: %w", broker.ErrLost, s.cfg.Consumer, ses.pin.lost)
	s.mu.Unlock()
	ses.keeper.End(cause)
	if ses.assigned {
		s.herald.tell(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: cause})
	}
	s.mu.Lock()
	var old *inbox
	if s.ses == ses && s.fatal == nil && !s.closing {
		next := newSession(s, ses.claim.Topic, s.opts.Budget.Messages)
		next.at, next.highest = ses.at, ses.highest
		s.ses = next
		old = s.leaveInbox() // its requests carry the pin's id
	}
	s.mu.Unlock()
	drain(old)
	s.poke()
}

// renewPin tells the server that we are here, and learns whether we are still pinned.
func (s *Source) renewPin(ctx context.Context, ses *session) {
	s.mu.Lock()
	id, group := ses.pin.id, s.group
	sent := s.clock()
	ses.pin.renewed = sent
	s.mu.Unlock()
	if !s.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.term()/2))
	defer cancel()
	m, err := s.link.conn().RequestWithContext(ctx, s.cfg.apiSubject("MSG.NEXT"), renewal(group, id))
	if err != nil {
		return // it shows by what was not confirmed
	}
	st := readStatus(m.Header)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st.verdict {
	case pullEnded, pullTooLarge:
		ses.pin.seen = max(ses.pin.seen, sent)
		s.rouse() // it may have been in doubt
	case pullUnpinned:
		s.lose(ses, errPinTaken)
	}
}

// gather looks what is missing, and when nothing is, lets what came be handed out.
func (s *Source) gather(ctx context.Context, ses *session) {
	s.herald.flush() // the claim is known before anything of it is handed out
	if !s.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.term()/2))
	defer cancel()
	info, err := s.askInfo(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &ses.pin
	if s.ses != ses || ses.ended || p.lost != nil || !p.gathering {
		return
	}
	if pinnedNow(info) != p.id {
		s.lose(ses, errPinTaken)
		return
	}
	now := s.clock()
	n, sure := p.missing(count{info.Delivered.Consumer, info.NumAckPending}, ses.slots.used, now, s.ackWait())
	if n == 0 && sure {
		p.gathering, p.want = false, 0
		ses.sortReady()
		s.rouse()
	} else {
		p.want = p.wants(n, sure, now, gatherPause(s.ackWait()))
	}
	if info.Delivered.Consumer < p.last { // more has come meanwhile
		s.tendPin()
	}
	s.poke()
}

// checkPin takes what an info says that was asked for when the pin had this id. The caller holds s.mu.
func (s *Source) checkPin(ses *session, id string, info *jetstream.ConsumerInfo) {
	if id != "" && ses.pin.id == id && pinnedNow(info) != id && !ses.pin.freed {
		s.lose(ses, errPinTaken)
	}
}

// unpin lets another process go on, at Stop and Pause when nothing is out any more, and at Close. It does so only while the pin
// is ours for certain, or it would take it from another. Where it is not allowed, the pin goes by its timeout.
func (s *Source) unpin(ctx context.Context, ses *session) {
	s.mu.Lock()
	p := &ses.pin
	ours := p.id != "" && p.lost == nil && !p.freed && !p.doubtful(s.clock(), s.term())
	p.freed = true
	if s.paused && !s.stopped {
		s.lose(ses, errPinPaused)
	}
	body := fmt.Sprintf(`{"group":%q}`, s.group)
	s.mu.Unlock()
	nc := s.link.conn()
	if !ours || nc == nil || !nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _ = nc.RequestWithContext(ctx, s.cfg.apiSubject("UNPIN"), []byte(body))
}

// pinOf takes the pin's id out of a message, where there is a group, and says how large the message is for the pull that it
// answers: the server counts it before it writes the id.
func (s *Source) pinOf(m *nats.Msg) (id string, size int) {
	size = m.Size()
	if s.group == "" {
		return "", size
	}
	if id = takePinID(m.Header); id != "" {
		size -= len(pinHeader) + len(": ") + len(id) + len("\r\n")
		if len(m.Header) == 0 {
			size -= len("NATS/1.0\r\n\r\n")
		}
	}
	return id, size
}
