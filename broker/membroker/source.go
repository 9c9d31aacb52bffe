package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/internal/contact"
)

// A Source is one process's subscription; see broker.Source. It implements broker.PartitionLagReporter, Pauser, Holder,
// Rebudgeter and Windowed.
//
// Two goroutines drive it: the caller of Receive, which also asks the broker for messages, and a loop of its own from Open to
// Close, which sends settles and heartbeats, lets claims begin and end, and calls Observe.
type Source struct {
	b      *Broker
	cfg    SourceConfig
	traits broker.Traits
	mutant mutant

	// wake wakes Receive, kick the loop; data and call are the same of the broker's.
	wake, kick, call chan struct{}
	flushTimer       *time.Timer
	link             link
	done             chan struct{} // the loop has ended
	abort            chan struct{} // Close's ctx has ended

	// o is set by Open, before the loop begins.
	o broker.Options

	// The loop's own.
	m       *member
	beatAt  time.Time
	ending  []*ending
	failing bool // the last heartbeat failed
	rejoins bool // the broker does not know us any more

	// mu guards what is below. The broker's lock may be taken inside it, never the other way round. It is held for memory work only.
	mu       sync.Mutex
	phase    phase
	budget   broker.Budget
	holdings []*holding // that Receive looks at
	revoking []*claimState
	strays   map[logEpoch]strays // what is out under ended claims
	turn     int                 // whose turn it is in Receive
	fatal    error
	stopped  bool
	paused   bool
	pausedOf map[string]bool
	flushing bool      // the flush timer runs
	starved  bool      // Receive waits for budget
	contact  time.Time // the last heartbeat that the broker answered; only the loop writes it
	lapsed   bool      // Receive waits for one
	// outN and outBytes were handed out and are not settled; held is prefetched, and heldN how many they are.
	outN            int
	outBytes, held  int64
	heldN           int
	events          []broker.Event
	down            bool
	reach           contact.Contact
	downSaid        time.Time // of the mutants downEachSecond and downForgotten
	lag             broker.Lag
	lags            []broker.PartitionLag
	abortErr        error // why Close gave up
	closeErr        error
	leaseLost       bool // no contact for a lease: what is out may be somebody else's
	closing, killed bool
}

type phase int

const (
	created phase = iota
	opening
	opened
	failed
	closed
)

// Source makes a source, and its group where there is none: from here on the group's progress counts (see Broker.Unsettled). What
// is wrong with c is said by Open.
func (b *Broker) Source(c SourceConfig) *Source {
	c = c.withDefaults()
	if len(c.Topics) == 0 {
		for name := range b.cfg.Topics {
			c.Topics = append(c.Topics, name)
		}
	}
	s := &Source{
		b: b, cfg: c, traits: b.cfg.traits(), mutant: testMutant,
		wake: make(chan struct{}, 1), kick: make(chan struct{}, 1), call: make(chan struct{}, 1),
		done: make(chan struct{}), abort: make(chan struct{}),
		lag: broker.UnknownLag(), pausedOf: make(map[string]bool),
		link: newLink(),
	}
	if s.mutant.is(lagZero) {
		s.lag = broker.Lag{}
	}
	if c.validate() == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = b.group(c.Group).subscribe(c.Topics) // Open says what is wrong
	}
	return s
}

// Open subscribes. See broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.begin(o); err != nil {
		return broker.Traits{}, err
	}
	err := s.join(ctx)
	s.mu.Lock()
	if err == nil && s.closing {
		err = fmt.Errorf("membroker: opening: %w", broker.ErrClosed)
		defer s.abandon()
	}
	if err != nil {
		s.phase = failed
		close(s.done)
		s.mu.Unlock()
		return broker.Traits{}, err
	}
	s.phase, s.contact = opened, time.Now()
	s.flushTimer = time.NewTimer(time.Hour)
	s.flushTimer.Stop()
	if s.mutant.is(unconfirmedAtOpen) {
		s.say(broker.Event{Kind: broker.Unconfirmed, N: -1, Err: errors.New("membroker: mutant")})
	}
	s.mu.Unlock()
	go s.loop()
	return s.traits, nil
}

