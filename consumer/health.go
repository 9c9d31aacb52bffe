package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Health errors, for errors.Is.
var (
	// ErrNoProgress: there is work, and no handler has returned nil for too long.
	ErrNoProgress = errors.New("consumer: no progress")
	// ErrTooManyStuck: MaxStuck handlers have not returned although their contexts ended. Only a restart helps.
	ErrTooManyStuck = errors.New("consumer: too many stuck handlers")
)

// Health says what is wrong, or nil. There is no progress when for noProgress the consumer has been running unpaused, with work waiting or in
// flight, and no handler has returned nil; choose it above the longest handler. 0 skips that check. An unknown lag is no work.
//
// How long work has been waiting is known only from one call to the next, so call it regularly, as a liveness probe does. It does not block.
func (c *Consumer) Health(noProgress time.Duration) error {
	s := c.Stats()
	if limit := c.cfg.MaxStuck; c.cfg.Timeout > 0 && limit > 0 && s.Stuck >= limit {
		return fmt.Errorf("%w: %s has %d, MaxStuck is %d", ErrTooManyStuck, c.cfg.Name, s.Stuck, limit)
	}
	now := time.Now()
	if s.State != Running || c.gate.isShut() || (s.Lag.Waiting <= 0 && s.InFlight == 0) {
		c.calm.Store(now.UnixNano())
		return nil
	}
	since := time.Unix(0, c.calm.Load())
	if s.LastProgress.After(since) {
		since = s.LastProgress
	}
	if noProgress > 0 && c.calm.CompareAndSwap(0, now.UnixNano()) {
		return nil // the first look
	}
	if idle := now.Sub(since); noProgress > 0 && idle >= noProgress {
		return fmt.Errorf("%w: %s has handled nothing for %v, with %d in flight and lag %d", ErrNoProgress, c.cfg.Name, idle.Round(time.Second), s.InFlight, s.Lag.Waiting)
	}
	return nil
}
