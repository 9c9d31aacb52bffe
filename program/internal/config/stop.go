package config

import (
	"cmp"
	"time"

	"github.com/longshoremq/longshore/internal/conftag"
)

// DefaultKillGrace is what supervisors grant.
const DefaultKillGrace = 30 * time.Second

// What a stop takes after drain_timeout. MinCancelGrace is the engine's default.
const (
	// MinCancelGrace is what handlers get at least to return after their contexts have ended.
	MinCancelGrace = time.Second
	// CloseTimeout is for the last acks and commits.
	CloseTimeout = 5 * time.Second
	// FlushTimeout is for the last spans, where there are any.
	FlushTimeout = 2 * time.Second
)

// DrainTimeout is how long the running handlers of the consumer at a path get at a stop: drain_timeout, or what kill_grace
// leaves. cancelGrace is how long they may need to return after that. What is not done within kill_grace is found.
func (d *Document) DrainTimeout(at string, c *Consumer, cancelGrace time.Duration) time.Duration {
	grace := cmp.Or(d.File.KillGrace, DefaultKillGrace)
	closing := CloseTimeout
	if d.Exports {
		closing += FlushTimeout
	}
	rest := grace - cancelGrace - closing
	switch {
	case grace <= 0 || c.DrainTimeout < 0 || c.DrainTimeout > conftag.Max: // was found
	case rest < 0:
		d.Find("kill_grace", "is %v, and a stop of %s takes %v even with drain_timeout 0s: %v for handlers whose context has ended "+
			"and %v for closing",
			grace, at, cancelGrace+closing, cancelGrace, closing)
	case c.DrainTimeout > rest:
		d.Find(at+".drain_timeout", "is %v, so that a stop takes up to %v: %v more for handlers whose context has ended and %v for "+
			"closing. kill_grace is %v: the process would be killed. At most %v",
			c.DrainTimeout, c.DrainTimeout+cancelGrace+closing, cancelGrace, closing, grace, rest)
	}
	if d.Has(at + ".drain_timeout") {
		return c.DrainTimeout
	}
	return max(0, rest)
}
