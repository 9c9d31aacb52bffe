package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is a JetStream consumer. It implements broker.Source, broker.LagReporter, broker.FloorReporter, broker.Pauser (all
// only), broker.Rebudgeter, broker.DeliveryLimiter, broker.LeaseReporter and broker.Sharer.
//
// Delivery is at least once. Message.Attempt is an upper bound, since JetStream counts deliveries that no handler saw. Delays of
// Nack are kept by the server, and occupy MaxAckPending while they wait. With Options.Ordered one process of a consumer at a time
// gets messages; while one waits for the delay of a Nack, it gets no others.
//
// With a max_deliver of the consumer, what was delivered for the last time is kept here by Pause, and by a Nack that the engine
// could not know to be the last one: it is handed out once more. After Stop both give it back, and the server drops it, which a
// Warning tells.
type Source struct {
	cfg   Config
	life  *life
	bells bells

	held   *holdings // what is here, and what becomes of it
	outbox *outbox   // what has yet to be said to the server

	operations kit.Operations
	complaints complaints

	writer  *outboxWriter
	leases  *leaseKeeper
	puller  *puller
	pinner  *pinner
	watcher *watcher
	voucher *voucher
	closer  *closer

	presence *presence // nil: nobody is told that this process is there
}

var (
	_ broker.Source          = (*Source)(nil)
	_ broker.LagReporter     = (*Source)(nil)
	_ broker.FloorReporter   = (*Source)(nil)
	_ broker.Pauser          = (*Source)(nil)
	_ broker.Rebudgeter      = (*Source)(nil)
	_ broker.DeliveryLimiter = (*Source)(nil)
	_ broker.LeaseReporter   = (*Source)(nil)
	_ broker.Sharer          = (*Source)(nil)
)

// NewSource checks cfg and returns a source that is not yet connected. The error names every field that is wrong.
func NewSource(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Source{cfg: cfg, bells: newBells()}
	s.life = newLife(cfg.Connection, hooks{lost: s.lost, back: s.back, problem: s.problem})
	clock, c, link, events := newClock(), &s.cfg, s.life.link, s.life.events
	link.unanswered.least = max(4*c.Poll, 2*requestTimeout)
	consumer := &remoteConsumer{c, link}
	s.outbox = newOutbox(clock.now, s.unsent, s.late)
	s.outbox.gone, s.outbox.proven = s.gone, s.bells.pin
	s.outbox.settled = func(asked int64, err error) { s.operations.Tell(broker.Settle, clock.at(asked), err) }
	s.held = newHoldings(c, clock, s.outbox, events, s.bells)

	s.writer = &outboxWriter{box: s.outbox, link: link}
	s.leases = &leaseKeeper{
		side: leaseSide{s.held}, link: link, outbox: s.outbox, heartbeat: c.Heartbeat, maxHold: c.MaxHold, ask: kit.NewBell(),
		changed: s.bells.lease,
	}
	s.puller = &puller{
		side: pullSide{s.held}, clock: clock, events: events, link: link, outbox: s.outbox, leases: s.leases,
		consumer: consumer, look: s.bells.pull, gone: s.bells.watch, heartbeat: c.Heartbeat, operations: &s.operations,
	}
	s.pinner = &pinner{
		side: pinSide{s.held}, events: events, link: link, consumer: consumer, look: s.bells.pin, pull: s.bells.pull,
		idle: c.Heartbeat,
	}
	s.watcher = &watcher{
		cfg: c, side: watchSide{s.held}, events: events, link: link, consumer: consumer, outbox: s.outbox, now: s.bells.watch,
	}
	s.voucher = &voucher{side: watchSide{s.held}, link: link, outbox: s.outbox, consumer: consumer, gone: s.bells.watch}
	s.closer = &closer{
		watched: watchSide{s.held}, link: link, outbox: s.outbox, leases: s.leases, consumer: consumer, voucher: s.voucher,
	}
	if c.Share {
		s.presence = newPresence(c, link)
	}
	return s, nil
}

// Open implements broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	var d durable
	err := s.life.open(ctx, o, func(ctx context.Context) (err error) {
		s.operations.Observe(o.Operated)
		s.held.open(o)
		if d, err = s.find(ctx, o); err != nil {
			return err
		}
		if s.presence != nil {
			err = s.presence.open(ctx)
		}
		if err == nil {
			s.watcher.begin(d)
		}
		return err
	}, s.present, s.writer.run, s.leases.extend, s.leases.listen, s.puller.run, s.watcher.run, s.voucher.run, s.pinner.run)
	if err != nil {
		return broker.Traits{}, err
	}
	return d.traits(o.Ordered), nil
}

// present tells the other processes that this one is there, where they are told.
func (s *Source) present(ctx context.Context) {
	if s.presence != nil {
		s.presence.run(ctx)
	}
}

