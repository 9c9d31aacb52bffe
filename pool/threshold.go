package pool

import (
	"errors"
	"fmt"
	"time"
)

// ThresholdConfig sets the queue threshold rule.
type ThresholdConfig struct {
	// BusyAt: fill of the queue, 0 to 1, at which it is busy and workers are added. Defaults to 0.75.
	BusyAt float64
	// BusyJobs: waiting jobs for each worker beyond which the queue is busy, however full it is. Defaults to 10.
	BusyJobs float64
	// IdleAt: fill at which it is idle and workers are removed; between both it is normal. Defaults to 0.25.
	IdleAt float64
	// Batch: workers added or removed at a time. Defaults to 1.
	Batch int
	// Cooldown: the time between two changes. Defaults to 1 s.
	Cooldown time.Duration
}

func (c ThresholdConfig) withDefaults() ThresholdConfig {
	if c.BusyAt == 0 {
		c.BusyAt = 0.75
	}
	if c.BusyJobs == 0 {
		c.BusyJobs = 10
	}
	if c.IdleAt == 0 {
		c.IdleAt = 0.25
	}
	if c.Batch == 0 {
		c.Batch = 1
	}
	if c.Cooldown == 0 {
		c.Cooldown = time.Second
	}
	return c
}

// QueueThreshold adds a batch of workers while the queue is busy and removes one while it is idle, with a cooldown between. The
// queue is busy by jobs per worker or by its fill. A class's bound is what fill is measured by, so Config.Queue is part of this
// rule.
func QueueThreshold(cfg ThresholdConfig) Policy { return &threshold{cfg: cfg.withDefaults()} }

type threshold struct {
	cfg     ThresholdConfig
	changed bool
	at      time.Duration // of the last change
}

func (q *threshold) validate() error {
	var errs []error
	if c := q.cfg; !(c.IdleAt >= 0 && c.IdleAt < c.BusyAt && c.BusyAt <= 1) { // so that NaN is none
		errs = append(errs, fmt.Errorf("pool: ThresholdConfig.IdleAt, BusyAt: are %v and %v, must be 0 <= IdleAt < BusyAt <= 1",
			c.IdleAt, c.BusyAt))
	}
	if !(q.cfg.BusyJobs >= 0) {
		errs = append(errs, fmt.Errorf("pool: ThresholdConfig.BusyJobs: is %v, must be positive", q.cfg.BusyJobs))
	}
	if q.cfg.Batch < 1 {
		errs = append(errs, fmt.Errorf("pool: ThresholdConfig.Batch: is %d, must be at least 1", q.cfg.Batch))
	}
	if q.cfg.Cooldown < 0 {
		errs = append(errs, fmt.Errorf("pool: ThresholdConfig.Cooldown: is %v, must be positive", q.cfg.Cooldown))
	}
	return errors.Join(errs...)
}

// Step compares the fill with the thresholds.
func (q *threshold) Step(o Observation) Decision {
	rest := q.cfg.Cooldown - (o.Now - q.at)
	switch {
	case q.changed && rest > 0:
		return o.stay(ReasonHold, "cooldown", rest)
	case (o.Fill >= q.cfg.BusyAt || float64(o.Backlog) > q.cfg.BusyJobs*float64(o.Workers)) && o.Workers < o.Max:
		return q.change(o, o.Workers+min(q.cfg.Batch, o.Max-o.Workers), ReasonGrow)
	case o.Fill <= q.cfg.IdleAt && o.Workers > o.Min && o.Idle > 0:
		return q.change(o, o.Workers-min(q.cfg.Batch, o.Idle), ReasonIdle)
	case o.Busy > 0 || o.Workers > o.Min:
		return o.stay(ReasonHold, "queue normal", q.cfg.Cooldown)
	}
	return o.stay(ReasonHold, "queue empty", 0)
}

func (q *threshold) change(o Observation, target int, why Reason) Decision {
	q.changed, q.at = true, o.Now
	return Decision{Target: max(o.Min, min(o.Max, target)), Reason: why,
		Detail: fmt.Sprintf("queue %.0f %% full, %d wait", 100*o.Fill, o.Backlog), Next: q.cfg.Cooldown}
}
