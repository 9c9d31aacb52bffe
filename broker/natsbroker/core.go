package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// CoreConfig is a core NATS source: a queue group on plain subjects, without JetStream.
type CoreConfig struct {
	Connection

	// Subjects to subscribe to; wildcards are allowed. Required.
	Subjects []string
	// Queue is the queue group: of the processes with the same one, one gets each message. Required.
	Queue string
}

func (c CoreConfig) validate() error {
	f := findings()
	conftag.Check(f, c)
	c.Connection.validate(f)
	f.Check(len(c.Subjects) > 0, "Subjects", "is missing")
	validateSubjects(f, c.Subjects)
	validateName(f, "Queue", c.Queue)
	return f.Err()
}

// A CoreSource is a core NATS queue group. Delivery is at most once, and its Traits say so: what a process has received and not
// handled is lost with it, and so is what nobody subscribes to, what arrives while the connection is away, and what does not fit
// into the budget, since the server pushes and cannot be held back. All that it knows to be lost, it reports as Gap.
//
// Ack only frees budget. Nack says broker.ErrLost: nothing comes again.
type CoreSource struct {
	cfg  CoreConfig
	link *link

	wake      chan struct{} // to Receive
	work      chan struct{} // to memberLoop
	life      context.Context
	end       context.CancelFunc
	wg        sync.WaitGroup
	openCtx   context.Context
	stopOpen  context.CancelFunc
	opening   sync.Mutex
	closeOnce sync.Once
	closed    chan struct{}

	mu      sync.Mutex
	herald  *herald
	opened  bool
	claim   *broker.Claim
	keeper  broker.Keeper
	subs    []*nats.Subscription
	slots   *slots
	ready   ring
	budget  broker.Budget
	out     int
	bytes   int64 // of what is out or buffered
	next    uint64
	dropped int64 // not yet told
	telling bool
	waiting bool
	stopped bool
	paused  bool
	away    bool // the connection is lost, and Gap was told
	ended   bool
}

var (
	_ broker.Source      = (*CoreSource)(nil)
	_ broker.LagReporter = (*CoreSource)(nil)
	_ broker.Pauser      = (*CoreSource)(nil)
	_ broker.Rebudgeter  = (*CoreSource)(nil)
)

// NewCoreSource checks cfg and returns a source that is not yet connected. The error names every field that is wrong.
func NewCoreSource(cfg CoreConfig) (*CoreSource, error) {
	cfg.Connection = cfg.Connection.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &CoreSource{cfg: cfg, wake: make(chan struct{}, 1), work: make(chan struct{}, 1), closed: make(chan struct{}), slots: newSlots(0)}
	s.life, s.end = context.WithCancel(context.Background())
	s.openCtx, s.stopOpen = context.WithCancel(context.Background())
	s.claim, s.keeper = broker.NewClaim(coreTopic(cfg), -1, s)
	s.link = newLink(cfg.Connection, hooks{lost: s.lost, back: s.back, problem: s.problem})
	return s, nil
}

func coreTopic(cfg CoreConfig) string {
	if len(cfg.Subjects) == 1 {
		return cfg.Subjects[0]
	}
	return ""
}

// Open implements broker.Source.
func (s *CoreSource) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	again, closed := s.opened, s.ended
	if !again && !closed {
		s.opened, s.budget = true, o.Budget
		s.herald = newHerald(o.Observe)
	}
	s.mu.Unlock()
	switch {
	case closed:
		return broker.Traits{}, broker.ErrClosed
	case again:
		return broker.Traits{}, errors.New("natsbroker: Open was called before")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.openCtx, cancel)()
	if err := s.link.open(ctx); err != nil {
		if s.openCtx.Err() != nil {
			err = fmt.Errorf("natsbroker: opening: %w", broker.ErrClosed)
		}
		return broker.Traits{}, err
	}
	for _, w := range s.cfg.exposed() {
		s.herald.warn(w)
	}
	s.herald.tell(broker.Event{Kind: broker.Assigned, Claim: s.claim})
	s.herald.flush()
	if err := s.join(); err != nil {
		return broker.Traits{}, s.cfg.redact(err)
	}
	s.wg.Go(s.memberLoop)
	s.herald.tell(broker.Event{Kind: broker.Up})
	return broker.Traits{Attempts: broker.Exact, AtMostOnce: true}, nil
}

