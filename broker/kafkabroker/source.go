package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A Source is a member of a consumer group; see broker.Source. It implements broker.PartitionLagReporter, Pauser, Holder,
// Rebudgeter and Windowed.
//
// Goroutines, from Open to Close: the membership, which talks to the group; the loop, which lets claims begin and end and alone
// calls Observe; the committer, which sends one commit at a time; the poller, which looks at topics; one for each fetch under way
// (at most two per broker), and one for partitions that begin. All share mu, which is held for memory work only.
type Source struct {
	cfg     Config
	matches func(topic string) bool
	c       *cluster
	k       *coordinator
	m       membership
	o       broker.Options
	events  *kit.EventQueue

	wake  chan struct{} // Receive
	kick  chan struct{} // the loop
	flush chan struct{} // the committer
	find  chan struct{} // the poller

	life      context.Context // of all goroutines
	end       context.CancelFunc
	loopEnd   chan struct{} // closed: the loop shall end
	loopDone  chan struct{}
	committed chan struct{} // the committer has ended
	memberEnd context.CancelFunc
	memberWas chan struct{}
	met       chan struct{} // the group has answered once, or refused
	metOnce   sync.Once
	refusal   error          // why met is closed, where it was not an answer
	work      sync.WaitGroup // the rest
	done      chan struct{}  // closed

	// What each ack touches stands together, and apart from what is read without the lock: two processors that ack in turns pass
	// each other its lines.
	_         [64]byte
	mu        sync.Mutex
	gate      kit.Gate
	finished  int64 // acks since the last commit was put together
	stopped   bool
	phase     phase
	closing   bool
	leaving   bool // all claims have ended for good: what is in ending is all there is
	fatal     error
	closeErr  error
	parts     map[partitionID]*part // open and revoking
	turns     []*part               // the same, for Receive
	turn      int
	beginning map[partitionID]*start
	begun     []*start
	ending    []*part // fenced, with a last commit to be made
	changes   []change
	gone      []goner
	stale     kit.StaleInFlight[logKey]
	books     map[logKey]*book // of lost partitions
	me        uint64           // names this process to others
	wary      int              // partitions whose messages are run alone
	marked    *part            // the one of them that has a suspect
	layout    map[string]topic
	missing   map[string]int // looks in a row that did not find a topic
	unmatched bool           // it was told that the pattern matches none
	pauses    kit.Pauses
	flights   map[int32]int // fetches under way by broker
	hurry     bool          // somebody waits for the next commit
	lagAt     time.Time
}

type phase int

const (
	created phase = iota
	opening
	opened
	failed
	closed
)

// A logKey names a log: a topic that is made anew has another.
type logKey struct {
	partitionID
	log uint64
}

var (
	_ broker.Source               = (*Source)(nil)
	_ broker.PartitionLagReporter = (*Source)(nil)
	_ broker.Pauser               = (*Source)(nil)
	_ broker.Holder               = (*Source)(nil)
	_ broker.Rebudgeter           = (*Source)(nil)
	_ broker.Windowed             = (*Source)(nil)
)

// NewSource makes a source. It checks cfg and reads the files that TLS names; it does not connect.
func NewSource(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	first := "__consumer_offsets"
	if len(cfg.Topics) > 0 {
		first = cfg.Topics[0]
	}
	c, err := cfg.connect(first)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, matches: cfg.matcher(), c: c, k: &coordinator{c: c, group: cfg.Group},
		wake: make(chan struct{}, 1), kick: make(chan struct{}, 1), flush: make(chan struct{}, 1), find: make(chan struct{}, 1),
		loopEnd: make(chan struct{}), loopDone: make(chan struct{}), committed: make(chan struct{}), memberWas: make(chan struct{}),
		met: make(chan struct{}), done: make(chan struct{}),
		parts: make(map[partitionID]*part), beginning: make(map[partitionID]*start), stale: make(kit.StaleInFlight[logKey]), books: make(map[logKey]*book), me: incarnation(),
		missing: make(map[string]int), events: kit.NewEventQueue(), flights: make(map[int32]int),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.m = newClassic(s.k, &s.cfg, s.subscribed, s.changed, s.noteGroup)
	return s, nil
}

