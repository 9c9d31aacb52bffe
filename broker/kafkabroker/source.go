package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is a member of a consumer group; see broker.Source. It implements broker.PartitionLagReporter, FloorReporter,
// Pauser, Holder, Rebudgeter, Windowed, MissingReporter, Sharer and, where Config.Transactional is set, Emitter.
//
// It puts its parts together, and they do the work: holdings decide what is to be done, and the others do it. Goroutines, from
// Open to Close: the membership, which talks to the group; the loop, which lets claims begin and end and, while it runs, alone
// calls Observe; the committer, which sends one commit at a time; the poller, which looks at topics; one for each fetch under way
// (at most two per broker), and one for partitions that begin.
type Source struct {
	cfg    Config
	c      *cluster
	m      membership
	h      *holdings
	atlas  *atlas
	bells  *bells
	events *kit.EventQueue
	life   *kit.Life
	note   contact

	operations kit.Operations
	differs    atomic.Bool // it was told that a publisher has another partitioner

	boot   bootstrap
	start  starter
	fetch  fetcher
	loop   loop
	commit committer
	poll   poller

	group     welcome
	memberEnd context.CancelFunc
	memberWas chan struct{} // closed: the membership has ended
}

var (
	_ broker.Source               = (*Source)(nil)
	_ broker.PartitionLagReporter = (*Source)(nil)
	_ broker.FloorReporter        = (*Source)(nil)
	_ broker.Pauser               = (*Source)(nil)
	_ broker.Holder               = (*Source)(nil)
	_ broker.LeaseReporter        = (*Source)(nil)
	_ broker.Rebudgeter           = (*Source)(nil)
	_ broker.Windowed             = (*Source)(nil)
	_ broker.MissingReporter      = (*Source)(nil)
	_ broker.Sharer               = (*Source)(nil)
)

// NewSource makes a source. It checks cfg and reads the files that TLS names; it does not connect.
func NewSource(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, c: c, atlas: newAtlas(&cfg), bells: newBells(), events: kit.NewEventQueue(), life: kit.NewLife("kafkabroker"),
		group: welcome{come: make(chan struct{})}, memberWas: make(chan struct{}),
	}
	known := &books{}
	s.h = newHoldings(&s.cfg, s.bells, s.events, known)
	s.note = contact{s.life.Context(), s.events, &s.operations, &broken{lines: make(map[line]bool)}}
	k := &coordinator{c: c, group: cfg.Group}
	s.m = s.membership(k)
	s.assemble(k, known)
	return s, nil
}

// membership is our part in the group.
func (s *Source) membership(k *coordinator) membership {
	of := host{
		topics: s.atlas.subscribed, tell: s.h.changed, trouble: s.answered, say: s.events.Say, find: func() { signal(s.bells.find) },
	}
	switch s.cfg.Membership {
	case "classic":
		return newClassic(k, &s.cfg, of)
	case "consumer":
		return newModern(k, &s.cfg, of)
	}
	return newAuto(k, &s.cfg, of)
}

// assemble gives each part what it works with.
func (s *Source) assemble(k *coordinator, known *books) {
	var txn *transactor
	if s.cfg.Transactional {
		txn = newTransactor(k, &s.cfg)
	}
	s.start = starter{
		cfg: &s.cfg, c: s.c, k: k, txn: txn, m: s.m, atlas: s.atlas, books: known, h: s.h, life: s.life, note: s.note, bells: s.bells,
		begun: newBeginnings(),
	}
	s.fetch = fetcher{cfg: &s.cfg, c: s.c, h: s.h, life: s.life, note: s.note, bells: s.bells}
	s.commit = committer{
		cfg: &s.cfg, h: s.h, k: k, m: s.m, timeout: s.c.timeout, atlas: s.atlas, note: s.note, bells: s.bells, txn: txn,
		done: make(chan struct{}),
	}
	s.poll = poller{cfg: &s.cfg, c: s.c, m: s.m, atlas: s.atlas, h: s.h, events: s.events, note: s.note, bells: s.bells}
	s.boot = bootstrap{cfg: &s.cfg, c: s.c, poll: &s.poll, atlas: s.atlas, events: s.events, note: s.note}
	s.loop = loop{
		h: s.h, m: s.m, atlas: s.atlas, start: &s.start, fetch: &s.fetch, events: s.events, life: s.life, bells: s.bells,
		end: make(chan struct{}), done: make(chan struct{}),
	}
}

// Open connects, waits for a topic where none is there (Config.Missing), and joins the group. See broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.life.Begin(o); err != nil {
		return broker.Traits{}, err
	}
	s.h.open(o)
	s.events.Observe(o.Observe)
	s.operations.Observe(o.Operated)
	if err := s.reach(ctx, o); err != nil {
		// A Close beside it has closed the connections, and the last request has then, perhaps, made some anew.
		s.c.transport.CloseIdleConnections()
		return broker.Traits{}, err
	}
	if err := s.awaitGroup(ctx); err != nil {
		return broker.Traits{}, fmt.Errorf("kafkabroker: opening: %w", err)
	}
	return broker.Traits{Ordered: true, Attempts: broker.AtLeast, Together: true, Atomic: s.cfg.Transactional}, nil
}

// reach finds the brokers, waits for the other sources of the consumer, and starts the goroutines.
func (s *Source) reach(ctx context.Context, o broker.Options) error {
	if err := s.boot.run(ctx, s.life.Context()); err != nil {
		return s.life.Fail(err)
	}
	if err := s.life.Await(ctx, o); err != nil {
		return s.life.Fail(err)
	}
	return s.life.Launch(s.launch)
}

