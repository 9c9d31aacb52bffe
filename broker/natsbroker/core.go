package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/internal/natssubject"
)

// CoreConfig is a core NATS source: a queue group on plain subjects, without JetStream.
type CoreConfig struct {
	Connection `yaml:",inline"`

	// Subjects to subscribe to; wildcards are allowed, and no two may have a message in common. Required.
	Subjects []string `yaml:"subjects"`
	// Queue is the queue group: of the processes with the same one, one gets each message. Required.
	Queue string `yaml:"queue"`
}

// Validate reports all that is wrong at once, as *broker.Findings. NewCoreSource does so, too. It connects to nothing.
func (c CoreConfig) Validate() error {
	f := findings()
	conftag.Check(f, c)
	c.Connection = c.Connection.withDefaults()
	c.Connection.validate(f)
	f.Check(len(c.Subjects) > 0, "Subjects", "is missing")
	validateSubjects(f, c.Subjects, natssubject.Overlap) // each is a subscription of its own
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
	life *life
	bell kit.Bell // to Receive

	keeper   broker.Keeper
	assigned bool        // by Open
	stock    *coreStock  // what is here
	group    *queueGroup // by which it comes

	mu   sync.Mutex
	away bool // the connection is lost, and Gap was told
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
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &CoreSource{cfg: cfg, bell: kit.NewBell()}
	s.life = newLife(cfg.Connection, hooks{lost: s.lost, back: s.back, problem: s.problem, deaf: s.deaf})
	_, s.keeper = broker.NewClaim(coreTopic(cfg), -1, s)
	events := s.life.events
	s.stock = &coreStock{events: events, claim: s.keeper.Claim(), slots: newSlots(0), waiter: waiter{bell: s.bell}}
	s.group = &queueGroup{
		cfg: &s.cfg, link: s.life.link, events: events, arrived: s.stock.arrived, wanted: s.stock.wanted, look: kit.NewBell(),
	}
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
	err := s.life.open(ctx, o, func(ctx context.Context) error {
		if err := s.life.Await(ctx, o); err != nil {
			return err
		}
		s.stock.setBudget(o.Budget)
		s.assigned = true
		s.life.events.Say(broker.Event{Kind: broker.Assigned, Claim: s.keeper.Claim()})
		s.life.events.Tell()
		return s.group.open(ctx)
	}, s.group.run)
	if err != nil {
		return broker.Traits{}, err
	}
	s.life.events.Found(time.Now())
	return broker.Traits{Attempts: broker.Exact, AtMostOnce: true}, nil
}

// Receive implements broker.Source.
func (s *CoreSource) Receive(dst []broker.Message) (int, error) {
	for {
		if n, err := s.stock.receive(dst); n > 0 || err != nil {
			return n, err
		}
		<-s.bell
	}
}

// Ack implements broker.Source: it frees budget.
func (s *CoreSource) Ack(c *broker.Claim, tokens []uint64) error {
	if c != s.keeper.Claim() {
		return errForeign
	}
	return s.stock.settle(slices.Values(tokens), false)
}

// Nack implements broker.Source: it frees budget, and says broker.ErrLost.
func (s *CoreSource) Nack(c *broker.Claim, back []broker.Back) error {
	if c != s.keeper.Claim() {
		return errForeign
	}
	return s.stock.settle(func(yield func(uint64) bool) {
		for _, b := range back {
			if !yield(b.Token) {
				return
			}
		}
	}, true)
}

// Lag implements broker.LagReporter: core NATS cannot tell.
func (s *CoreSource) Lag() broker.Lag { return broker.UnknownLag() }

// Pause implements broker.Pauser: it leaves the queue group, so that others get the messages. Single topics cannot be paused.
func (s *CoreSource) Pause(topics ...string) error { return s.pause(true, topics) }

// Resume implements broker.Pauser.
func (s *CoreSource) Resume(topics ...string) error { return s.pause(false, topics) }

func (s *CoreSource) pause(on bool, topics []string) error {
	if len(topics) > 0 {
		return fmt.Errorf("natsbroker: pausing single topics: %w", errors.ErrUnsupported)
	}
	s.stock.pause(on)
	s.group.look.Ring()
	return nil
}

// SetBudget implements broker.Rebudgeter.
func (s *CoreSource) SetBudget(b broker.Budget) { s.stock.setBudget(b) }

// Stop implements broker.Source. What Receive has not returned cannot go back: it is lost, and told as Gap.
func (s *CoreSource) Stop() {
	s.stock.stop()
	s.group.look.Ring()
}

// Close implements broker.Source.
func (s *CoreSource) Close(context.Context) error {
	s.Stop()
	return s.life.close(func() error { return nil }, s.shut)
}

func (s *CoreSource) shut() {
	s.group.leave()
	s.stock.fence()
	s.keeper.End(fmt.Errorf("natsbroker: %w", broker.ErrClosed))
	if s.assigned {
		s.stock.tellLost()
		s.life.events.Say(broker.Event{Kind: broker.Ended, Claim: s.keeper.Claim(), Err: s.keeper.Claim().Cause()})
	}
}

// lost is told by the link that there is no connection.
func (s *CoreSource) lost(err error) {
	s.mu.Lock()
	gap := s.group.lost() && !s.away
	s.away = true
	s.mu.Unlock()
	s.life.events.Lost(err)
	if gap {
		s.life.events.Say(broker.Event{Kind: broker.Gap, Claim: s.keeper.Claim(), N: -1, Err: err})
	}
	s.group.forsake()
}

// back is told that there is a connection again.
func (s *CoreSource) back() {
	s.mu.Lock()
	s.away = false
	s.mu.Unlock()
	s.life.events.Found(time.Now())
	s.group.look.Ring()
}

func (s *CoreSource) problem(_ *nats.Subscription, err error) {
	s.life.warn(fmt.Errorf("natsbroker: %w", err))
}

func (s *CoreSource) deaf(err error) { s.group.refused(err) }
