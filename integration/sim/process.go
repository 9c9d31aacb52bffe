package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// A process is a consumer with its connections.
type process struct {
	run  *run
	no   int
	name string
	has  Process
	c    *consumer.Consumer
	stop context.CancelFunc
	// ended has what Run returned.
	ended    chan struct{}
	err      error
	spies    []*spy
	events   *events
	hooks    *hooks       // nil: none
	limits   *limits      // nil: none
	repeats  atomic.Int64 // that Dedup has skipped
	stopped  time.Time    // zero: nobody has told it to stop
	paused   int          // how many pauses are under way
	died     chan struct{}
	deadOnce sync.Once

	mu       sync.Mutex
	thawed   chan struct{} // nil: it does not stand still
	thawedAt time.Time
	frozen   int // how many freezes are under way

	silent silence
}

// start makes a process, and runs its consumer.
func (r *run) start() error {
	no := len(r.processes)
	p := &process{run: r, no: no, name: fmt.Sprintf("p%d", no), ended: make(chan struct{}), died: make(chan struct{})}
	p.has = r.world.Join(p.name)
	p.events = newEvents(p)
	cfg, err := p.config(rand.New(rand.NewPCG(r.schedule.Seed, uint64(1000+p.no))))
	if err != nil {
		return err
	}
	if p.c, err = consumer.New(cfg); err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	r.ownersMu.Lock()
	r.processes = append(r.processes, p)
	r.ownersMu.Unlock()
	r.book.note("%s starts, with at most %d workers", p.name, cfg.Pool.Max)
	go func() {
		defer close(p.ended)
		p.err = p.c.Run(ctx)
		r.book.note("%s has ended: %v", p.name, p.err)
	}()
	return nil
}

// config is the consumer's.
func (p *process) config(rnd *rand.Rand) (consumer.Config, error) {
	s := p.run.schedule.Settings
	workers := 1 + rnd.IntN(s.Workers)
	cfg := consumer.Config{
		Name: p.name, Logger: zerolog.Nop(), Observers: []consumer.Observer{p.events.observe},
		Order: s.Order, Lane: consumer.Lane{Limit: s.Lane, Full: consumer.LaneBlock}, Strict: s.Strict,
		Pool: consumer.Pool{Max: workers}, Budget: broker.Budget{Messages: max(s.Budget, workers), Bytes: 1 << 20},
		Timeout: time.Duration(s.Timeout), DrainTimeout: time.Duration(s.Drain), CancelGrace: cancelGrace, CloseTimeout: closeTimeout,
		Retry: consumer.Retry{MaxAttempts: s.Attempts, GiveUpAfter: time.Duration(s.GiveUp), Backoff: backoff},
	}
	if s.Timeout > 0 {
		cfg.StuckAfter = time.Duration(s.Lease)
	}
	if s.MakeRoom { // a lane has to be full before the budget of a source is
		cfg.Lane.Full = consumer.LaneDeadLetter
		cfg.Lane.Limit = min(s.Lane, max(1, cfg.Budget.Messages/len(p.run.schedule.Inputs())-1))
	}
	if p.run.logs != nil {
		cfg.Logger = zerolog.New(p.run.logs)
	}
	if s.Size > 0 {
		cfg.Budget.Bytes, cfg.MaxMessageBytes = s.Bytes, 100+s.Size
	}
	p.hook(&cfg)
	if s.Batch > 0 {
		cfg.Batch = &consumer.Batch{Handler: p.handleBatch, Size: s.Batch, Bytes: s.BatchBytes, ByKey: s.ByKey,
			Linger: cmp.Or(time.Duration(s.Linger), lingers)}
	} else {
		var err error
		if cfg.Handler, err = p.limit(p.once(p.handle)); err != nil {
			return cfg, err
		}
	}
	if s.Levels > 0 {
		cfg.Priority = &consumer.Priority{Of: func(m *consumer.Message) int { return numberOf(m.Value) % s.Levels }}
		for level := range s.Levels {
			cfg.Priority.Levels = append(cfg.Priority.Levels, s.Levels-level)
		}
	}
	return cfg, errors.Join(p.subscribe(&cfg), p.publishes(&cfg), p.bridged(&cfg), p.shareLimits())
}

var backoff = consumer.Backoff{Initial: 50 * time.Millisecond, Max: 400 * time.Millisecond}

const (
	lingers      = 50 * time.Millisecond
	cancelGrace  = 500 * time.Millisecond
	closeTimeout = 5 * time.Second
)

