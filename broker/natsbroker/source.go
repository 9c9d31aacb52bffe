package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is a JetStream consumer. It implements broker.Source, broker.LagReporter, broker.Pauser (all only) and
// broker.Rebudgeter.
//
// Delivery is at least once. Message.Attempt is an upper bound, since JetStream counts deliveries that no handler saw. Delays of
// Nack are kept by the server, and occupy MaxAckPending while they wait. With Options.Ordered one process of a consumer at a time
// gets messages; while one waits for the delay of a Nack, it gets no others.
type Source struct {
	cfg    Config
	life   *kit.Life
	events *kit.EventQueue
	link   *link
	bells  bells

	held   *holdings // what is here, and what becomes of it
	outbox *outbox   // what has yet to be said to the server

	writer  *outboxWriter
	leases  *leaseKeeper
	puller  *puller
	pinner  *pinner
	watcher *watcher
	closer  *closer

	opening sync.Mutex // held by Open, so that Close does not take the connection from under it
}

var (
	_ broker.Source      = (*Source)(nil)
	_ broker.LagReporter = (*Source)(nil)
	_ broker.Pauser      = (*Source)(nil)
	_ broker.Rebudgeter  = (*Source)(nil)
)

// NewSource checks cfg and returns a source that is not yet connected. The error names every field that is wrong.
func NewSource(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Source{cfg: cfg, life: kit.NewLife("natsbroker"), events: kit.NewEventQueue(), bells: newBells()}
	clock, c := newClock(), &s.cfg
	s.link = newLink(cfg.Connection, hooks{lost: s.lost, back: s.back, problem: s.problem})
	s.outbox = newOutbox(clock.now, s.unsent, s.late)
	s.held = newHoldings(c, clock, s.outbox, s.events, s.bells)
	consumer := &remoteConsumer{c, s.link}

	s.writer = &outboxWriter{box: s.outbox, link: s.link}
	s.leases = &leaseKeeper{side: leaseSide{s.held}, link: s.link, outbox: s.outbox, heartbeat: c.Heartbeat, maxHold: c.MaxHold, ask: newBell()}
	s.puller = &puller{
		side: pullSide{s.held}, clock: clock, events: s.events, link: s.link, outbox: s.outbox, leases: s.leases, consumer: consumer,
		look: s.bells.pull, gone: s.bells.watch, heartbeat: c.Heartbeat,
	}
	s.pinner = &pinner{
		side: pinSide{s.held}, events: s.events, link: s.link, consumer: consumer, look: s.bells.pin, pull: s.bells.pull, idle: c.Heartbeat,
	}
	s.watcher = &watcher{cfg: c, side: watchSide{s.held}, events: s.events, link: s.link, consumer: consumer, now: s.bells.watch}
	s.closer = &closer{watched: watchSide{s.held}, link: s.link, outbox: s.outbox, leases: s.leases, consumer: consumer}
	return s, nil
}

// Open implements broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.life.Begin(o); err != nil {
		return broker.Traits{}, err
	}
	s.held.open(o)
	s.events.Observe(o.Observe)
	s.life.Go(func() { s.events.Run(s.life.Context()) })
	d, err := s.connect(ctx, o)
	if err != nil {
		return broker.Traits{}, err
	}
	s.watcher.begin(d)
	launched := false
	s.life.Launch(func(run func(func())) {
		launched = true
		for _, loop := range []func(context.Context){
			s.writer.run, s.leases.extend, s.leases.listen, s.puller.run, s.watcher.run, s.pinner.run,
		} {
			run(func() { loop(s.life.Context()) })
		}
	})
	if !launched { // Close was called meanwhile
		s.end()
		return broker.Traits{}, s.life.Fail(broker.ErrClosed)
	}
	return d.traits(o.Ordered), nil
}

