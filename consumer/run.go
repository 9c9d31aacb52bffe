package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// ErrStuck is returned by Run when handlers did not return although their contexts had ended. Their messages come again, but for
// those that were settled meanwhile: a handler that was stuck long before the stop counts here too, and its message may have
// been handled by another call, or be a dead letter.
var ErrStuck = errors.New("handlers did not return")

// Run receives and handles messages until ctx ends or the source fails, then drains as the package comment says, and returns when
// all is settled or its time is over. It is called once.
//
// nil: ctx ended, and every handler returned. ErrStuck: some did not. Otherwise the errors of source and configuration.
// An error is the end of this consumer, and Health tells of it from then on: end the process, or make another consumer, with a
// source of its own. The values of ctx are those of the handlers' contexts; its end is not theirs.
func (c *Consumer) Run(ctx context.Context) (err error) {
	handlers, first := c.life.begin(ctx)
	if !first {
		return fmt.Errorf("%s: Run was called before", c.cfg.title())
	}
	c.claims.handlers = handlers
	defer c.life.kill(ErrShutdown)
	defer func() { c.life.end(err) }()
	c.life.enter(Opening)
	if err := c.open(ctx); err != nil {
		err = errors.Join(err, c.feeds.close(c.cfg.CloseTimeout))
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return fmt.Errorf("%s: %w", c.cfg.title(), err)
	}
	if err := c.runOpened(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.cfg.title(), err)
	}
	return nil
}

// open opens the sources beside each other, and waits until there is something to read. None claims anything before each of them
// could: else what the first ones claim lies here, and nobody handles it, for as long as the last one waits for its broker, or
// its topic.
func (c *Consumer) open(ctx context.Context) error {
	if c.cfg.OpenTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.OpenTimeout)
		defer cancel()
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	all := newMuster(len(c.feeds))
	errs := make([]error, len(c.feeds))
	var opens sync.WaitGroup
	for i, f := range c.feeds {
		opens.Go(func() {
			err := c.openFeed(ctx, f, all)
			if err != nil && !errors.Is(context.Cause(ctx), errOther) { // else it was given up for another one
				errs[i] = err
				giveUp(errOther)
			}
		})
	}
	opens.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.feeds.waitForOne(ctx, c.observeSource); err != nil {
		return fmt.Errorf("opening the sources: %w", err)
	}
	return nil
}

// errOther is why an Open is given up whose consumer cannot run.
var errOther = errors.New("another source cannot be opened")

// openFeed opens a source and refuses what it cannot do.
func (c *Consumer) openFeed(ctx context.Context, f *feed, all *muster) error {
	arrive := sync.OnceFunc(all.arrive)
	observe := func(e broker.Event) { c.observeSource(f, e) }
	o := broker.Options{Budget: c.budgets.opening(f), Ordered: c.cfg.ordered(), Observe: observe,
		Operated: c.tell.operated(f.retries)}
	if len(c.feeds) > 1 {
		o.Await = func(ctx context.Context) error { arrive(); return all.await(ctx) }
	}
	t, err := f.source.Open(ctx, o)
	if err != nil {
		f.foreign = errors.Is(err, broker.ErrOpened)
		if f.foreign || errors.Is(err, broker.ErrClosed) {
			err = fmt.Errorf("%w: a consumer wants a source of its own, a new one for each Run", err)
		}
		return fmt.Errorf("opening the source: %w", err)
	}
	arrive() // a source may know no Await
	f.traits = t
	if f.retries && !f.waits() {
		return errRetriesAtOnce
	}
	f.emits(c.cfg.Output)
	if f.emitter != nil && !f.carries(nil) {
		observe(broker.Event{Kind: broker.Notice, Err: errEmitsBefore})
	}
	if l := c.cfg.DeadLetter; f.emitter != nil && l != nil && !f.carries(l.Publisher) {
		observe(broker.Event{Kind: broker.Notice, Err: errLettersBefore})
	}
	if c.cfg.ordered() && !f.retries && !t.Ordered {
		observe(broker.Event{Kind: broker.Warning, Err: fmt.Errorf("%w: order is %s", errOrderHere, c.cfg.Order)})
	}
	return nil
}

