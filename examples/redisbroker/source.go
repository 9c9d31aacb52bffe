package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is one process of a consumer group; see broker.Source. It implements broker.LagReporter, Pauser, Holder and
// Rebudgeter.
type Source struct {
	cfg     Config
	life    *kit.Life
	events  *kit.EventQueue
	link    *link
	stock   *stock
	sender  *sender
	keeper  *keeper
	pulling chan struct{} // has one element while Receive asks
}

// NewSource makes a source. It connects to nothing. The error says all that is wrong with c.
func NewSource(c Config) (*Source, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Source{cfg: c, life: kit.NewLife("redisbroker"), events: kit.NewEventQueue(), pulling: make(chan struct{}, 1)}
	timeout := min(c.Lease/3, longest)
	s.link = &link{rdb: client(c.Redis, timeout), group: c.Group, me: consumerName(), timeout: timeout, events: s.events}
	s.stock = newStock(c, s.events)
	s.sender = &sender{link: s.link, stock: s.stock, turn: make(chan struct{}, 1)}
	s.keeper = &keeper{link: s.link, stock: s.stock, lease: c.Lease}
	return s, nil
}

// Open subscribes. See broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.life.Begin(o); err != nil {
		return broker.Traits{}, err
	}
	s.events.Observe(o.Observe)
	s.stock.change(func() {
		s.stock.ordered = o.Ordered
		s.stock.gate.SetBudget(o.Budget)
	})
	ctx, free := s.life.While(ctx)
	defer free()
	if err := kit.Retry(ctx, retryPause, s.join, isFinal); err != nil {
		return broker.Traits{}, s.life.Fail(err)
	}
	if err := s.life.Await(ctx, o); err != nil {
		return broker.Traits{}, s.life.Fail(err)
	}
	if err := s.life.Launch(func(run func(func())) {
		for _, part := range []func(context.Context){s.events.Run, s.sender.run, s.keeper.run} {
			run(func() { part(s.life.Context()) })
		}
	}); err != nil {
		return broker.Traits{}, err
	}
	for _, st := range s.stock.streams {
		s.begin(st)
	}
	return broker.Traits{Attempts: broker.AtMost}, nil
}

// begin tells of a claim before Receive sees it.
func (s *Source) begin(st *stream) {
	s.stock.begin(st)
	s.events.Tell()
}

// join makes what is not there.
func (s *Source) join(ctx context.Context) error {
	defer s.events.Tell()
	for _, topic := range s.cfg.Topics {
		if cmd, _ := s.link.run(ctx, beginScript, topic); cmd.Err() != nil {
			return fmt.Errorf("joining group %q of stream %q: %w", s.cfg.Group, topic, cmd.Err())
		}
	}
	return nil
}

// Receive hands out messages. See broker.Source. It prefetches none: what it asks for is what it returns.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	for asked := 1; ; asked++ {
		st, messages, bytes, err := s.stock.next(len(dst))
		if err != nil {
			return 0, err
		}
		if st != nil {
			if n := s.ask(st, messages, bytes, dst); n > 0 {
				return n, nil
			}
			if asked%len(s.stock.streams) != 0 {
				continue // the next one may have some
			}
		}
		select {
		case <-s.stock.wake:
		case <-time.After(poll):
		}
	}
}

// ask asks a stream for messages.
func (s *Source) ask(st *stream, messages int, bytes int64, dst []broker.Message) (n int) {
	ctx := s.life.Context()
	select {
	case s.pulling <- struct{}{}:
		defer func() { <-s.pulling }()
	case <-ctx.Done():
		return 0
	}
	scan, now := 0, time.Now()
	if now.After(st.scanAt) {
		scan, st.scanAt = 1, now.Add(min(s.cfg.Lease/4, time.Second))
	}
	cmd, asked := s.link.run(ctx, pullScript, st.name, min(messages, maxPull), bytes, s.cfg.Lease.Milliseconds(), scan)
	answer, err := cmd.Slice()
	switch {
	case isGone(err):
		s.renew(ctx, st, err)
		return 0
	case isFinal(err):
		s.stock.stop(fmt.Errorf("pulling from %q: %w", st.name, err))
		return 0
	case err != nil:
		return 0
	case answer[0] == int64(1):
		s.renew(ctx, st, errors.New("its group does not know this process"))
		return 0
	}
	if gone, _ := answer[1].(int64); gone > 0 {
		s.events.Say(broker.Event{Kind: broker.Gap, Claim: st.claim.c, N: gone,
			Err: fmt.Errorf("redisbroker: entries of %q were trimmed before anybody handled them", st.name)})
	}
	return s.stock.arrived(st.claim, deliveries(st.name, answer[2]), asked, dst)
}

