package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// pullTimes are how long the server keeps a request that it cannot answer, and how often it says that it does. The server wants
// room for two heartbeats; a consumer may allow less than 30 s.
func pullTimes(heartbeat, most time.Duration) (expires, beat time.Duration) {
	expires = max(30*time.Second, 3*heartbeat)
	if most > 0 {
		expires = min(expires, most)
	}
	return expires, min(heartbeat, expires/3)
}

// pullLoop keeps requests with the server: for freed budget, and anew when they are void.
func (s *Source) pullLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.Heartbeat / 4)
	defer t.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.work:
		case <-t.C:
			s.checkQuiet(&q)
		}
		s.mu.Lock()
		idle := s.givesBack() || s.closing || s.ses == nil || s.ses.ended || s.ses.pin.lost != nil
		var old *inbox
		if idle {
			old = s.leaveInbox()
		}
		revive := !idle && (s.revive || s.in == nil) && s.clock() >= s.barren.until
		s.mu.Unlock()
		drain(old)
		if old != nil {
			s.forgetPulls(ctx)
		}
		if idle || (revive && !s.renew(ctx, &q)) {
			s.outbox.wake.ring()
			continue
		}
		s.pull()
	}
}

// quiet follows when something was last heard.
type quiet struct {
	heard uint64 // answers to pulls
	since int64
	reads uint64 // of the socket
	still int64  // since when there were none
}

// checkQuiet notices requests that the server does not know any more, and a connection on which nothing comes back.
func (s *Source) checkQuiet(q *quiet) {
	now, patience := s.clock(), 2*int64(s.cfg.Heartbeat)
	if r := s.link.reads(); r != q.reads {
		q.reads, q.still = r, now
	}
	s.mu.Lock()
	if s.heard != q.heard || s.credit.asked == 0 {
		q.heard, q.since = s.heard, now
	}
	var err error
	switch {
	case s.revive || s.ses == nil:
	case s.standsBy(): // a server that is busy with whoever is pinned sends no heartbeats to others
		s.revive = now-q.since > patience
	case now-q.since > patience:
		err = fmt.Errorf("natsbroker: no heartbeat of consumer %s for %v", s.cfg.Consumer, time.Duration(now-q.since).Round(time.Millisecond))
	case now-s.contact > patience+s.ackWait():
		err = errors.New("natsbroker: the server does not answer")
	}
	if err != nil {
		s.revive = true
	}
	if s.revive {
		q.since = now
	}
	s.mu.Unlock()
	if err != nil {
		s.herald.tell(broker.Event{Kind: broker.Down, Err: err})
	}
	if nc := s.link.conn(); nc != nil && nc.IsConnected() && now-q.still > patience && now-s.lastContact() > patience+s.ackWait()/3 {
		// A half-open connection: the socket gives no byte though we asked. A new one is found sooner than this one mends.
		q.still = now
		_ = nc.ForceReconnect()
	}
}

func (s *Source) lastContact() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact
}

// renew makes a round trip, sends again the acks that may be lost, and makes a new inbox.
func (s *Source) renew(ctx context.Context, q *quiet) bool {
	nc := s.link.conn()
	if nc == nil || !nc.IsConnected() {
		return false
	}
	s.mu.Lock()
	s.revive = false // a connection lost from now on sets it again
	s.mu.Unlock()
	s.outbox.reconnected(epochOf(nc))
	if !s.makeContact(ctx) || !s.newInbox(nc) {
		s.mu.Lock()
		s.revive = true
		s.mu.Unlock()
		return false
	}
	s.mu.Lock()
	q.heard, q.since = s.heard, s.clock()
	s.mu.Unlock()
	s.herald.tell(broker.Event{Kind: broker.Up})
	return true
}

func (s *Source) newInbox(nc *nats.Conn) bool {
	s.mu.Lock()
	ses := s.ses
	s.mu.Unlock()
	b := &inbox{src: s, ses: ses, prefix: nc.NewInbox() + "."}
	sub, err := nc.Subscribe(b.prefix+"*", b.arrived)
	if err != nil {
		return false
	}
	b.sub = sub
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		drain(b)
		return false
	}
	s.mu.Lock()
	if s.closing || s.ses != ses { // it has left its inbox already
		s.mu.Unlock()
		drain(b)
		return false
	}
	old := s.leaveInbox()
	s.in = b
	s.mu.Unlock()
	drain(old)
	return true
}

