package natsbroker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// How a lease is kept, and when it is known to have run out.
//
// The server counts AckWait from when it sent a message, or from the last +WPI. It does not fence: a -NAK or +WPI by a holder
// whose time is over takes the message away from, or keeps it with, whoever has it now. So both are sent only while the lease
// certainly holds, by the local clock.
//
// What is certain comes from round trips alone. A frozen process finds its socket full of messages that look fresh, and a network
// that heals delivers late. But when a PONG has come, the server had read the PING, and all before it, after the PING was sent;
// and whatever it sent after the PONG, it sent later still. So contact is the time of the last answered PING, a message's lease
// counts from the contact at its receipt, and a round of extensions counts from its own time once a PING sent after it is
// answered.
//
// Receipt is when the socket was read, and what was read before a PONG may be handled after it. The sequence: a process wakes up
// and reads, in one go, deliveries of a minute ago and behind them the PONG to its first PING; the contact moves on while most of
// the deliveries still wait for their turn; they get a lease from now, and are handed out beside the process that has them. So a
// contact counts only once all that was read before its PONG has been handled.

// expired says whether the server may have given the message to another. The caller holds s.mu.
func (s *Source) expired(sl *slot, now int64) bool { return now-sl.lease >= s.ackWait() }

// extendLoop sends +WPI for all that is here, every AckWait/3, from receipt: what waits in the engine's queue is in here too.
func (s *Source) extendLoop(ctx context.Context) {
	for sleep(ctx, time.Duration(s.ackWait())/3) {
		if !s.link.connected() {
			continue // nothing may wait in a buffer until it is too late
		}
		nc := s.link.conn()
		for _, reply := range s.extensions(epochOf(nc)) {
			if nc.Publish(reply, bodyProgress) != nil {
				break // the connection went; what was not extended shows by the next contact
			}
		}
		s.askContact()
	}
}

var bodyProgress = []byte("+WPI")

// extensions begins a round, over the given connection, and returns the replies to extend.
func (s *Source) extensions(over connEpoch) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	s.roundOver = over
	s.tick = s.clock()
	ses := s.ses
	if ses == nil || ses.ended || ses.slots.used == 0 {
		return nil
	}
	replies := make([]string, 0, ses.slots.used)
	for i := range ses.slots.all {
		sl := &ses.slots.all[i]
		if sl.state == slotFree {
			continue
		}
		if s.expired(sl, s.tick) || s.tick-sl.since >= int64(s.cfg.MaxHold) {
			sl.round = s.round + 1 // not part of this round
			continue
		}
		replies = append(replies, sl.reply)
	}
	return replies
}

func (s *Source) askContact() {
	select {
	case s.ping <- struct{}{}:
	default:
	}
}

// contactLoop finds out when the server last answered: after each round, and between two, since what arrives has a lease only
// from the last contact.
func (s *Source) contactLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ping:
		case <-time.After(min(time.Duration(s.ackWait())/6, reviewEvery)):
		}
		if s.makeContact(ctx) {
			s.outbox.review(epochOf(s.link.conn()), s.ackWait())
		}
	}
}

// makeContact sends a PING and, when it is answered, moves leases on.
func (s *Source) makeContact(ctx context.Context) bool {
	nc := s.link.conn()
	if nc == nil || !nc.IsConnected() {
		return false
	}
	s.mu.Lock()
	round, over := s.round, s.roundOver
	s.mu.Unlock()
	here := epochOf(nc)
	at := s.clock()
	ctx, cancel := context.WithTimeout(ctx, min(max(time.Duration(s.ackWait()), time.Second), 2*s.cfg.Heartbeat))
	defer cancel()
	if nc.FlushWithContext(ctx) != nil || !handled(ctx, nc) || epochOf(nc) != here {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = max(s.contact, at)
	if ses := s.ses; ses != nil && over == here {
		for i := range ses.slots.all {
			if sl := &ses.slots.all[i]; sl.state != slotFree && sl.round <= round {
				sl.lease = max(sl.lease, at)
			}
		}
	}
	return true
}

// handled waits until all that was read from the connection has been handled, and says whether it has.
func handled(ctx context.Context, nc *nats.Conn) bool {
	done := make(chan struct{})
	if nc.Barrier(func() { close(done) }) != nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