// Open connects and joins the group. See broker.Source.
func (s *Source) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.admit(o); err != nil {
		return broker.Traits{}, err
	}
	if err := s.bootstrap(ctx); err != nil {
		s.mu.Lock()
		s.phase = failed
		s.mu.Unlock()
		return broker.Traits{}, fmt.Errorf("kafkabroker: opening: %w", err)
	}
	s.launch()
	if err := s.awaitGroup(ctx); err != nil {
		return broker.Traits{}, fmt.Errorf("kafkabroker: opening: %w", err)
	}
	return broker.Traits{Ordered: true, Attempts: broker.AtLeast}, nil
}

// awaitGroup waits for the group's first answer.
func (s *Source) awaitGroup(ctx context.Context) error {
	select {
	case <-s.met:
	case <-ctx.Done():
		return s.givenUp(ctx.Err())
	case <-s.life.Done():
		return broker.ErrClosed
	}
	return s.refusal
}

// givenUp says what was wrong before somebody gave up.
func (s *Source) givenUp(why error) error {
	trouble := s.events.Trouble()
	if trouble == nil {
		return why
	}
	return fmt.Errorf("%w (given up: %w)", trouble, why)
}

func (s *Source) admit(o broker.Options) error {
	var errs []error
	if o.Budget.Messages <= 0 || o.Budget.Bytes <= 0 {
		errs = append(errs, fmt.Errorf("kafkabroker: Options.Budget is %+v: both must be positive", o.Budget))
	}
	if o.Observe == nil {
		errs = append(errs, errors.New("kafkabroker: Options.Observe is nil"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing || s.stopped:
		return fmt.Errorf("kafkabroker: opening: %w", broker.ErrClosed)
	case s.phase != created:
		return errors.New("kafkabroker: opening: Open was called before")
	case len(errs) > 0:
		s.phase = failed
		return errors.Join(errs...)
	}
	s.phase, s.o = opening, o
	s.gate.SetBudget(o.Budget)
	s.events.Observe(o.Observe)
	return nil
}

// firstTry bounds the first try to reach a broker: somebody waits to be told what is wrong. A broker that is only slow is reached
// by a later one.
const firstTry = 2 * time.Second

// bootstrap looks at the topics until a broker answers.
func (s *Source) bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	var seen error // of the last try that had its time
	for wait := retryWait; ; wait = min(2*wait, time.Second) {
		began := time.Now()
		err := s.reach(ctx, seen == nil)
		if ctx.Err() == nil || seen == nil {
			if seen = err; err != nil {
				s.note(began, err)
			}
		}
		s.events.Tell()
		switch {
		case err == nil:
			return nil
		case s.life.Err() != nil:
			return broker.ErrClosed
		case refused(err), errors.Is(err, broker.ErrNoTopic):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w (given up: %w)", seen, context.Cause(ctx))
		}
		pause(ctx, wait)
	}
}

// reach tries the brokers, and looks at the topics.
func (s *Source) reach(ctx context.Context, first bool) error {
	probing := ctx
	if first {
		var cancel context.CancelFunc
		probing, cancel = context.WithTimeout(ctx, firstTry)
		defer cancel()
	}
	if err := s.cfg.probe(probing, s.c.transport); err != nil {
		return err
	}
	for looks := 1; ; looks++ { // a broker that has just started may not know its topics yet
		if err := s.look(ctx); err != nil {
			return err
		}
		err := s.absent()
		if err == nil || s.cfg.Missing == "wait" {
			return nil
		}
		if looks >= missingLooks || ctx.Err() != nil {
			return err
		}
		pause(ctx, 2*retryWait)
	}
}

// absent says what there is not of what is to be consumed, by the last look.
func (s *Source) absent() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Pattern != "" && len(s.layout) == 0 {
		return fmt.Errorf("%w: none matches %q, and Missing is stop", broker.ErrNoTopic, s.cfg.Pattern)
	}
	for _, name := range s.cfg.Topics {
		if s.missing[name] > 0 {
			return fmt.Errorf("%w: %s, and Missing is stop", broker.ErrNoTopic, name)
		}
	}
	return nil
}