// subscribe gives it its sources: one of all topics, or with several topics one of each.
func (p *process) subscribe(cfg *consumer.Config) error {
	inputs := p.run.schedule.Inputs()
	if len(inputs) == 1 {
		src, err := p.source(mainGroup, inputs)
		cfg.Source = src
		return err
	}
	for i, topic := range inputs {
		src, err := p.source(fmt.Sprintf("%s%d", mainGroup, i), []string{topic})
		if err != nil {
			return err
		}
		cfg.Sources = append(cfg.Sources, consumer.Input{Source: src, Weight: 1 + i})
	}
	return nil
}

func (p *process) source(group string, topics []string) (broker.Source, error) {
	ordered := p.run.schedule.Settings.Order != consumer.OrderNone
	src, err := p.has.Source(Subscription{Group: group, Topics: topics, Ordered: ordered})
	if err != nil {
		return nil, err
	}
	watched, s := watch(p, group, src)
	p.spies = append(p.spies, s)
	return watched, nil
}

// publishes gives it dead letters and retry topics, where it has them.
func (p *process) publishes(cfg *consumer.Config) error {
	s := p.run.schedule.Settings
	if s.Letters {
		pub, err := p.has.Publisher()
		if err != nil {
			return err
		}
		p.run.publishers = append(p.run.publishers, pub)
		cfg.DeadLetter = &consumer.DeadLetter{Publisher: &letterbox{Publisher: pub, p: p}, Topic: letterTopic}
		p.run.schedule.route(cfg.DeadLetter)
	}
	if !s.Spill {
		return nil
	}
	pub, err := p.has.Publisher()
	if err != nil {
		return err
	}
	p.run.publishers = append(p.run.publishers, pub)
	src, err := p.source(retryGroup, retryTopics)
	if err != nil {
		return err
	}
	cfg.Retry.Topics = &consumer.RetryTopics{Publisher: pub, Source: src}
	for i, topic := range retryTopics {
		cfg.Retry.Topics.Steps = append(cfg.Retry.Topics.Steps, consumer.RetryStep{Topic: topic, Delay: retryDelays[i]})
	}
	return nil
}

var retryDelays = []time.Duration{150 * time.Millisecond, 600 * time.Millisecond}

// A letterbox tells the book of dead letters that were confirmed.
type letterbox struct {
	broker.Publisher
	p *process
}

// Unwrap implements broker.Wrapper: where an ack carries letters, the book hears of them by the spy.
func (l *letterbox) Unwrap() broker.Publisher { return l.Publisher }

// Prepare implements broker.Wrapper.
func (l *letterbox) Prepare(_ context.Context, ms []broker.Outgoing) []broker.Outgoing { return ms }

// Publish is the publisher's.
func (l *letterbox) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := l.Publisher.Publish(ctx, ms)
	var each *broker.PublishError
	told := errors.As(err, &each)
	for i, m := range ms {
		if err == nil || told && each.Errs[i] == nil {
			l.p.run.book.letter(l.p, m)
		}
	}
	return err
}

// die marks it as killed: nothing that its handlers do from now on has happened.
func (p *process) die() { p.deadOnce.Do(func() { close(p.died) }) }

func (p *process) isDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// hasEnded says whether its Run has returned.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// runs says whether it goes on by itself: nobody stopped it, and it has not ended.
func (p *process) runs() bool { return p.stopped.IsZero() && !p.hasEnded() }

// unheard is for how long it has heard nothing of the broker; 0 where it stands still, or did a moment ago, and has to look at
// the clock first.
func (p *process) unheard() time.Duration {
	alone := p.silent.lasts()
	if p.isBehind() {
		return 0
	}
	return max(alone, p.run.silent.lasts())
}

// freeze lets its handlers stand still.
func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen++; p.frozen == 1 {
		p.thawed = make(chan struct{})
	}
}

// thaw ends freeze.
func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen--; p.frozen == 0 {
		close(p.thawed)
		p.thawed, p.thawedAt = nil, time.Now()
	}
}

// isBehind says whether it stands still, or did so a moment ago: then it may not know yet what it has lost.
func (p *process) isBehind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed != nil || p.lately()
}

// standStill waits while the process is frozen, and says whether it was, or was so a moment ago: then it may not know yet what
// it has lost.
func (p *process) standStill() bool {
	p.mu.Lock()
	thawed, lately := p.thawed, p.lately()
	p.mu.Unlock()
	if thawed == nil {
		return lately
	}
	select {
	case <-thawed:
	case <-p.died:
	}
	return true
}

// lately says whether it stood still a moment ago. It needs mu.
func (p *process) lately() bool { return !p.thawedAt.IsZero() && time.Since(p.thawedAt) < settleWithin }

// finish tells it to stop.
func (p *process) finish(how string) {
	if p.stopped.IsZero() {
		p.stopped = time.Now()
		p.run.book.note("%s is told to stop: %s", p.name, how)
	}
	p.stop()
}
