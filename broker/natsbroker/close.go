package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// Close implements broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		defer close(s.closed)
		s.closeErr = s.shut(ctx)
	})
	<-s.closed
	return s.closeErr
}

func (s *Source) shut(ctx context.Context) error {
	s.Stop()
	s.stopOpen()
	s.opening.Lock() // Open has returned
	defer s.opening.Unlock()
	s.mu.Lock()
	s.closing = true
	ses, h := s.ses, s.herald
	if ses != nil && ses.ended {
		ses = nil
	}
	if ses != nil {
		ses.ended = true
	}
	old := s.leaveInbox()
	s.mu.Unlock()
	drain(old) // before anything is given back, or it comes to us again
	if ses != nil {
		ses.keeper.End(fmt.Errorf("natsbroker: %w", broker.ErrClosed))
		if ses.assigned {
			h.tell(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: ses.claim.Cause()})
		}
		s.giveBackAll(ses)
	}
	err := s.finish(ctx)
	s.forgetPulls(ctx)
	if ses != nil && err == nil {
		s.unpin(ctx, ses)
	}
	s.end()
	s.link.close()
	s.wg.Wait()
	if h != nil {
		if n := s.outbox.unsaid(); n > 0 {
			h.tell(broker.Event{Kind: broker.Unconfirmed, N: int64(n),
				Err: errors.New("natsbroker: Close ended before the server had certainly received these settles")})
		}
		h.close()
	}
	return err
}

// giveBackAll naks, in the stream's order, what was never settled. What is out keeps its slot, for the engine's settle frees it.
func (s *Source) giveBackAll(ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.givenBack = true
	now := s.clock()
	var held []int32
	for i := range ses.slots.all {
		if ses.slots.all[i].state != slotFree {
			held = append(held, int32(i))
		}
	}
	slices.SortFunc(held, func(a, b int32) int {
		if ses.slots.all[a].seq < ses.slots.all[b].seq {
			return -1
		}
		return 1
	})
	for _, i := range held {
		if sl := &ses.slots.all[i]; !s.expired(sl, now) {
			s.outbox.nak(sl.reply, 0, sl.lease+s.ackWait())
		}
	}
	for ses.ready.n > 0 {
		s.drop(ses, ses.ready.pop())
	}
}

// finish waits until the server has received all settles, or ctx ends.
func (s *Source) finish(ctx context.Context) error {
	s.mu.Lock()
	started := s.ses != nil
	s.mu.Unlock()
	if !started {
		return nil
	}
	for {
		left, _ := s.outbox.left()
		nc := s.link.conn()
		if left == 0 && !nc.IsConnected() {
			return nil
		}
		if nc.IsConnected() && (s.flush(ctx, nc) || s.forsaken(ctx)) {
			return nil
		}
		if !sleep(ctx, 10*time.Millisecond) {
			if left, _ = s.outbox.left(); left == 0 {
				return nil
			}
			return fmt.Errorf("natsbroker: closing: %d settles did not reach the server: %w", left, context.Cause(ctx))
		}
	}
}

// flush makes sure that what is on its way to us was sent back, and that what is on its way to the server arrived.
func (s *Source) flush(given context.Context, nc *nats.Conn) bool {
	ctx, cancel := context.WithTimeout(given, requestTimeout)
	defer cancel()
	s.outbox.reconnected(epochOf(nc))
	if nc.FlushWithContext(ctx) != nil { // the server has let go of our pulls
		return false
	}
	if !handled(ctx, nc) { // what came before that is in the outbox
		return false
	}
	for s.outbox.pending() > 0 {
		if !nc.IsConnected() || !sleep(ctx, time.Millisecond) {
			return false
		}
	}
	if !s.makeContact(ctx) {
		return false
	}
	s.outbox.review(epochOf(nc), s.ackWait())
	return s.awaitReceipts(ctx, given, nc)
}

// awaitReceipts waits until the consumer has taken all acks, or there is no use in waiting: one that is there, and has given none
// for so long, was set back by a crash of the server and does not know the messages, which come again.
func (s *Source) awaitReceipts(ctx, given context.Context, nc *nats.Conn) bool {
	for {
		left, refused := s.outbox.left()
		switch {
		case left == 0:
			return true
		case refused || !nc.IsConnected():
			return false
		case !sleep(ctx, time.Millisecond):
			if !s.makeContact(given) {
				return false
			}
			s.outbox.abandon()
			return true
		}
	}
}

// forsaken says that the consumer is no more, so that nothing can be settled.
func (s *Source) forsaken(ctx context.Context) bool {
	info, err := s.askInfo(ctx)
	if missing(err) && sleep(ctx, 250*time.Millisecond) { // a cluster that is choosing its leader may say so for a moment
		info, err = s.askInfo(ctx)
	}
	s.mu.Lock()
	created := s.created
	s.mu.Unlock()
	if !missing(err) && (err != nil || info.Created.Equal(created)) {
		return false
	}
	s.outbox.abandon()
	return true
}