// launch starts the goroutines.
func (s *Source) launch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing { // Close did not see any
		close(s.loopDone)
		close(s.committed)
		close(s.memberWas)
		return
	}
	s.phase = opened
	memberCtx, end := context.WithCancel(s.life)
	s.memberEnd = end
	go s.loop()
	go s.commitLoop()
	s.work.Go(s.poll)
	go func() {
		defer close(s.memberWas)
		if err := s.m.run(memberCtx); err != nil {
			s.fail(fmt.Errorf("group %s: %w", s.cfg.Group, err))
		}
	}()
}

// fail ends pulling for good. Open tells the reason where it is the group's first answer, and Receive in any case.
func (s *Source) fail(err error) {
	s.mu.Lock()
	if s.fatal == nil {
		s.fatal = err
	}
	s.mu.Unlock()
	s.metOnce.Do(func() { s.refusal = err; close(s.met) })
	signal(s.wake)
}

// Stop ends pulling. See broker.Source.
func (s *Source) Stop() {
	s.mu.Lock()
	s.stopped = true
	for _, p := range s.parts {
		p.drop()
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
}

// SetBudget changes the budget for what is fetched and handed out from now on.
func (s *Source) SetBudget(b broker.Budget) {
	s.mu.Lock()
	s.gate.SetBudget(b)
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
}

// Pause stops the topics, or all. What was prefetched of them is let go and fetched again.
func (s *Source) Pause(topics ...string) error { return s.pause(true, topics) }

// Resume undoes Pause. Without arguments it resumes all that was paused, by whichever call.
func (s *Source) Resume(topics ...string) error { return s.pause(false, topics) }

func (s *Source) pause(on bool, topics []string) error {
	s.mu.Lock()
	if on {
		s.pauses.Pause(topics...)
	} else {
		s.pauses.Resume(topics...)
	}
	for _, p := range s.parts {
		if s.pauses.Has(p.topic) {
			p.drop()
		}
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.kick)
	return nil
}

// Hold hands out nothing of the claim until then.
func (s *Source) Hold(c *broker.Claim, until time.Time) {
	p, ok := c.State.(*part)
	if !ok || p.s != s {
		return
	}
	s.mu.Lock()
	p.heldUntil = until
	p.drop()
	s.mu.Unlock()
	signal(s.kick)
}

// Window says how full the claim's window is. See broker.Windowed.
func (s *Source) Window(c *broker.Claim) float64 {
	p, ok := c.State.(*part)
	if !ok || p.s != s {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(1, p.tr.window())
}

// Lag returns the figures of this process's claims, by the last answers of the brokers. See broker.LagReporter.
func (s *Source) Lag() broker.Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	lag := broker.Lag{At: s.lagAt}
	for _, p := range s.parts {
		of := p.lag()
		if of.Waiting < 0 {
			return broker.UnknownLag()
		}
		lag.Waiting += of.Waiting
		lag.Unsettled += of.Unsettled
	}
	if s.lagAt.IsZero() || len(s.beginning) > 0 {
		return broker.UnknownLag()
	}
	return lag
}

// LagByPartition returns the figures of each partition of this process. See broker.PartitionLagReporter.
func (s *Source) LagByPartition() []broker.PartitionLag {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]broker.PartitionLag, 0, len(s.parts))
	for _, p := range s.parts {
		rows = append(rows, broker.PartitionLag{Topic: p.topic, Partition: p.no, Lag: p.lag()})
	}
	return rows
}

// lag is the partition's, by the last answer of its broker; it needs s.mu.
func (p *part) lag() broker.Lag {
	if p.end < 0 {
		return broker.UnknownLag()
	}
	waiting, open := p.tr.waiting(p.end)
	return broker.Lag{Waiting: waiting, Unsettled: waiting + open, At: p.endAt}
}

// subscribed are the topics to tell the group of.
func (s *Source) subscribed() []string {
	if s.cfg.Pattern == "" {
		return s.cfg.Topics
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.layout {
		if s.matches(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