// A muster is where sources wait for each other.
type muster struct {
	missing atomic.Int64
	all     chan struct{} // closed when none is missing
}

func newMuster(n int) *muster {
	m := &muster{all: make(chan struct{})}
	m.missing.Store(int64(n))
	return m
}

// arrive is called once for each.
func (m *muster) arrive() {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
}

// await waits for all.
func (m *muster) await(ctx context.Context) error {
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errRetriesAtOnce refuses a source whose messages that are not due would be handed out and given back without a pause.
var errRetriesAtOnce = errors.New("Retry.Topics.Source can hold no claim (broker.Holder) and keeps no delay " +
	"(Traits.NativeDelay): what is not due would come again at once, and again")

// errEmitsBefore is told at start where outputs could be part of the ack, and are not.
var errEmitsBefore = errors.New("consumer: the source is transactional and Output goes to another cluster: outputs are " +
	"published before the ack and not with it, at least once")

// errLettersBefore is the same of dead letters.
var errLettersBefore = errors.New("consumer: the source is transactional and DeadLetter.Publisher goes to another cluster, " +
	"or wraps one and is no broker.Wrapper: dead letters are published before the ack and not with it, at least once")

var errOrderHere = errors.New("consumer: the order holds within this process only: " +
	"its source lets several processes share messages")

// observeSource takes note of an event of a source, and passes it on.
func (c *Consumer) observeSource(f *feed, e broker.Event) {
	switch e.Kind {
	case broker.Assigned:
		f.assigned.add(e.Claim)
	case broker.Ended:
		f.assigned.remove(e.Claim)
	case broker.Up:
		f.up.Store(true)
	case broker.Down:
		f.up.Store(false)
	case broker.Gap:
		c.tell.count.gaps.Add(max(1, e.N))
	}
	c.tell.tell(SourceEvent{Event: e, Input: f.input, Retries: f.retries})
}

// runOpened is Run from the time on when the sources are open: it starts the workers and what runs beside them, receives, and
// stops. Whatever runs in the background for the whole life of a consumer is started here.
func (c *Consumer) runOpened(ctx context.Context) error {
	if err := c.startPool(); err != nil {
		return errors.Join(err, c.feeds.close(c.cfg.CloseTimeout))
	}
	c.revoker.start()
	beside, stop := context.WithCancel(context.Background())
	var loops, looks sync.WaitGroup
	looks.Go(func() { c.destinations.run(beside) })
	loops.Go(func() { c.budgets.run(beside) })
	loops.Go(func() { c.parked.run(beside) })
	loops.Go(func() { c.batches.run(beside, c.till.lingered) })
	loops.Go(func() { c.letters.run(beside) })
	loops.Go(func() { c.intake.holdOn(beside) })

	c.life.enter(Running)
	err := c.intake.run(ctx, func() { c.life.enter(Stopping) })
	start := time.Now()
	until := c.drain()
	c.life.enter(Closing)
	stop()
	loops.Wait()
	stuck := c.endWorkers(until, &looks)
	err = errors.Join(err, c.feeds.close(c.cfg.CloseTimeout))
	c.revoker.end()
	c.tell.tell(Drained{Took: time.Since(start), Stuck: stuck})
	if stuck > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d", ErrStuck, stuck))
	}
	return err
}

func (c *Consumer) startPool() error {
	return c.queue.start(pool.Config[*work]{
		Do: c.workers.do, Exit: c.workers.exit, Split: c.watchdog.split, Held: c.watchdog.watch, Waiting: c.feeds.waiting(),
		Observe: func(d pool.Decision) { c.tell.tell(Scaled{d}) },
	})
}
