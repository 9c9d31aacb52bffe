package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
	"github.com/rs/zerolog"
)

// A Consumer handles the messages of a source. Make it with New, run it with Run, once. Its other methods are safe for concurrent
// use and may be called at any time.
type Consumer struct {
	cfg       Config
	handler   Handler
	do        func(*pool.Worker[*work], *work) // handle
	observers []Observer
	counting  []Observer // those of them that are told of Handled: not the log
	feeds     []*feed

	pool    *pool.Pool[*work]
	started atomic.Bool // pool is set
	parked  *schedule[parked]
	lingers *schedule[*gathering]
	letters *letters
	missing map[string]error // destinations that are not there; under mu

	// work is the parent of all handlers' contexts; kill ends it, at the end of a drain.
	work context.Context
	kill context.CancelCauseFunc

	mu       sync.Mutex
	claims   map[*broker.Claim]*claim
	lanes    map[laneKey]*lanes
	over     string // why no claim may start anything any more
	limits   [2]int // min and max workers
	watchers sync.WaitGroup
	gone     chan struct{} // closed when Run has given up waiting for claims to end
	empty    chan struct{} // signalled when held falls to 0
	pulse    pulse

	// What follows is written for each run, by dispatchers, by workers, or by both: what they only read does not share a cache line
	// with it.
	_        line
	received atomic.Int64
	gate     gate
	_        line
	held     atomic.Int64 // messages received and not settled
	_        line
	pace     pace
	progress atomic.Int64 // when a handler last returned nil, Unix nanoseconds
	count    counters
	ages     ages
	_        line

	stuck atomic.Int64
	// delayedUntil is when the last of the messages that were given back with a delay may come again, Unix nanoseconds.
	delayedUntil atomic.Int64
	state        atomic.Int32
	ran          atomic.Bool
}

// line keeps what stands before it from the cache line of what stands after it.
type line [64]byte

// New checks cfg and makes a Consumer of it. The error names every field that is wrong.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Consumer{
		cfg: cfg, handler: cfg.Handler,
		parked: newSchedule[parked](), lingers: newSchedule[*gathering](), claims: map[*broker.Claim]*claim{}, lanes: map[laneKey]*lanes{}, limits: [2]int{cfg.Pool.Min, cfg.Pool.Max},
		gone: make(chan struct{}), empty: make(chan struct{}, 1),
	}
	c.do = c.handle
	for i, in := range cfg.inputs() {
		c.feeds = append(c.feeds, &feed{source: in.Source, class: i * cfg.levels()})
	}
	if t := cfg.Retry.Topics; t != nil {
		c.feeds = append(c.feeds, &feed{source: t.Source, retries: true})
	}
	c.letters = &letters{c: c, later: newSchedule[letter](), boxes: map[string]*outbox{}, open: map[*Message]bool{}}
	c.counting = slices.Clone(cfg.Observers)
	c.observers = slices.Clone(cfg.Observers)
	if cfg.Logger.GetLevel() != zerolog.Disabled {
		c.observers = append(c.observers, LogEvents(cfg.Logger.With().Str("consumer", cfg.Name).Logger()))
	}
	return c, nil
}

// newPool makes the pool, which starts its workers.
func (c *Consumer) newPool() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := pool.New(pool.Config[*work]{
		Min: c.limits[0], Max: c.limits[1], IdleTimeout: c.cfg.Pool.IdleTimeout, Policy: c.cfg.Pool.Policy, Gauge: c.cfg.Pool.Gauge, Waiting: c.waiting(),
		Do: c.do, Exit: c.exit, Split: c.split, Held: c.watch, Count: (*work).unstarted,
		Weights: c.cfg.weights(), Strict: c.cfg.Strict, Scan: scanEvery, MaxStuck: c.cfg.MaxStuck, Queue: c.cfg.Budget.Messages,
		Observe: func(d pool.Decision) { c.tell(Scaled{d}) },
	})
	if err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	c.pool = p
	c.started.Store(true)
	return nil
}

// lagEvery is how old the lag may be that the pool's manager sees.
const lagEvery = 100 * time.Millisecond

// waiting returns what the pool's manager asks, up to 200 times a second: how much waits at the brokers. For one goroutine.
func (c *Consumer) waiting() func() int64 {
	n, at := int64(-1), time.Time{}
	return func() int64 {
		if now := time.Now(); now.Sub(at) >= lagEvery {
			n, at = c.lag().Waiting, now
		}
		return n
	}
}

// SetLimits changes the least and the most workers, also while running.
func (c *Consumer) SetLimits(minimum, maximum int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if minimum < 1 || maximum < minimum || maximum > c.cfg.Budget.Messages {
		return fmt.Errorf("%s: limits %d..%d, want 1 <= min <= max <= the budget of %d messages", c.cfg.title(), minimum, maximum, c.cfg.Budget.Messages)
	}
	c.limits = [2]int{minimum, maximum}
	if c.started.Load() {
		return c.pool.SetLimits(minimum, maximum)
	}
	return nil
}

// Pause stops taking messages from the broker; what was taken is handled. It does not wait.
func (c *Consumer) Pause() error {
	c.gate.shut()
	return c.eachPauser(func(p broker.Pauser) error { return p.Pause() })
}

// Resume undoes Pause.
func (c *Consumer) Resume() error {
	c.gate.lift()
	return c.eachPauser(func(p broker.Pauser) error { return p.Resume() })
}