// renew ends the claim of a stream that was made anew, and begins another: what was out comes again no more, and nothing here may
// be taken for something of the new one.
func (s *Source) renew(ctx context.Context, st *stream, why error) {
	if cmd, _ := s.link.run(ctx, beginScript, st.name); cmd.Err() != nil {
		return // Receive meets it again
	}
	cause := fmt.Errorf("redisbroker: the stream %q, or its group, was made anew: %w (%w)", st.name, why, broker.ErrLost)
	for _, cl := range s.stock.fence(st) {
		s.events.Say(broker.Event{Kind: broker.Gap, Claim: cl.c, N: -1, Err: cause})
		s.finish(cl, cause)
	}
	s.begin(st)
}

// finish ends a claim that is fenced.
func (s *Source) finish(cl *claim, cause error) {
	cl.keeper.End(cause)
	s.events.Say(broker.Event{Kind: broker.Ended, Claim: cl.c, Err: cause})
}

// maxPull bounds how long the server is busy with one question.
const maxPull = 256

var errForeign = fmt.Errorf("redisbroker: settling: %w", broker.ErrForeign)

// own returns the claim's side here; nil: it is of another source.
func (s *Source) own(c *broker.Claim) *claim {
	if cl, ok := c.State.(*claim); ok && cl.stock == s.stock {
		return cl
	}
	return nil
}

// Ack settles messages as handled. See broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	if cl := s.own(c); cl != nil {
		return s.stock.ack(cl, tokens)
	}
	return errForeign
}

// Nack gives messages back. See broker.Source.
func (s *Source) Nack(c *broker.Claim, backs []broker.Back) error {
	if cl := s.own(c); cl != nil {
		return s.stock.nack(cl, backs)
	}
	return errForeign
}

// Lapsed says whether another process may have a message that is out here. See broker.LeaseReporter.
func (s *Source) Lapsed(c *broker.Claim, token uint64) bool {
	cl := s.own(c)
	return cl != nil && s.stock.lapsed(cl, token)
}

// Stop ends pulling. See broker.Source.
func (s *Source) Stop() {
	s.life.Stop()
	s.stock.stop(broker.ErrClosed)
}

// Close ends everything. See broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.Stop()
	return s.life.Close(func() error { return s.shut(ctx) }, func() { _ = s.link.rdb.Close() })
}

// shut is Close's work: fence, end the claims, send what is left, leave. It waits for Receive's question first: an answer that
// came after leaving would bring messages that nobody gives back.
func (s *Source) shut(ctx context.Context) error {
	for _, cl := range s.stock.fence(s.stock.streams...) {
		s.finish(cl, broker.ErrClosed)
	}
	select {
	case s.pulling <- struct{}{}:
	case <-ctx.Done():
	}
	err := kit.Retry(ctx, retryPause, s.sender.leave, isFinal)
	if err != nil {
		err = fmt.Errorf("redisbroker: closing: %w", err)
		s.sender.abandon(err)
	}
	return err
}

// Pause stops the topics. See broker.Pauser.
func (s *Source) Pause(topics ...string) error {
	s.stock.change(func() { s.stock.pauses.Pause(topics...) })
	return nil
}

// Resume undoes Pause. See broker.Pauser.
func (s *Source) Resume(topics ...string) error {
	s.stock.change(func() { s.stock.pauses.Resume(topics...) })
	return nil
}

// Hold holds a claim's stream. See broker.Holder.
func (s *Source) Hold(c *broker.Claim, until time.Time) {
	if cl := s.own(c); cl != nil {
		s.stock.change(func() { cl.of.until = until })
	}
}

// SetBudget changes the budget. See broker.Rebudgeter.
func (s *Source) SetBudget(b broker.Budget) {
	s.stock.change(func() { s.stock.gate.SetBudget(b) })
}

// Lag returns the last known figures, those of the group. See broker.LagReporter.
func (s *Source) Lag() broker.Lag {
	if l := s.keeper.lag.Load(); l != nil {
		return *l
	}
	return broker.UnknownLag()
}
