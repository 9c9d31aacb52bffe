package pool

import (
	"errors"
	"fmt"
	"time"
)

// ClassicConfig has the three knobs of the classic report-status rule.
type ClassicConfig struct {
	// GrowAfter: one worker more when no idle report came for so long while work waits or all are busy. Defaults to 5 s.
	GrowAfter time.Duration
	// IdleTimeouts: a worker goes after so many idle timeouts in a row. Defaults to 3.
	IdleTimeouts int
	// MaxSleeping: at most so many workers stay idle beyond their idle timeout. Defaults to 0: no such limit.
	MaxSleeping int
}

// Classic is the rule that most report-status pools have. It adapts in minutes, not in milliseconds: 100 workers take it 99 times
// GrowAfter. Offered for who relies on its slowness, or wants its figures beside those of ReportStatus.
func Classic(cfg ClassicConfig) Policy {
	if cfg.GrowAfter == 0 {
		cfg.GrowAfter = 5 * time.Second
	}
	if cfg.IdleTimeouts == 0 {
		cfg.IdleTimeouts = 3
	}
	return &classic{cfg: cfg}
}

type classic struct {
	cfg     ClassicConfig
	started bool
	reports int64
	quiet   time.Duration // when the last idle report was heard, or a worker was added
}

func (c *classic) validate() error {
	var errs []error
	if c.cfg.GrowAfter < 0 {
		errs = append(errs, fmt.Errorf("pool: ClassicConfig.GrowAfter: is %v, must be positive", c.cfg.GrowAfter))
	}
	if c.cfg.IdleTimeouts < 0 {
		errs = append(errs, fmt.Errorf("pool: ClassicConfig.IdleTimeouts: is %d, must be positive", c.cfg.IdleTimeouts))
	}
	if c.cfg.MaxSleeping < 0 {
		errs = append(errs, fmt.Errorf("pool: ClassicConfig.MaxSleeping: is %d, must not be negative", c.cfg.MaxSleeping))
	}
	return errors.Join(errs...)
}

// Step adds or removes at most one worker.
func (c *classic) Step(o Observation) Decision {
	if !c.started || o.Reports > c.reports || o.IdleLong > 0 { // who is idle beyond its timeout reports on and on
		c.started, c.reports, c.quiet = true, o.Reports, o.Now
	}
	rest := c.cfg.GrowAfter - (o.Now - c.quiet)
	patience := never
	if n := time.Duration(max(1, c.cfg.IdleTimeouts)); o.IdleTimeout <= never/n {
		patience = n * o.IdleTimeout
	}
	switch {
	case o.Workers > o.Min && c.cfg.MaxSleeping > 0 && o.IdleLong > c.cfg.MaxSleeping:
		return Decision{Target: o.Workers - 1, Reason: ReasonIdle, Detail: "too many sleep", Next: tick}
	case o.Workers > o.Min && o.Idle > 0 && o.LongestIdle >= patience:
		return Decision{Target: o.Workers - 1, Reason: ReasonIdle, Detail: "for all its timeouts", Next: tick}
	case rest > 0:
		return o.stay(ReasonHold, "heard of idleness", c.wake(o, rest, patience))
	case o.Idle > 0 && o.Backlog == 0: // its timeout may be longer than GrowAfter
		return o.stay(ReasonHold, "a worker is idle", c.wake(o, c.cfg.GrowAfter, patience))
	case o.Workers >= o.Max:
		c.quiet = o.Now
		return o.stay(ReasonLimit, "at Max", c.cfg.GrowAfter)
	default:
		c.quiet = o.Now
		return Decision{Target: o.Workers + 1, Reason: ReasonGrow, Detail: "no idle report", Next: c.cfg.GrowAfter}
	}
}

// wake is when something is due next: never while all who are there are idle for good.
func (c *classic) wake(o Observation, rest, patience time.Duration) time.Duration {
	if o.Idle == 0 {
		return rest
	}
	if o.Workers > o.Min {
		rest = min(rest, max(tick, patience-o.LongestIdle))
	} else if o.IdleLong > 0 {
		return 0
	}
	return max(tick, rest)
}
