package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// lag is what is known of how far the consumer is behind: from its info, and between two of them from the deliveries themselves.
// Guarded by Source.mu.
type lag struct {
	known   bool
	waiting int64
	unacked int64 // delivered to anybody and not settled
	pinned  bool  // somebody is
	at      time.Time
}

func (l *lag) polled(info *jetstream.ConsumerInfo, now time.Time) {
	l.known, l.at = true, now
	l.waiting, l.unacked = int64(info.NumPending), int64(info.NumAckPending)
	l.pinned = pinnedNow(info) != ""
}

// delivered takes what a delivery's reply subject says: how many were waiting behind it.
func (l *lag) delivered(d delivery) {
	if l.known {
		l.waiting = int64(d.pending)
	}
}

// Lag implements broker.LagReporter.
func (s *Source) Lag() broker.Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lag.known {
		return broker.UnknownLag()
	}
	here := int64(s.credit.out + s.credit.buffered)
	if s.standsBy() && s.lag.pinned { // all of it is another's to do
		return broker.Lag{Unsettled: here, At: s.lag.at}
	}
	return broker.Lag{
		Waiting:   s.lag.waiting,
		Unsettled: s.lag.waiting + max(s.lag.unacked, here),
		Group:     s.group == "",
		At:        s.lag.at,
	}
}

// watchLoop asks for the consumer's info: for lag, and because a deleted or recreated consumer says nothing by itself while
// nothing is asked of it.
func (s *Source) watchLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.Poll)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.look:
		}
		if s.link.connected() {
			s.watch(ctx, n%5 == 0)
		}
	}
}

// watch looks once.
func (s *Source) watch(ctx context.Context, stream bool) {
	s.mu.Lock()
	ses, failed, id := s.ses, s.fatal != nil, ""
	suspect := ses != nil && ses.suspect
	if ses != nil {
		id = ses.pin.id
	}
	s.mu.Unlock()
	if ses == nil || failed {
		return
	}
	info, err := s.askInfo(ctx)
	if missing(err) {
		// A cluster that is choosing its leader may say so for a moment.
		if !sleep(ctx, 250*time.Millisecond) {
			return
		}
		info, err = s.askInfo(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case missing(err):
		s.replace(ctx, ses, fmt.Errorf("natsbroker: consumer %s of stream %s was deleted: %w", s.cfg.Consumer, s.cfg.Stream, err))
	case err != nil: // says nothing; the connection has its own events
	case !info.Created.Equal(s.created):
		s.replace(ctx, ses, fmt.Errorf("natsbroker: consumer %s of stream %s was deleted and made anew", s.cfg.Consumer, s.cfg.Stream))
	default:
		s.learn(ses, info, suspect, id)
		if stream {
			s.checkStream(ctx, info)
		}
	}
}

func missing(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *Source) askInfo(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	js, err := s.cfg.api(s.link.conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cons, err := js.Consumer(ctx, s.cfg.Stream, s.cfg.Consumer)
	if err != nil {
		return nil, err
	}
	return cons.CachedInfo(), nil
}

// learn takes an info of the consumer as it should be. suspect: it was asked for because of a suspicion, and after it. pinID was
// our pin's when it was asked for.
func (s *Source) learn(ses *session, info *jetstream.ConsumerInfo, suspect bool, pinID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkPin(ses, pinID, info)
	if suspect { // it is the same consumer: what was finished is finished
		for _, reply := range ses.limbo {
			s.outbox.ack(reply)
		}
		ses.limbo, ses.suspect = nil, false
	}
	s.lag.polled(info, time.Now())
	s.from.floor = info.AckFloor.Stream
	if g, ok := ses.at.polled(point{info.Delivered.Consumer, info.Delivered.Stream}); ok && !ses.ended {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: ses.claim, From: int64(g.from), N: g.n})
	}
}

// checkStream looks for a consumer that stands behind the end of its stream, as after a loss of power: it waits for ever, and
// looks drained.
func (s *Source) checkStream(ctx context.Context, info *jetstream.ConsumerInfo) {
	js, err := s.cfg.api(s.link.conn())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	st, err := js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return
	}
	// The stream was asked after the consumer, so a stream that grows is never behind.
	if last := st.CachedInfo().State.LastSeq; info.Delivered.Stream > last {
		s.herald.warn(fmt.Errorf("natsbroker: consumer %s stands at %d, after the end of stream %s at %d: it will get nothing until the stream is there",
			s.cfg.Consumer, info.Delivered.Stream, s.cfg.Stream, last))
	}
}
