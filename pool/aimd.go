package pool

import (
	"errors"
	"fmt"
	"time"
)

// AIMDConfig sets the additive increase, multiplicative decrease rule.
type AIMDConfig struct {
	// Every: the time between two changes. Defaults to 100 ms.
	Every time.Duration
	// Add: workers added when work waits and handlers are fast enough. Defaults to 1.
	Add int
	// Keep: the share of the workers kept when handlers are too slow. Defaults to 0.75.
	Keep float64
	// Slow: handler time beyond which the downstream is taken to be overloaded. Defaults to 0: twice the shortest mean seen in the
	// last minute.
	Slow time.Duration
}

func (c AIMDConfig) withDefaults() AIMDConfig {
	if c.Every == 0 {
		c.Every = 100 * time.Millisecond
	}
	if c.Add == 0 {
		c.Add = 1
	}
	if c.Keep == 0 {
		c.Keep = 0.75
	}
	return c
}

// AIMD is the rule of congestion control (Chiu and Jain 1989): a little more while all is well, a good share less when handlers
// turn slow. Idle workers go after their idle timeout.
func AIMD(cfg AIMDConfig) Policy { return &aimd{cfg: cfg.withDefaults()} }

type aimd struct {
	cfg       AIMDConfig
	at        time.Duration    // of the last change
	started   bool             //
	best      [2]time.Duration // shortest handler time in this half minute and in the one before
	bestSince time.Duration
}

func (a *aimd) validate() error {
	var errs []error
	if a.cfg.Every < 0 {
		errs = append(errs, fmt.Errorf("pool: AIMDConfig.Every: is %v, must be positive", a.cfg.Every))
	}
	if a.cfg.Add < 1 {
		errs = append(errs, fmt.Errorf("pool: AIMDConfig.Add: is %d, must be at least 1", a.cfg.Add))
	}
	if !(a.cfg.Keep > 0 && a.cfg.Keep < 1) { // so that NaN is none
		errs = append(errs, fmt.Errorf("pool: AIMDConfig.Keep: is %v, must be between 0 and 1", a.cfg.Keep))
	}
	if a.cfg.Slow < 0 {
		errs = append(errs, fmt.Errorf("pool: AIMDConfig.Slow: is %v, must not be negative", a.cfg.Slow))
	}
	return errors.Join(errs...)
}

// Step adds, removes a share, or lets idle workers go.
func (a *aimd) Step(o Observation) Decision {
	slow := a.slow(o)
	if a.started && o.Now-a.at < a.cfg.Every {
		return o.stay(ReasonHold, "waiting", a.cfg.Every-(o.Now-a.at))
	}
	h := o.Rates.Handler
	switch {
	case o.IdleLong > 0 && o.Workers > o.Min:
		return a.change(o, max(o.Min, o.Workers-o.IdleLong), false, ReasonIdle, fmt.Sprint(o.IdleLong))
	case slow > 0 && h > slow && o.Idle == 0 && o.Workers > o.Min:
		return a.change(o, max(o.Min, int(float64(o.Workers)*a.cfg.Keep)), true, ReasonUndo, fmt.Sprintf("handlers take %v", h))
	case o.starving() && o.Workers < o.Max:
		return a.change(o, o.Workers+min(a.cfg.Add, o.Max-o.Workers), false, ReasonGrow, "")
	case o.Busy == 0 && o.Backlog == 0:
		return o.stay(ReasonHold, "all are idle", 0)
	}
	return o.stay(ReasonHold, "enough", a.cfg.Every)
}

// slow is the handler time that counts as overload.
func (a *aimd) slow(o Observation) time.Duration {
	if a.cfg.Slow > 0 {
		return a.cfg.Slow
	}
	h := o.Rates.Handler
	if o.Now-a.bestSince > 30*time.Second {
		a.best, a.bestSince = [2]time.Duration{h, a.best[0]}, o.Now
	}
	if h > 0 && (a.best[0] == 0 || h < a.best[0]) {
		a.best[0] = h
	}
	best := a.best[0]
	if a.best[1] > 0 {
		best = min(best, a.best[1])
	}
	return 2 * best
}

func (a *aimd) change(o Observation, target int, force bool, why Reason, detail string) Decision {
	a.started, a.at = true, o.Now
	return Decision{Target: target, Force: force, Reason: why, Detail: detail, Next: a.cfg.Every}
}
