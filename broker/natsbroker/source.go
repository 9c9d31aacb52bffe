package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// A Source is a JetStream consumer. It implements broker.Source, broker.LagReporter, broker.Pauser (all only) and
// broker.Rebudgeter.
//
// Delivery is at least once. Message.Attempt is an upper bound, since JetStream counts deliveries that no handler saw. Delays of
// Nack are kept by the server, and occupy MaxAckPending while they wait. With Options.Ordered one process of a consumer at a time
// gets messages; while one waits for the delay of a Nack, it gets no others.
type Source struct {
	cfg    Config
	link   *link
	outbox *outbox
	said   settles   // guarded by mu: on their way into the outbox
	base   time.Time // the source's clock counts from here

	life context.Context // of the loops
	end  context.CancelFunc
	wg   sync.WaitGroup

	wake chan struct{} // to Receive
	work chan struct{} // to pullLoop
	ping chan struct{} // to contactLoop
	look chan struct{} // to watchLoop

	pinned chan struct{} // to pinLoop

	opening   sync.Mutex // held by Open, so that Close can wait for it
	openCtx   context.Context
	stopOpen  context.CancelFunc
	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error

	ackWaitNanos atomic.Int64 // of the consumer as it is
	created      time.Time    // of the consumer; owned by Open, then by watchLoop

	mu         sync.Mutex
	opts       broker.Options
	herald     *herald
	opened     bool
	ses        *session
	in         *inbox
	credit     credit
	finished   finished
	runs       *runs
	lag        lag
	from       after
	waiting    bool // Receive waits
	stopped    bool
	paused     bool
	closing    bool
	revive     bool // the requests are void: a round trip, a new inbox, then pull again
	fatal      error
	notBefore  int64 // the next pull
	barren     barren
	unasked    unasked
	maxExpires time.Duration // of a pull, by the consumer's settings; 0: no limit
	group      string        // in which one process at a time is pinned; empty: all get messages
	pinTTL     int64         // of the consumer as it is
	heard      uint64
	contact    int64  // when the server last answered; see extend.go
	tick       int64  // the clock at the last round
	round      uint64 // of extensions
	roundOver  connEpoch
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
	s := &Source{
		cfg:    cfg,
		base:   time.Now(),
		wake:   make(chan struct{}, 1),
		work:   make(chan struct{}, 1),
		ping:   make(chan struct{}, 1),
		look:   make(chan struct{}, 1),
		pinned: make(chan struct{}, 1),
		closed: make(chan struct{}),
		runs:   newRuns(cfg.Finished),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.openCtx, s.stopOpen = context.WithCancel(context.Background())
	s.link = newLink(cfg.Connection, hooks{lost: s.lost, back: s.poke, problem: s.problem})
	s.outbox = newOutbox(s.clock, s.unsent, s.late)
	return s, nil
}

// clock is the source's time in nanoseconds, monotonic.
func (s *Source) clock() int64 { return int64(time.Since(s.base)) }

func (s *Source) ackWait() int64 { return s.ackWaitNanos.Load() }

// Open implements broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	again, closing := s.opened, s.closing
	if !again && !closing {
		s.opened, s.opts = true, o
		s.credit.budget = o.Budget
		s.herald = newHerald(o.Observe)
	}
	s.mu.Unlock()
	switch {
	case closing:
		return broker.Traits{}, broker.ErrClosed
	case again:
		return broker.Traits{}, errors.New("natsbroker: Open was called before")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.openCtx, cancel)()
	if err := s.link.open(ctx); err != nil {
		return broker.Traits{}, s.openErr(err)
	}
	for _, w := range s.cfg.exposed() {
		s.herald.warn(w)
	}
	d, err := s.find(ctx, s.cfg.Missing == "wait")
	if err != nil {
		return broker.Traits{}, s.openErr(err)
	}
	s.finished = newFinished(s.cfg.Finished)
	s.begin(d)
	writer := &outboxWriter{box: s.outbox, link: s.link}
	for _, loop := range []func(context.Context){writer.run, s.extendLoop, s.contactLoop, s.pullLoop, s.watchLoop, s.pinLoop} {
		s.wg.Go(func() { loop(s.life) })
	}
	return d.traits(o.Ordered), nil
}

func (s *Source) openErr(err error) error {
	if s.openCtx.Err() != nil {
		return fmt.Errorf("natsbroker: opening: %w", broker.ErrClosed)
	}
	return err
}