func (c *Consumer) eachPauser(do func(broker.Pauser) error) error {
	var errs []error
	for _, f := range c.feeds {
		if p, ok := f.source.(broker.Pauser); ok {
			if err := do(p); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// lag is that of all sources together; unknown where one's is. The retry topics' is not in it: what lies there waits on purpose.
func (c *Consumer) lag() (sum broker.Lag) {
	for _, f := range c.feeds {
		if f.retries {
			continue
		}
		l, ok := f.source.(broker.LagReporter)
		if !ok {
			return broker.UnknownLag()
		}
		lag := l.Lag()
		if lag.Waiting < 0 || lag.Unsettled < 0 {
			return broker.UnknownLag()
		}
		sum.Waiting, sum.Unsettled, sum.Group = sum.Waiting+lag.Waiting, sum.Unsettled+lag.Unsettled, sum.Group || lag.Group
		if sum.At.IsZero() || lag.At.Before(sum.At) {
			sum.At = lag.At
		}
	}
	return sum
}

// LagByPartition returns the lag of each partition that is held here, by topic and number. Sources without partitions, and those
// that hold none, are one row without a topic, with the partition -1. nil: the lag is unknown. It does not block.
func (c *Consumer) LagByPartition() []broker.PartitionLag {
	if c.lag().At.IsZero() {
		return nil
	}
	sums := map[laneKey]broker.Lag{}
	add := func(topic string, partition int32, l broker.Lag) {
		key := laneKey{topic: topic, partition: partition}
		sum := sums[key]
		sum.Waiting, sum.Unsettled, sum.Group, sum.At = sum.Waiting+l.Waiting, sum.Unsettled+l.Unsettled, sum.Group || l.Group, l.At
		sums[key] = sum
	}
	for _, f := range c.feeds {
		if f.retries {
			continue
		}
		var rows []broker.PartitionLag
		if s, ok := f.source.(broker.PartitionLagReporter); ok {
			rows = s.LagByPartition()
		}
		for _, row := range rows {
			if row.Waiting < 0 || row.Unsettled < 0 { // it has come just now
				return nil
			}
			add(row.Topic, row.Partition, row.Lag)
		}
		if len(rows) > 0 {
			continue
		}
		all := f.source.(broker.LagReporter).Lag()
		if all.Waiting < 0 || all.Unsettled < 0 {
			return nil
		}
		add("", -1, all)
	}
	all := make([]broker.PartitionLag, 0, len(sums))
	for key, sum := range sums {
		all = append(all, broker.PartitionLag{Topic: key.topic, Partition: key.partition, Lag: sum})
	}
	slices.SortFunc(all, func(a, b broker.PartitionLag) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// Ready says whether the consumer is running and its sources had contact with the broker when they last spoke of it.
func (c *Consumer) Ready() bool { return State(c.state.Load()) == Running && c.connected() }

// connected says whether all sources had contact when they last spoke of it.
func (c *Consumer) connected() bool {
	return !slices.ContainsFunc(c.feeds, func(f *feed) bool { return !f.up.Load() })
}

// counters count since Run began.
type counters struct {
	handled, skipped, failed, retried, deferred, spilled, deadLettered, givenBack, lost, gaps, unordered atomic.Int64
}

// Stats are a Consumer's figures, counted since Run began.
type Stats struct {
	State State
	// Paused: no messages are taken until Resume.
	Paused bool
	// Received from the source, redeliveries included.
	Received int64
	// Handled: acked because a handler returned nil.
	Handled int64
	// Skipped: acked because a handler returned Skip.
	Skipped int64
	// Failed runs.
	Failed int64
	// Retried: failed runs whose message is tried again.
	Retried int64
	// Spilled: of those, published to a retry topic, confirmed and acked. They are received again when they are due.
	Spilled int64
	// Deferred: calls that returned Defer.
	Deferred int64
	// DeadLettered: published, confirmed and acked.
	DeadLettered int64
	// GivenBack to the broker without a finished run.
	GivenBack int64
	// Lost: settles that came too late.
	Lost int64
	// Gaps: messages that the broker no longer had when their turn came; at least, where it cannot tell how many.
	Gaps int64
	// Unordered: messages without a key in an order by key; they are handled in no order.
	Unordered int64
	// InFlight: received and not settled: queued, running, parked, or on their way to the dead letters.
	InFlight int64
	// Parked wait here for their next attempt, or are deferred.
	Parked int
	// Lanes is how many keys or partitions are at large in an order, and Waiting how many messages wait for their turn in them.
	Lanes, Waiting int
	// Stuck handlers that were replaced and have not returned.
	Stuck int
	// LastProgress is when a handler last returned nil; zero: never.
	LastProgress time.Time
	Lag          broker.Lag
	Pool         pool.Stats
}

// Stats returns the current figures. It does not block.
func (c *Consumer) Stats() Stats {
	n := &c.count
	s := Stats{
		State: State(c.state.Load()), Paused: c.gate.isShut(), Received: c.received.Load(), Handled: n.handled.Load(), Skipped: n.skipped.Load(), Failed: n.failed.Load(),
		Retried: n.retried.Load(), Deferred: n.deferred.Load(), Spilled: n.spilled.Load(), DeadLettered: n.deadLettered.Load(), GivenBack: n.givenBack.Load(), Lost: n.lost.Load(), Gaps: n.gaps.Load(), Unordered: n.unordered.Load(),
		InFlight: c.held.Load(), Parked: c.parked.len(), Stuck: int(c.stuck.Load()), Lag: broker.UnknownLag(),
	}
	for _, t := range c.allLanes() {
		n, waiting := t.size()
		s.Lanes, s.Waiting = s.Lanes+n, s.Waiting+waiting
	}
	if at := c.progress.Load(); at != 0 {
		s.LastProgress = time.Unix(0, at)
	}
	s.Lag = c.lag()
	if c.started.Load() {
		s.Pool = c.pool.Stats()
	} else {
		c.mu.Lock()
		s.Pool.Min, s.Pool.Max = c.limits[0], c.limits[1]
		c.mu.Unlock()
	}
	return s
}