// leaveInbox voids the requests. The caller holds s.mu, and drains what is returned after that.
func (s *Source) leaveInbox() *inbox {
	old := s.in
	s.in = nil
	if old != nil {
		old.retired, old.owed = true, s.credit.asked
	}
	s.credit.reset()
	return old
}

// drain takes an inbox's requests away from the server. What was sent already is still received; what the server finds no one
// waiting for, it delivers again at once.
func drain(b *inbox) {
	if b != nil {
		_ = b.sub.Drain() // fails only where the connection, and with it the requests, is gone
	}
}

// forgetPulls has the server forget requests whose inbox was left while we stood by. By itself it does so later, and until then
// pins one of them for nobody: it takes the first of the group for the next message, and only then looks whether somebody still
// waits there (nextWaiting of nats-server 2.15). A consumer's info makes it look at once.
func (s *Source) forgetPulls(ctx context.Context) {
	s.mu.Lock()
	stoodBy := s.standsBy()
	s.mu.Unlock()
	if !stoodBy || !s.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _ = s.askInfo(ctx) // when it fails, the pin that is for nobody goes by its timeout
}

// wantPull has pullLoop ask for more, if it is worth a request. The caller holds s.mu.
func (s *Source) wantPull() {
	if s.in == nil {
		return
	}
	if _, ok := s.nextRequest(); ok {
		s.poke()
	}
}

// nextRequest says what to ask for now. The caller holds s.mu.
func (s *Source) nextRequest() (request, bool) {
	if s.group != "" && s.ses != nil {
		return s.ses.pin.next(&s.credit)
	}
	return s.credit.next()
}

// standsBy says that another process is pinned, or nobody yet. The caller holds s.mu.
func (s *Source) standsBy() bool {
	return s.group != "" && s.ses != nil && (s.ses.pin.id == "" || s.ses.pin.lost != nil)
}

// pull sends what the credit allows.
func (s *Source) pull() {
	for {
		s.mu.Lock()
		b := s.in
		if b == nil || s.revive || s.clock() < max(s.notBefore, s.barren.until) {
			s.mu.Unlock()
			return
		}
		r, ok := s.nextRequest()
		if ok {
			s.credit.sent(r)
			b.ses.pin.want, b.ses.pin.twice = 0, 0
		}
		group, id := s.group, b.ses.pin.id
		expires, beat := pullTimes(s.cfg.Heartbeat, s.maxExpires)
		s.mu.Unlock()
		if !ok {
			return
		}
		reply := b.prefix + strconv.FormatUint(r.id, 10)
		if s.link.conn().PublishRequest(s.cfg.apiSubject("MSG.NEXT"), reply, r.body(expires, beat, group, id)) != nil {
			s.mu.Lock()
			s.revive = true
			s.mu.Unlock()
			return
		}
	}
}

// react does what an answer without a message asks for.
func (s *Source) react(st status) {
	switch st.verdict {
	case pullAlive:
		return
	case pullReset:
		s.mu.Lock()
		s.revive = true
		s.mu.Unlock()
	case pullRefused:
		s.holdOff(time.Second)
		s.herald.warn(fmt.Errorf("natsbroker: consumer %s refused a pull: %s", s.cfg.Consumer, st.text))
	case pullAbsent:
		s.holdOff(250 * time.Millisecond)
		s.lookNow()
	case pullDeleted:
		s.lookNow()
	case pullBroken:
		s.fail(fmt.Errorf("natsbroker: consumer %s refused a pull for good: %s", s.cfg.Consumer, st.text))
	}
	s.poke()
}

// holdOff lets no pull be sent for a while.
func (s *Source) holdOff(d time.Duration) {
	s.mu.Lock()
	s.notBefore = max(s.notBefore, s.clock()+int64(d))
	s.mu.Unlock()
	time.AfterFunc(d, s.poke)
}

func (s *Source) lookNow() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}