// find ensures stream and consumer, as long as what stands in the way may pass; with await, a stream that is not there may come.
func (s *Source) find(ctx context.Context, await bool) (durable, error) {
	missing := false
	for attempt := 1; ; attempt++ {
		d, err := s.cfg.ensure(ctx, s.link.conn(), s.from, s.opts.Ordered)
		if err == nil {
			return d, nil
		}
		err = s.cfg.redact(err)
		// No responder where JetStream should be: it is not enabled, or not yet.
		disabled := errors.Is(err, nats.ErrNoResponders) && attempt > 5
		if disabled {
			err = fmt.Errorf("JetStream does not answer; is it enabled on the server and for the account? %w", err)
		}
		gone := errors.Is(err, jetstream.ErrStreamNotFound)
		if ctx.Err() == nil && (!passing(err) || disabled) && !(gone && await) {
			return d, err
		}
		switch {
		case !gone:
			s.herald.tell(broker.Event{Kind: broker.Down, Err: err})
		case !missing:
			missing = true
			s.herald.warn(fmt.Errorf("%w: waiting for it", err))
		}
		if !sleep(ctx, s.cfg.pause(attempt)) {
			return d, fmt.Errorf("natsbroker: %w; last: %w", context.Cause(ctx), err)
		}
	}
}

// begin starts a session on a consumer: a new claim.
func (s *Source) begin(d durable) {
	for _, w := range d.warnings {
		s.herald.warn(w)
	}
	cc := d.consumer.Config
	topic := ""
	if f := filterOf(cc); len(f) == 1 {
		topic = f[0]
	}
	ses := newSession(s, topic, s.opts.Budget.Messages)
	ses.at.exact = d.exact()
	ses.at.polled(point{d.consumer.Delivered.Consumer, d.consumer.Delivered.Stream})
	var skipped gap
	var gone bool
	if d.stream != nil { // it was asked before the consumer, so what it had lost then is lost
		skipped, gone = ses.at.begin(d.consumer.Delivered.Stream, d.stream.State.FirstSeq)
	}
	ses.highest = d.consumer.Delivered.Stream
	if cc.MaxAckPending > 0 && cc.MaxAckPending < s.opts.Budget.Messages {
		s.herald.warn(fmt.Errorf("natsbroker: consumer %s of stream %s: max_ack_pending is %d for all processes, and this one's budget is %d messages",
			s.cfg.Consumer, s.cfg.Stream, cc.MaxAckPending, s.opts.Budget.Messages))
	}
	group := ""
	if s.opts.Ordered {
		group = pinned(cc)
	}
	var claim *broker.Claim
	if group == "" {
		claim, ses.assigned = ses.claim, true
		s.herald.tell(broker.Event{Kind: broker.Assigned, Claim: claim})
		s.herald.flush()
	}
	if gone {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: claim, From: int64(skipped.from), N: skipped.n})
	}
	s.mu.Lock()
	s.created = d.consumer.Created
	s.group, s.pinTTL = group, int64(cmp.Or(cc.PinnedTTL, defaultPinTTL))
	s.ackWaitNanos.Store(int64(lease(cc)))
	s.credit.maxBatch, s.credit.maxBytes, s.maxExpires = cc.MaxRequestBatch, int64(cc.MaxRequestMaxBytes), cc.MaxRequestExpires
	s.from = after{floor: d.consumer.AckFloor.Stream, started: d.stream != nil}
	if d.stream != nil {
		s.from.stream = d.stream.Created
	}
	s.lag.polled(d.consumer, time.Now())
	s.ses, s.revive = ses, true
	s.mu.Unlock()
	s.poke()
}

