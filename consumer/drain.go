package consumer

import (
	"context"
	"slices"
	"time"
)

// drain gives back what is unstarted, waits for what runs, and ends its contexts when DrainTimeout has passed.
func (c *Consumer) drain() {
	c.enter(Draining)
	c.mu.Lock()
	c.over = "drain"
	c.mu.Unlock()
	for _, k := range c.openClaims() {
		c.clear(k, "drain")
	}
	if c.waitEmpty(c.cfg.DrainTimeout) {
		return
	}
	c.enter(Cancelling)
	c.kill(ErrShutdown)
	if !c.waitEmpty(c.cfg.CancelGrace) {
		c.tellLeft()
	}
}

// maxLeft is how many of the handlers that a stop leaves behind are named: enough to find the culprit, and few enough to read.
const maxLeft = 10

// tellLeft tells of each handler that has not returned, the longest running first, at most maxLeft.
func (c *Consumer) tellLeft() {
	var left []sighting
	for _, k := range c.openClaims() {
		left = append(left, k.running()...)
	}
	if len(left) == 0 {
		return // dead letters are what was waited for
	}
	slices.SortFunc(left, func(a, b sighting) int { return a.at.Compare(b.at) })
	stacks, now := allStacks(), time.Now()
	for _, s := range left[:min(len(left), maxLeft)] {
		c.tell(Stuck{Message: s.m, For: now.Sub(s.at), Stack: stackOf(stacks, s.goroutine)})
	}
}

// waitEmpty waits until everything received is settled, at most d, and says whether it is.
func (c *Consumer) waitEmpty(d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	for c.held.Load() > 0 {
		select {
		case <-c.empty:
		case <-timer.C:
			return c.held.Load() == 0
		}
	}
	return true
}

// endWorkers ends the pool and the dead-letter publishing, and returns how many handlers are stuck. By now every worker that can
// end is about to; one that gets no processor does it after Run.
func (c *Consumer) endWorkers() int {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _ = c.pool.Drain(ctx) // it counts workers, not handlers
	ended := make(chan struct{})
	go func() { // outlives Run only where a publisher ignores its context
		c.letters.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return c.stuckHandlers()
}

// stuckHandlers counts the handlers that were called and have not returned: those that the watchdog gave up, and those that run.
// A worker may have a run in hand without one: it got no processor since, and what it was handed was taken from it.
func (c *Consumer) stuckHandlers() int {
	running, given := 0, 0
	for _, r := range c.pool.InHand() {
		switch {
		case r.given():
			given++
		case r.running() >= 0:
			running++
		}
	}
	return running + max(given, int(c.stuck.Load())) // which the watchdog counts a moment after it has given one up
}
