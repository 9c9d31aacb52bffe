package consumer

import (
	"context"
	"slices"
	"sync"
	"time"
)

// drain gives back what is unstarted, waits for what runs, and ends its contexts when DrainTimeout has passed. It returns until
// when handlers have time to return that were given up before: their messages are not waited for, and their contexts have ended.
func (c *Consumer) drain() (until time.Time) {
	c.life.enter(Draining)
	c.claims.shut("drain")
	for _, k := range c.claims.all() {
		c.revoker.clear(k, "drain")
	}
	c.queue.sweep()
	if c.till.wait(c.cfg.DrainTimeout) {
		return time.Now().Add(c.cfg.CancelGrace)
	}
	c.life.enter(Cancelling)
	c.life.kill(ErrShutdown)
	until = time.Now().Add(c.cfg.CancelGrace)
	if !c.till.wait(c.cfg.CancelGrace) {
		c.tellLeft()
	}
	return until
}

// maxLeft is how many of the handlers that a stop leaves behind are named: enough to find the culprit, and few enough to read.
const maxLeft = 10

// tellLeft tells of each handler that has not returned, the longest running first, at most maxLeft.
func (c *Consumer) tellLeft() {
	var left []sighting
	for _, k := range c.claims.present() {
		left = append(left, k.running()...)
	}
	if len(left) == 0 {
		return // dead letters are what was waited for
	}
	slices.SortFunc(left, func(a, b sighting) int { return a.at.Compare(b.at) })
	stacks, now := allStacks(), time.Now()
	for _, s := range left[:min(len(left), maxLeft)] {
		c.tell.tell(Stuck{Message: s.m, For: now.Sub(s.at), Stack: stackOf(stacks, s.goroutine)})
	}
}

// endWorkers ends the pool, the dead-letter publishing and the looks for where that goes, and returns how many handlers are
// stuck. By now every worker that can end is about to, but for those of handlers that were given up, which have until then; one
// that gets no processor does it after Run.
func (c *Consumer) endWorkers(until time.Time, looks *sync.WaitGroup) int {
	ctx, cancel := context.WithTimeout(context.Background(), max(100*time.Millisecond, time.Until(until)))
	defer cancel()
	c.queue.drain(ctx)
	c.workers.awaitStrays(ctx)
	ended := make(chan struct{})
	go func() { // outlives Run only where a publisher ignores its context
		c.letters.wait()
		looks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return c.workers.stuckIn(c.queue.inHand())
}