// replace ends a session whose consumer is gone, and by policy begins another. Only watchLoop calls it.
func (s *Source) replace(ctx context.Context, ses *session, cause error) {
	s.mu.Lock()
	if s.ses != ses || ses.ended { // by pinLoop: the next look tells again
		s.mu.Unlock()
		return
	}
	ses.ended = true      // the fence
	for ses.ready.n > 0 { // some may be deliveries of a consumer made anew; to one that is gone, a nak means nothing
		i := ses.ready.pop()
		s.outbox.nak(ses.slots.all[i].reply, 0, ses.slots.all[i].lease+s.ackWait())
		s.drop(ses, i)
	}
	s.finished.forget()
	s.runs.forget()
	s.outbox.letGo()
	s.lag = lag{}
	closing := s.closing
	if !s.cfg.Recreate {
		s.fatal = cause
	}
	old := s.leaveInbox()
	s.rouse()
	s.mu.Unlock()
	if closing {
		return
	}
	drain(old)
	ses.keeper.End(fmt.Errorf("%w: %w", broker.ErrLost, cause))
	if ses.assigned {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: ses.claim, N: -1, Err: cause})
		s.herald.tell(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: ses.claim.Cause()})
	} else {
		s.herald.tell(broker.Event{Kind: broker.Gap, N: -1, Err: cause})
	}
	if !s.cfg.Recreate {
		return
	}
	d, err := s.find(ctx, false)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.fail(fmt.Errorf("%w; going on: %w", cause, err))
	default:
		s.begin(d)
	}
}

// fail ends pulling for good.
func (s *Source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(err)
}

// failed is fail for a caller that holds s.mu.
func (s *Source) failed(err error) {
	if s.fatal == nil {
		s.fatal = err
	}
	s.rouse()
	s.poke()
}

// lost is told by the link that there is no connection.
func (s *Source) lost(err error) {
	s.mu.Lock()
	s.revive = true
	s.barren.over()
	h := s.herald
	s.mu.Unlock()
	h.tell(broker.Event{Kind: broker.Down, Err: err})
}

// problem is told of asynchronous errors: missing permissions, headers that cannot be read.
func (s *Source) problem(_ *nats.Subscription, err error) {
	s.mu.Lock()
	h, closing := s.herald, s.closing
	s.mu.Unlock()
	if !closing {
		h.warn(fmt.Errorf("natsbroker: %w", err))
	}
}

// unsent is told of naks whose lease ran out before there was a connection to send them.
func (s *Source) unsent(n int) {
	s.herald.tell(broker.Event{Kind: broker.Unconfirmed, N: int64(n),
		Err: errors.New("natsbroker: messages given back while there was no connection come again by their ack wait")})
}

// late is told of acks that perhaps arrived after their lease.
func (s *Source) late(n int) {
	s.herald.tell(broker.Event{Kind: broker.Unconfirmed, N: int64(n),
		Err: errors.New("natsbroker: acks were on their way for longer than their lease; another process may have got the messages")})
}

// poke has pullLoop look at everything. It does not block.
func (s *Source) poke() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// Stop implements broker.Source.
func (s *Source) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	s.rouse()
	s.giveBackBuffered()
	s.poke()
	s.tendPin()
}

// Pause implements broker.Pauser. Single topics cannot be paused: errors.ErrUnsupported.
func (s *Source) Pause(topics ...string) error { return s.setPaused(true, topics) }

// Resume implements broker.Pauser.
func (s *Source) Resume(topics ...string) error { return s.setPaused(false, topics) }

func (s *Source) setPaused(on bool, topics []string) error {
	if len(topics) > 0 {
		return fmt.Errorf("natsbroker: pausing single topics of a consumer: %w", errors.ErrUnsupported)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == on {
		return nil
	}
	s.paused = on
	if on {
		s.giveBackBuffered()
	}
	s.rouse()
	s.poke()
	s.tendPin()
	return nil
}

// SetBudget implements broker.Rebudgeter.
func (s *Source) SetBudget(b broker.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit.budget = b
	s.rouse()
	s.wantPull()
}

// givesBack says whether what is not handed out goes back. The caller holds s.mu.
func (s *Source) givesBack() bool { return s.stopped || s.paused || s.fatal != nil }

// giveBackBuffered naks what was received and not handed out; where order was promised, only when nothing is out that it stands
// behind. The caller holds s.mu.
func (s *Source) giveBackBuffered() {
	if ses := s.ses; ses != nil && (!s.opts.Ordered || s.credit.out == 0) {
		s.dropReady(ses)
	}
}

// dropReady naks what was received and not handed out. The caller holds s.mu.
func (s *Source) dropReady(ses *session) {
	if ses.unsorted {
		ses.sortReady()
	}
	now := s.clock()
	for ses.ready.n > 0 {
		i := ses.ready.pop()
		if sl := &ses.slots.all[i]; !s.expired(sl, now) && !ses.ended {
			s.runs.put(sl.seq, sl.nanos, sl.runs, 0)
			s.outbox.nak(sl.reply, 0, sl.lease+s.ackWait())
		}
		s.drop(ses, i)
	}
}
