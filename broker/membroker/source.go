package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is one process's subscription; see broker.Source. It implements broker.PartitionLagReporter, FloorReporter, Pauser,
// Holder, Rebudgeter, Windowed, SelfReader and, where Config.Atomic is set, Emitter.
//
// Two goroutines drive it: the caller of Receive, which also asks the broker for messages, and a loop of its own from Open to
// Close.
type Source struct {
	b      *Broker
	cfg    SourceConfig
	traits broker.Traits

	life     *kit.Life
	launched atomic.Bool // the loop runs, or has run
	events   *kit.EventQueue
	link     *link
	place    *place
	holdings *holdings
	figures  *figures
	loop     *loop

	wake, kick kit.Bell // wakes Receive; wakes the loop
}

var (
	_ broker.PartitionLagReporter = (*Source)(nil)
	_ broker.FloorReporter        = (*Source)(nil)
	_ broker.Pauser               = (*Source)(nil)
	_ broker.Holder               = (*Source)(nil)
	_ broker.Rebudgeter           = (*Source)(nil)
	_ broker.Windowed             = (*Source)(nil)
	_ broker.SelfReader           = (*Source)(nil)
	_ broker.Sharer               = (*Source)(nil)
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
	s := newSource(b, c)
	if c.validate() == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = b.group(c.Group).subscribe(c.Topics) // Open says what is wrong
	}
	return s
}

func newSource(b *Broker, c SourceConfig) *Source {
	s := &Source{
		b: b, cfg: c, traits: b.cfg.traits(), life: kit.NewLife("membroker"), events: kit.NewEventQueue(), figures: newFigures(),
		wake: kit.NewBell(), kick: kit.NewBell(),
	}
	s.link = newLink(b, s.events, s.wake)
	s.place = &place{b: b, link: s.link, cfg: c, data: s.wake, call: kit.NewBell()}
	s.holdings = newHoldings(c, b.cfg, s.events, s.wake, s.kick)
	s.loop = &loop{
		b: b, cfg: c, holdings: s.holdings, place: s.place, link: s.link,
		releases: &releases{place: s.place, events: s.events, figures: s.figures},
		events:   s.events, figures: s.figures, kick: s.kick, closing: make(chan struct{}), done: make(chan struct{}),
	}
	return s
}

// Open subscribes. See broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.life.Begin(o, s.cfg.validate()); err != nil {
		return broker.Traits{}, err
	}
	s.events.Observe(o.Observe)
	s.link.operations.Observe(o.Operated)
	if err := s.join(ctx, o); err != nil {
		return broker.Traits{}, s.life.Fail(err)
	}
	s.loop.flush = time.NewTimer(time.Hour)
	s.loop.flush.Stop()
	s.holdings.open(o, s.loop.flush, time.Now())
	if err := s.life.Launch(func(func(func())) {
		s.launched.Store(true)
		go s.loop.run() // Close waits for it, by loop.shut
	}); err != nil {
		s.place.abandon()
		return broker.Traits{}, err
	}
	return s.traits, nil
}

// join becomes a member, once the broker answers and the consumer's other sources are as far.
func (s *Source) join(ctx context.Context, o broker.Options) error {
	if o.Await != nil {
		if err := s.try(ctx, s.link.reach); err != nil {
			return err
		}
		if err := s.life.Await(ctx, o); err != nil {
			return err
		}
	}
	return s.try(ctx, s.place.open)
}

// try asks until the broker answers, ctx ends or Close was called.
func (s *Source) try(ctx context.Context, ask func() error) error {
	ctx, cancel := s.life.While(ctx)
	defer cancel()
	return kit.Retry(ctx, retryEvery, func(context.Context) error {
		defer s.events.Tell()
		return ask()
	}, isRefusal)
}

// Receive hands out messages. See broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("membroker: receiving: dst is empty")
	}
	for {
		s.link.frozen()
		g, starved, err := s.holdings.handOut(len(dst))
		if err != nil {
			return 0, err
		}
		if g.sp.n > 0 {
			g.fill(dst)
			return int(g.sp.n), nil
		}
		if starved {
			<-s.wake
			continue
		}
		got, due, err := s.ask()
		if err != nil {
			return 0, err
		}
		if !got {
			s.await(due)
		}
	}
}

// ask gets messages from the broker into the prefetch. due is when to ask again although nobody says that there is something.
func (s *Source) ask() (got bool, due time.Time, err error) {
	sent := s.link.operations.Begin()
	if err = s.link.pass(time.Time{}); err == nil {
		got, due, err = s.holdings.fetch(s.place, s.link.answer(), s.figures)
	}
	s.link.operated(broker.Fetch, sent, err)
	s.link.note(err)
	switch {
	case isRefusal(err):
		err = fmt.Errorf("membroker: receiving: %w", err)
		s.holdings.fail(err)
		return false, due, err
	case err != nil:
		return false, time.Now().Add(retryEvery), nil
	}
	return got, due, nil
}

// await sleeps until something may have changed.
func (s *Source) await(due time.Time) {
	if due.IsZero() {
		<-s.wake
		return
	}
	wait := time.Until(due)
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.wake:
	case <-t.C:
	}
}

var errForeign = fmt.Errorf("membroker: settling: %w", broker.ErrForeign)