// memberLoop joins and leaves the queue group as Pause, Resume, Stop and new connections want it.
func (s *CoreSource) memberLoop() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.work:
		}
		s.mu.Lock()
		wanted := !s.stopped && !s.paused
		member := len(s.subs) > 0 && s.subs[0].IsValid()
		s.mu.Unlock()
		switch {
		case !wanted:
			s.leave()
		case !member:
			s.leave()
			if err := s.join(); err != nil {
				s.herald.tell(broker.Event{Kind: broker.Down, Err: s.cfg.redact(err)})
				time.AfterFunc(s.cfg.MaxReconnectWait, s.poke)
			}
		}
	}
}

func (s *CoreSource) poke() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

func (s *CoreSource) join() error {
	nc := s.link.conn()
	for _, subject := range s.cfg.Subjects {
		sub, err := nc.QueueSubscribe(subject, s.cfg.Queue, s.arrived)
		if err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, err)
		}
		// arrived never waits, and it counts what it drops; nats.go's own bound would drop without saying how many.
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return fmt.Errorf("natsbroker: subscribing to %q: %w", subject, err)
		}
		s.mu.Lock()
		s.subs = append(s.subs, sub)
		s.mu.Unlock()
	}
	if err := nc.FlushTimeout(s.cfg.DialTimeout); err != nil { // until then, the server has no member here to send anything to
		return fmt.Errorf("natsbroker: subscribing: %w", err)
	}
	return nil
}

func (s *CoreSource) leave() {
	s.mu.Lock()
	subs := s.subs
	s.subs = nil
	s.mu.Unlock()
	for _, sub := range subs {
		_ = sub.Drain() // fails only where the connection is gone
	}
}

// arrived is called by nats.go for each message, by one goroutine for each subject.
func (s *CoreSource) arrived(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := m.Size()
	held := s.out + s.ready.n
	full := held >= s.budget.Messages || (held > 0 && s.bytes+int64(size) > s.budget.Bytes)
	if s.stopped || full {
		s.lose(1)
		return
	}
	s.next++
	i, sl := s.slots.add(s.next, 0)
	sl.msg, sl.size, sl.since = m, size, time.Now().UnixNano()
	s.bytes += int64(size)
	s.ready.push(i)
	s.rouse()
}

// lose counts messages that nobody will handle, and tells them together: under a flood, once a tenth of a second. The caller
// holds s.mu.
func (s *CoreSource) lose(n int64) {
	s.dropped += n
	if s.telling || s.dropped == 0 {
		return
	}
	s.telling = true
	time.AfterFunc(100*time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.telling = false
		s.tellLost()
	})
}

func (s *CoreSource) tellLost() {
	if s.dropped > 0 {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: s.claim, N: s.dropped,
			Err: errors.New("natsbroker: a core subscription gets more than the budget takes; what does not fit is dropped")})
		s.dropped = 0
	}
}

func (s *CoreSource) rouse() {
	if s.waiting {
		s.waiting = false
		s.wake <- struct{}{}
	}
}

// Receive implements broker.Source.
func (s *CoreSource) Receive(dst []broker.Message) (int, error) {
	for {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return 0, broker.ErrClosed
		}
		n := 0
		for !s.paused && n < len(dst) && s.ready.n > 0 && s.out < s.budget.Messages {
			s.fill(&dst[n], s.ready.pop())
			s.out++
			n++
		}
		s.waiting = n == 0
		s.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		<-s.wake
	}
}

func (s *CoreSource) fill(m *broker.Message, i int32) {
	sl := &s.slots.all[i]
	msg := sl.msg
	sl.msg, sl.state = nil, slotOut
	*m = broker.Message{
		Topic:     msg.Subject,
		Partition: -1,
		Offset:    -1,
		Value:     msg.Data,
		Headers:   headersOf(msg.Header),
		Key:       keyOf(msg.Header),
		Nanos:     sl.since, // core NATS keeps no time: when it was received
		Attempt:   1,
		Token:     s.slots.token(i),
		Claim:     s.claim,
	}
}