func (s *Source) begin(o broker.Options) error {
	var errs []error
	if err := s.cfg.validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Budget.Messages <= 0 {
		errs = append(errs, fmt.Errorf("membroker: Options.Budget.Messages is %d, want at least 1", o.Budget.Messages))
	}
	if o.Budget.Bytes <= 0 {
		errs = append(errs, fmt.Errorf("membroker: Options.Budget.Bytes is %d, want at least 1", o.Budget.Bytes))
	}
	if o.Observe == nil {
		errs = append(errs, errors.New("membroker: Options.Observe is nil"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return fmt.Errorf("membroker: opening: %w", broker.ErrClosed)
	case s.phase != created:
		return errors.New("membroker: opening: Open was called before")
	case len(errs) > 0:
		s.phase = failed
		close(s.done)
		return errors.Join(errs...)
	}
	s.phase = opening
	s.o, s.budget = o, o.Budget
	return nil
}

// join tries until the broker answers, ctx ends or Close was called.
func (s *Source) join(ctx context.Context) error {
	for {
		err := s.exchange(func(time.Time) error {
			if err := s.b.faults.fail(OpOpen); err != nil {
				return &refusal{err}
			}
			if err := s.enter(); err != nil {
				return &refusal{err}
			}
			return nil
		})
		s.emit()
		var r *refusal
		if err == nil {
			return nil
		}
		if errors.As(err, &r) {
			return fmt.Errorf("membroker: opening: %w", r.err)
		}
		t := time.NewTimer(retryEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("membroker: opening: %w (last try: %w)", ctx.Err(), err)
		case <-s.abort:
			t.Stop()
			return fmt.Errorf("membroker: opening: %w", broker.ErrClosed)
		}
		if s.isClosing() {
			return fmt.Errorf("membroker: opening: %w", broker.ErrClosed)
		}
	}
}

// enter makes a member of the source, at the broker and under its lock. It leaves as the old one, which an answer that got lost
// may have made.
func (s *Source) enter() error {
	if s.m != nil && s.m.known() {
		s.m.leave()
	}
	m, err := s.b.join(s.cfg.Group, s.cfg.Topics, s.wake, s.call)
	if err != nil {
		return err
	}
	s.m = m
	return nil
}

// abandon takes back a join that Close overtook.
func (s *Source) abandon() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.m.leave()
}

// A refusal is an answer that another try would not change.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Stop ends pulling. See broker.Source.
func (s *Source) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
}

// Close ends everything. See broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.stopped, s.closing = true, true
	never := s.phase == created
	if never {
		s.phase = closed
		close(s.done)
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
	if !first {
		if s.mutant.is(closeTwiceAtOnce) {
			return nil
		}
		<-s.done
		return s.result()
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		select {
		case <-s.done: // it had ended already: a ctx that is over does not make a failure of that
		default:
			s.mu.Lock()
			s.abortErr = ctx.Err()
			s.mu.Unlock()
			close(s.abort)
			<-s.done
		}
	}
	return s.result()
}

func (s *Source) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeErr
}

func (s *Source) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Lag returns the figures of the last exchange with the broker.
func (s *Source) Lag() broker.Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lag
}

// LagByPartition returns those of each partition; nothing where Leased. See broker.PartitionLagReporter.
func (s *Source) LagByPartition() []broker.PartitionLag {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lags)
}

// SetBudget changes the budget for what is asked for from now on.
func (s *Source) SetBudget(b broker.Budget) {
	s.mu.Lock()
	if b.Messages >= s.budget.Messages || !s.mutant.is(shrinkIgnored) {
		s.budget = b
	}
	s.mu.Unlock()
	signal(s.wake)
}

// Pause stops the topics, or all. By topic it is errors.ErrUnsupported where Leased.
func (s *Source) Pause(topics ...string) error { return s.pause(true, topics) }

// Resume undoes Pause. Without arguments it resumes all that was paused, by whichever call.
func (s *Source) Resume(topics ...string) error { return s.pause(false, topics) }

func (s *Source) pause(on bool, topics []string) error {
	if len(topics) > 0 && s.b.stream != nil {
		return fmt.Errorf("membroker: pausing by topic on a leased stream: %w", errors.ErrUnsupported)
	}
	s.mu.Lock()
	if len(topics) == 0 {
		s.paused = on
		if !on {
			clear(s.pausedOf)
		}
	}
	for _, t := range topics {
		if on {
			s.pausedOf[t] = true
		} else {
			delete(s.pausedOf, t)
		}
	}
	if on {
		s.putBack()
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
	return nil
}

// putBack gives the prefetch of paused holdings back, unless it stands behind what is out: the loop does it then. It needs s.mu.
func (s *Source) putBack() {
	for _, h := range s.holdings {
		if s.pausedHolding(h) && !s.keepsOrder() {
			s.putBackOne(h)
		}
	}
}

func (s *Source) putBackOne(h *holding) {
	if !s.mutant.is(pauseKeepsPrefetch) {
		h.dropPrefetch()
	}
}

func (s *Source) pausedHolding(h *holding) bool {
	return s.paused || s.pausedOf[h.cur.log.topic]
}

// Hold hands out nothing of the claim until then.
func (s *Source) Hold(c *broker.Claim, until time.Time) {
	cs, ok := c.State.(*claimState)
	if !ok || cs.h.s != s {
		return
	}
	s.mu.Lock()
	cs.h.heldUntil = until
	cs.h.dropPrefetch()
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
}

// Window says how full the window of unfinished offsets is, 0..1; always 0 where Leased.
func (s *Source) Window(c *broker.Claim) float64 {
	cs, ok := c.State.(*claimState)
	if !ok || cs.h.s != s || s.b.stream != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(1, float64(cs.h.w.hi-cs.h.floor)/float64(s.cfg.Window))
}