// launch starts the goroutines.
func (s *Source) launch(run func(func())) {
	life := s.life.Context()
	memberCtx, end := context.WithCancel(life)
	s.memberEnd = end
	go s.loop.run()
	go s.commit.run(life)
	run(func() { s.poll.run(life) })
	go func() {
		defer close(s.memberWas)
		if err := s.m.run(memberCtx); err != nil {
			s.refused(fmt.Errorf("group %s: %w", s.cfg.Group, err))
		}
	}()
}

// A welcome is the group's first answer, or why there will be none.
type welcome struct {
	once    sync.Once
	come    chan struct{}
	refusal error // read when come is closed
}

func (w *welcome) is(refusal error) { w.once.Do(func() { w.refusal = refusal; close(w.come) }) }

// awaitGroup waits for the group's first answer.
func (s *Source) awaitGroup(ctx context.Context) error {
	select {
	case <-s.group.come:
		return s.group.refusal
	case <-s.life.Context().Done():
		return broker.ErrClosed
	case <-ctx.Done():
	}
	if trouble := s.events.Trouble(); trouble != nil { // what was wrong before somebody gave up
		return fmt.Errorf("%w (given up: %w)", trouble, ctx.Err())
	}
	return ctx.Err()
}

// answered takes note of the membership's exchanges. The first answer, of whatever kind, lets Open return.
func (s *Source) answered(began time.Time, err error) {
	s.note.on(toGroup, began, err)
	if err == nil {
		s.group.is(nil)
		signal(s.bells.wake)
	}
}

// refused ends pulling for good. Open tells the reason where it is the group's first answer, and Receive in any case.
func (s *Source) refused(why error) {
	s.h.end(why)
	s.group.is(why)
}

// Receive hands out messages. See broker.Source.
func (s *Source) Receive(dst []broker.Message) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("kafkabroker: receiving: dst is empty")
	}
	for {
		now := time.Now()
		l, err := s.h.lend(len(dst), now, s.m.lapsed(now))
		if err != nil {
			return 0, err
		}
		if l.p == nil {
			<-s.bells.wake
			continue
		}
		l.decode(dst)
		n, hungry := s.h.take(&l, dst, now)
		if hungry {
			s.fetch.schedule()
		}
		if n > 0 {
			return n, nil
		}
	}
}

// partOf is the claim's part; nil: the claim is of another source.
func (s *Source) partOf(c *broker.Claim) *part {
	if p, ok := c.State.(*part); ok && p.of == s.h {
		return p
	}
	return nil
}

// Ack settles messages as handled. See broker.Source.
func (s *Source) Ack(c *broker.Claim, tokens []uint64) error {
	p := s.partOf(c)
	if p == nil {
		return errForeign
	}
	return s.h.ack(p, tokens)
}

// Nack gives messages back: they are fetched again while the claim is open. See broker.Source.
func (s *Source) Nack(c *broker.Claim, backs []broker.Back) error {
	p := s.partOf(c)
	if p == nil {
		return errForeign
	}
	return s.h.nack(p, backs)
}

// Stop ends pulling. See broker.Source.
func (s *Source) Stop() {
	s.life.Stop()
	s.h.stop()
}

// SetBudget changes the budget for what is fetched and handed out from now on.
func (s *Source) SetBudget(b broker.Budget) { s.h.setBudget(b) }

// Pause stops the topics, or all. What was prefetched of them is let go and fetched again.
func (s *Source) Pause(topics ...string) error {
	s.h.pause(true, topics)
	return nil
}

// Resume undoes Pause. Without arguments it resumes all that was paused, by whichever call.
func (s *Source) Resume(topics ...string) error {
	s.h.pause(false, topics)
	return nil
}

// Hold hands out nothing of the claim until then.
func (s *Source) Hold(c *broker.Claim, until time.Time) {
	if p := s.partOf(c); p != nil {
		s.h.hold(p, until)
	}
}

// Lapsed says whether a message is out while the session is over, as after SIGSTOP: the group may have given its partition to
// another member, which only its next answer tells. See broker.LeaseReporter.
func (s *Source) Lapsed(c *broker.Claim, token uint64) bool {
	p := s.partOf(c)
	return p != nil && s.m.lapsed(time.Now()) && s.h.isOut(p, token)
}

// Window says how full the claim's window is. See broker.Windowed.
func (s *Source) Window(c *broker.Claim) float64 {
	p := s.partOf(c)
	if p == nil {
		return 0
	}
	return s.h.window(p)
}

// Missing says that none of the topics exists (Config.Missing is "run"). See broker.MissingReporter.
func (s *Source) Missing() error {
	if s.h.ending() {
		return nil
	}
	return s.atlas.nothing()
}

// Lag returns the figures of this process's claims, by the last answers of the brokers. See broker.LagReporter.
func (s *Source) Lag() broker.Lag {
	sum, _ := s.h.lags()
	return sum
}

// LagByPartition returns the figures of each partition of this process. See broker.PartitionLagReporter.
func (s *Source) LagByPartition() []broker.PartitionLag {
	_, each := s.h.lags()
	return each
}

// Floors returns what this process has committed last of each partition that it had. See broker.FloorReporter.
func (s *Source) Floors() []broker.Floor { return s.h.floors() }

// Share is how many of the partitions of all topics are this process's: none once the group may have given them to others. It
// never fails. See broker.Sharer.
func (s *Source) Share() (broker.Share, error) {
	all := s.atlas.partitions()
	if s.m.lapsed(time.Now()) {
		return broker.Share{All: all}, nil
	}
	held := s.h.held()
	return broker.Share{Held: held, All: max(held, all)}, nil
}