// own returns the claim's state; nil when it is not of this source.
func (s *Source) own(c *broker.Claim) *claimState {
	if cs, ok := c.State.(*claimState); ok && cs.h.sh == s.holdings.shared {
		return cs
	}
	return nil
}

// Ack settles messages as handled. See broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	cs := s.own(c)
	if cs == nil {
		return errForeign
	}
	return s.holdings.ack(cs, tokens)
}

// Nack gives messages back. See broker.Source.
func (s *Source) Nack(c *broker.Claim, backs []broker.Back) error {
	cs := s.own(c)
	if cs == nil {
		return errForeign
	}
	return s.holdings.nack(cs, backs, s.traits.AtMostOnce)
}

// Lapsed says whether the lease of a message that is out has run out. See broker.LeaseReporter.
func (s *Source) Lapsed(c *broker.Claim, token uint64) bool {
	cs := s.own(c)
	return cs != nil && s.holdings.lapsedOut(cs, token)
}

// rouse wakes Receive and the loop.
func (s *Source) rouse() {
	s.wake.Ring()
	s.kick.Ring()
}

// Stop ends pulling. See broker.Source.
func (s *Source) Stop() {
	s.holdings.end(broker.ErrClosed)
	s.rouse()
}

// Close ends everything. See broker.Source.
func (s *Source) Close(ctx context.Context) error {
	s.Stop()
	return s.life.Close(func() error { return s.loop.shut(ctx) }, s.link.end)
}

// Lag returns the figures of the last exchange with the broker.
func (s *Source) Lag() broker.Lag { return s.figures.get() }

// LagByPartition returns those of each partition; nothing where Leased. See broker.PartitionLagReporter.
func (s *Source) LagByPartition() []broker.PartitionLag { return s.figures.byPartition() }

// Floors returns what the group had finished of this source's logs at the last exchange with the broker. See
// broker.FloorReporter.
func (s *Source) Floors() []broker.Floor { return s.figures.floorsNow() }

// Share is how many of the group's partitions were this source's at the last exchange with the broker, and none after a lease
// without a word of it: the group may have given them to others. It fails where Leased: nobody knows there who else reads. See
// broker.Sharer.
func (s *Source) Share() (broker.Share, error) {
	if s.b.stream != nil {
		return broker.Share{}, errors.New("membroker: a leased stream does not tell who else reads it")
	}
	share := s.figures.shareNow()
	if s.life.Context().Err() != nil || s.holdings.silent(time.Now()) > 0 {
		share.Held = 0
	}
	return share, nil
}

// SetBudget changes the budget for what is asked for from now on.
func (s *Source) SetBudget(b broker.Budget) {
	s.holdings.setBudget(b)
	s.wake.Ring()
}

// Pause stops the topics, or all. By topic it is errors.ErrUnsupported where Leased.
func (s *Source) Pause(topics ...string) error { return s.pause(s.holdings.pause, topics) }

// Resume undoes Pause. Without arguments it resumes all that was paused, by whichever call.
func (s *Source) Resume(topics ...string) error { return s.pause(s.holdings.resume, topics) }

func (s *Source) pause(change func(topics []string), topics []string) error {
	if len(topics) > 0 && s.b.stream != nil {
		return fmt.Errorf("membroker: pausing by topic on a leased stream: %w", errors.ErrUnsupported)
	}
	change(topics)
	s.rouse()
	return nil
}

// Hold hands out nothing of the claim until then.
func (s *Source) Hold(c *broker.Claim, until time.Time) {
	if cs := s.own(c); cs != nil {
		s.holdings.holdUntil(cs.h, until)
		s.rouse()
	}
}

// Window says how full the window of unfinished offsets is, 0..1; always 0 where Leased.
func (s *Source) Window(c *broker.Claim) float64 {
	cs := s.own(c)
	if cs == nil || s.b.stream != nil {
		return 0
	}
	return s.holdings.fill(cs.h)
}

// Describe implements broker.Describer.
func (s *Source) Describe() broker.Description {
	return broker.Description{System: "membroker", Group: s.cfg.Group}
}

// Reads implements broker.SelfReader.
func (s *Source) Reads(p broker.Publisher, topic string) bool {
	own, ok := p.(*Publisher)
	return ok && own.b == s.b && slices.Contains(s.cfg.Topics, topic)
}

// Cut cuts the connection in one direction, or both, until Heal.
func (s *Source) Cut(d Direction) {
	s.link.cutOff(d)
	s.kick.Ring()
}

// Heal ends Cut.
func (s *Source) Heal() {
	s.link.heal()
	s.rouse()
}

// Freeze stops the source as SIGSTOP stops a process: no heartbeat, no settle, no message, until Thaw. The caller must not call
// it meanwhile.
func (s *Source) Freeze() { s.link.freeze() }

// Thaw ends Freeze.
func (s *Source) Thaw() { s.link.thaw() }

// Kill ends the source as SIGKILL ends a process: nothing is sent any more, the broker is not told. Receive returns an error,
// settles are ErrLost. Close afterwards does nothing.
func (s *Source) Kill() {
	s.holdings.end(errKilled)
	s.link.kill()
	s.life.Stop()
	s.life.End() // an Open that waits
	s.rouse()
	if s.launched.Load() {
		<-s.loop.done
	}
}