// Ack implements broker.Source: it frees budget.
func (s *CoreSource) Ack(c *broker.Claim, tokens []uint64) error {
	if c != s.claim {
		return errForeign
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := false
	for _, t := range tokens {
		settled = !s.settle(t) || settled
	}
	return s.settled(false, settled)
}

// Nack implements broker.Source: it frees budget, and says broker.ErrLost.
func (s *CoreSource) Nack(c *broker.Claim, back []broker.Back) error {
	if c != s.claim {
		return errForeign
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, settled := false, false
	for _, b := range back {
		if s.settle(b.Token) {
			lost = true
		} else {
			settled = true
		}
	}
	return s.settled(lost, settled)
}

func (s *CoreSource) settle(token uint64) bool {
	i := s.slots.out(token)
	if i == noSlot {
		return false
	}
	s.out--
	s.bytes -= int64(s.slots.all[i].size)
	s.slots.remove(i)
	return true
}

func (s *CoreSource) settled(lost, settled bool) error {
	s.rouse()
	switch {
	case lost || (s.ended && !settled):
		return broker.ErrLost
	case settled:
		return broker.ErrSettled
	}
	return nil
}

// Lag implements broker.LagReporter: core NATS cannot tell.
func (s *CoreSource) Lag() broker.Lag { return broker.UnknownLag() }

// Pause implements broker.Pauser: it leaves the queue group, so that others get the messages. Single topics cannot be paused.
func (s *CoreSource) Pause(topics ...string) error {
	if len(topics) > 0 {
		return fmt.Errorf("natsbroker: pausing single topics: %w", errors.ErrUnsupported)
	}
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
	s.poke()
	return nil
}

// Resume implements broker.Pauser.
func (s *CoreSource) Resume(topics ...string) error {
	if len(topics) > 0 {
		return fmt.Errorf("natsbroker: resuming single topics: %w", errors.ErrUnsupported)
	}
	s.mu.Lock()
	s.paused = false
	s.rouse()
	s.mu.Unlock()
	s.poke()
	return nil
}

// SetBudget implements broker.Rebudgeter.
func (s *CoreSource) SetBudget(b broker.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget = b
	s.rouse()
}

func (s *CoreSource) lost(err error) {
	s.mu.Lock()
	gap := !s.away && len(s.subs) > 0
	s.away = true
	s.mu.Unlock()
	s.herald.tell(broker.Event{Kind: broker.Down, Err: err})
	if gap {
		s.herald.tell(broker.Event{Kind: broker.Gap, Claim: s.claim, N: -1, Err: err})
	}
}

// back is told that there is a connection again. nats.go has renewed its own subscriptions; a new *nats.Conn has none.
func (s *CoreSource) back() {
	s.mu.Lock()
	s.away = false
	s.mu.Unlock()
	s.herald.tell(broker.Event{Kind: broker.Up})
	s.poke()
}

func (s *CoreSource) problem(_ *nats.Subscription, err error) {
	s.herald.warn(fmt.Errorf("natsbroker: %w", err))
}

// Stop implements broker.Source. What Receive has not returned cannot go back: it is lost, and told as Gap.
func (s *CoreSource) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	s.rouse()
	if !s.opened {
		return
	}
	lost := int64(s.ready.n)
	for s.ready.n > 0 {
		i := s.ready.pop()
		s.bytes -= int64(s.slots.all[i].size)
		s.slots.remove(i)
	}
	s.lose(lost)
	s.poke()
}

// Close implements broker.Source.
func (s *CoreSource) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		defer close(s.closed)
		s.shut()
	})
	<-s.closed
	return nil
}

func (s *CoreSource) shut() {
	s.Stop()
	s.stopOpen()
	s.opening.Lock()
	defer s.opening.Unlock()
	s.end()
	s.wg.Wait()
	s.leave()
	s.mu.Lock()
	s.ended = true
	h := s.herald
	s.mu.Unlock()
	s.keeper.End(fmt.Errorf("natsbroker: %w", broker.ErrClosed))
	s.link.close()
	if h == nil {
		return
	}
	s.mu.Lock()
	s.tellLost()
	s.mu.Unlock()
	h.tell(broker.Event{Kind: broker.Ended, Claim: s.claim, Err: s.claim.Cause()})
	h.close()
}