// find finds the consumer, and waits for the other sources; much may have changed then, so it looks again.
func (s *Source) find(ctx context.Context, o broker.Options) (durable, error) {
	d, err := s.watcher.open(ctx, o)
	if err != nil || o.Await == nil {
		return d, err
	}
	if err := s.life.Await(ctx, o); err != nil {
		return d, err
	}
	made := d.made
	d, err = s.watcher.open(ctx, o)
	d.made = cmp.Or(d.made, made)
	return d, err
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

// Lapsed implements broker.LeaseReporter.
func (s *Source) Lapsed(c *broker.Claim, token uint64) bool { return s.held.lapsed(c, token) }

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

// MaxDeliveries implements broker.DeliveryLimiter: the consumer's max_deliver, as it was when the consumer was last looked at
// (Config.Poll). What is given back before that, at what has become its last delivery, does not come again.
func (s *Source) MaxDeliveries() int { return s.held.maxDeliveries() }

// Floors implements broker.FloorReporter: the consumer's ack floor, as it was when the consumer was last looked at (Config.Poll).
func (s *Source) Floors() []broker.Floor { return s.held.floors() }

// Share is one of as many equal shares as there are processes, by what each says of itself (Config.Share); with Options.Ordered
// all of it belongs to the one whose turn it is. It fails where Config.Share is not set. See broker.Sharer.
func (s *Source) Share() (broker.Share, error) {
	if s.presence == nil {
		return broker.Share{}, errors.New("natsbroker: Config.Share is not set, so nobody knows how many processes there are")
	}
	share, left := s.presence.share()
	if one, ours := s.held.turns(); one {
		share = broker.Share{All: 1}
		if ours && !left {
			share.Held = 1
		}
	}
	return share, nil
}

// Close implements broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.Stop()
	return s.life.close(func() error { return s.shut(ctx) }, s.tellLast)
}

func (s *Source) shut(ctx context.Context) error {
	s.pinner.outwait(ctx)
	ses := s.end()
	err := s.closer.finish(ctx)
	if s.presence != nil {
		s.presence.leave()
	}
	if s.held.standsBy() {
		s.pinner.release(ctx)
	}
	if ses != nil && (err == nil || errors.Is(err, errNaksLost)) {
		s.pinner.unpin(ctx, ses)
	}
	s.life.End()
	s.life.link.close() // a write that hangs ends by it
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
		s.life.events.Say(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: ses.claim.Cause()})
	}
	s.held.giveBackAll(ses)
	return ses
}

// tellLast ends the claim of an Open that Close overtook, and tells what did not reach the server.
func (s *Source) tellLast() {
	s.end()
	s.held.tellDropped()
	if n := s.outbox.unsaid(); n > 0 {
		s.life.unconfirmed(n, "Close ended before the server had certainly received these settles")
	}
}

// lost is told by the link that there is no connection; back that there is one again.
func (s *Source) lost(err error) {
	s.held.lost()
	s.life.events.Lost(err)
}

func (s *Source) back() { s.bells.pull.Ring() }

// problem is told of asynchronous errors: missing permissions, headers that cannot be read.
func (s *Source) problem(_ *nats.Subscription, err error) {
	what := denied(err)
	if strings.Contains(what, "STREAM.MSG.GET.") {
		s.voucher.blind.Store(true)
	}
	switch {
	case strings.Contains(what, ".CONSUMER.UNPIN."): // by Close, too
		s.life.warn(fmt.Errorf("natsbroker: the turn cannot be given up, and others wait until its time is over: %w", err))
	case s.held.closing():
	case strings.HasPrefix(what, ackPrefix): // one for each message, again and again
		if n := s.held.denied(); n > 0 {
			s.life.warn(fmt.Errorf("natsbroker: the server does not let acks through, so all comes again; "+
				"may this user publish to %s>? Refused were %d: %w", ackPrefix, n, err))
		}
	case s.complaints.hold(err, time.Now()):
	default:
		s.life.warn(fmt.Errorf("natsbroker: %w", err))
	}
}

// denied is the subject that the server says we may not publish to; empty where it says no such thing. It is not to be told: err
// is, without our secrets.
func denied(err error) (subject string) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	_, rest, _ := strings.Cut(unredacted(err), `Publish to "`)
	subject, _, _ = strings.Cut(rest, `"`)
	return subject
}

// unsent is told of naks whose lease ran out before they could be sent: there was no connection, or nobody at its end who said
// that the consumer is the same, or this process stood still. late is told of acks that perhaps arrived after their lease, gone
// of those to a consumer that is no more.
func (s *Source) unsent(n int) {
	s.life.unconfirmed(n, "messages could not be given back before their lease ran out, and come again by their ack wait")
}

func (s *Source) late(n int) {
	s.life.unconfirmed(n, "acks were on their way for longer than their lease; another process may have got the messages")
}

func (s *Source) gone(n int) {
	s.life.unconfirmed(n, "the consumer was deleted before it confirmed these acks; what it had not taken may come again")
}