// connect connects, and finds the consumer.
func (s *Source) connect(ctx context.Context, o broker.Options) (d durable, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Context(), cancel)()
	if err = s.link.open(ctx); err == nil {
		for _, w := range s.cfg.exposed() {
			s.events.Say(broker.Event{Kind: broker.Warning, Err: w})
		}
		d, err = s.watcher.open(ctx, o)
	}
	switch {
	case err == nil:
		return d, nil
	case s.life.Context().Err() != nil:
		return d, s.life.Fail(broker.ErrClosed)
	}
	_ = s.life.Fail(err)
	return d, err // it says what was being done
}

// Receive implements broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	for {
		if n, err := s.held.receive(dst); n > 0 || err != nil {
			return n, err
		}
		<-s.bells.receive
	}
}

// Ack implements broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error { return s.held.ack(c, tokens) }

// Nack implements broker.Source.
func (s *Source) Nack(c *broker.Claim, back []broker.Back) error { return s.held.nack(c, back) }

// Stop implements broker.Source.
func (s *Source) Stop() { s.held.stop() }

// Pause implements broker.Pauser. Single topics cannot be paused: errors.ErrUnsupported.
func (s *Source) Pause(topics ...string) error { return s.pause(true, topics) }

// Resume implements broker.Pauser.
func (s *Source) Resume(topics ...string) error { return s.pause(false, topics) }

func (s *Source) pause(on bool, topics []string) error {
	if len(topics) > 0 {
		return fmt.Errorf("natsbroker: pausing single topics of a consumer: %w", errors.ErrUnsupported)
	}
	s.held.pause(on)
	return nil
}

// SetBudget implements broker.Rebudgeter.
func (s *Source) SetBudget(b broker.Budget) { s.held.setBudget(b) }

// Lag implements broker.LagReporter.
func (s *Source) Lag() broker.Lag { return s.held.lag() }

// Close implements broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.Stop()
	return s.life.Close(func() error { return s.shut(ctx) }, s.tellLast)
}

func (s *Source) shut(ctx context.Context) error {
	s.opening.Lock() // Open has returned
	defer s.opening.Unlock()
	ses := s.end()
	err := s.closer.finish(ctx)
	if s.held.standsBy() {
		s.puller.forget(ctx)
	}
	if ses != nil && err == nil {
		s.pinner.unpin(ctx, ses)
	}
	s.life.End()
	s.link.close() // a write that hangs ends by it
	return err
}

// end ends the claim, and gives back what was never settled. It returns the session that ended by it; nil: there was none.
func (s *Source) end() *session {
	ses, old := s.held.fence()
	old.drain()
	if ses == nil {
		return nil
	}
	ses.keeper.End(fmt.Errorf("natsbroker: %w", broker.ErrClosed))
	if ses.assigned {
		s.events.Say(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: ses.claim.Cause()})
	}
	s.held.giveBackAll(ses)
	return ses
}

// tellLast ends the connection of an Open that was given up, and tells what did not reach the server.
func (s *Source) tellLast() {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.link.close()
	if n := s.outbox.unsaid(); n > 0 {
		s.unconfirmed(n, "Close ended before the server had certainly received these settles")
	}
	s.events.Tell()
}

// lost is told by the link that there is no connection; back that there is one again.
func (s *Source) lost(err error) {
	s.held.lost()
	s.events.Lost(err)
}

func (s *Source) back() { s.bells.pull.ring() }

// problem is told of asynchronous errors: missing permissions, headers that cannot be read.
func (s *Source) problem(_ *nats.Subscription, err error) {
	if !s.held.closing() {
		s.events.Say(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("natsbroker: %w", err)})
	}
}

// unsent is told of naks whose lease ran out before there was a connection to send them, late of acks that perhaps arrived after
// their lease.
func (s *Source) unsent(n int) {
	s.unconfirmed(n, "messages given back while there was no connection come again by their ack wait")
}

func (s *Source) late(n int) {
	s.unconfirmed(n, "acks were on their way for longer than their lease; another process may have got the messages")
}

func (s *Source) unconfirmed(n int, why string) {
	s.events.Say(broker.Event{Kind: broker.Unconfirmed, N: int64(n), Err: errors.New("natsbroker: " + why)})
}
