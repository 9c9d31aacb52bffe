package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// ErrStuck is returned by Run when handlers did not return although their contexts had ended. Their messages come again.
var ErrStuck = errors.New("handlers did not return")

// Run receives and handles messages until ctx ends or the source fails, then drains as the package comment says, and returns when
// all is settled or its time is over. It is called once.
//
// nil: ctx ended, and every handler returned. ErrStuck: some did not. Otherwise the errors of source and configuration.
// The values of ctx are those of the handlers' contexts; its end is not theirs.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.ran.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: Run was called before", c.cfg.title())
	}
	c.work, c.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.kill(ErrShutdown)
	defer c.enter(Stopped)
	c.enter(Opening)
	if err := c.open(ctx); err != nil {
		err = errors.Join(err, c.close())
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return fmt.Errorf("%s: %w", c.cfg.title(), err)
	}
	err := c.runOpened(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cfg.title(), err)
	}
	return nil
}

func (c *Consumer) runOpened(ctx context.Context) error {
	if err := c.newPool(); err != nil {
		return errors.Join(err, c.close())
	}
	timers, stopTimers := context.WithCancel(context.Background())
	var schedules sync.WaitGroup
	schedules.Go(func() { c.keepBudgets(timers) })
	schedules.Go(func() { c.findDestinations(timers) })
	schedules.Go(func() { c.parked.run(timers, c.unpark) })
	schedules.Go(func() { c.lingers.run(timers, c.lingered) })
	schedules.Go(func() { c.letters.later.run(timers, c.letters.enqueue) })

	err := c.receive(ctx)
	start := time.Now()
	c.drain()
	c.enter(Closing)
	stopTimers()
	schedules.Wait()
	stuck := c.endWorkers()
	err = errors.Join(err, c.close())
	close(c.gone)
	c.watchers.Wait()
	c.tell(Drained{Took: time.Since(start), Stuck: stuck})
	if stuck > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d", ErrStuck, stuck))
	}
	return err
}

// enter goes to the next state.
func (c *Consumer) enter(s State) {
	c.state.Store(int32(s))
	c.tell(StateChanged{s})
}

// open opens the sources and refuses what they cannot do.
func (c *Consumer) open(ctx context.Context) error {
	if c.cfg.OpenTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.OpenTimeout)
		defer cancel()
	}
	for _, f := range c.feeds {
		t, err := f.source.Open(ctx, broker.Options{Budget: c.openingBudget(f), Ordered: c.ordered(), Observe: func(e broker.Event) { c.observeSource(f, e) }})
		if err != nil {
			return fmt.Errorf("opening the source: %w", err)
		}
		f.traits = t
		if c.ordered() && !f.retries && !t.Ordered {
			c.observeSource(f, broker.Event{Kind: broker.Warning, Err: fmt.Errorf("%w: order is %s", errOrderHere, c.cfg.Order)})
		}
	}
	return nil
}

var errOrderHere = errors.New("consumer: the order holds within this process only: its source lets several processes share messages")

func (c *Consumer) observeSource(f *feed, e broker.Event) {
	switch e.Kind {
	case broker.Up:
		f.up.Store(true)
	case broker.Down:
		f.up.Store(false)
	case broker.Gap:
		c.count.gaps.Add(max(1, e.N))
	}
	c.tell(SourceSaid{Event: e, Retries: f.retries})
}

// receive dispatches until ctx ends or a source fails. When it returns, all that was ever received is in the pool, parked, or
// settled.
func (c *Consumer) receive(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	unhook := context.AfterFunc(ctx, c.stopSources)
	defer unhook()
	c.enter(Running)
	errs := make([]error, len(c.feeds))
	var dispatchers sync.WaitGroup
	for i, f := range c.feeds {
		dispatchers.Go(func() {
			if f.retries {
				errs[i] = c.dispatchRetries(ctx, f)
			} else {
				errs[i] = c.dispatch(ctx, f)
			}
			stop() // a source that cannot go on ends the consumer
		})
	}
	<-ctx.Done()
	c.enter(Stopping)
	dispatchers.Wait()
	c.stopSources()
	return errors.Join(errs...)
}

func (c *Consumer) stopSources() {
	for _, f := range c.feeds {
		f.source.Stop()
	}
}

// close closes the sources.
func (c *Consumer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.CloseTimeout)
	defer cancel()
	var errs []error
	for _, f := range c.feeds {
		if err := f.source.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing the source: %w", err))
		}
	}
	return errors.Join(errs...)
}
