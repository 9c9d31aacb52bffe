package pool

import (
	"math"
	"time"
)

// quickTime is how long a T may take at most on average for workers to be called one by one: about what it costs to wake one.
const quickTime = 5 * time.Microsecond

// pace is how fast T's, not messages, are handled.
type pace struct {
	at            time.Duration
	handled       int64
	work          time.Duration
	rate, time, n float64 // T's per second; decaying sums of handler time and T's
}

// update takes the totals as of now.
func (c *pace) update(now time.Duration, handled int64, work time.Duration) {
	dt := (now - c.at).Seconds()
	if now-c.at < tick/2 {
		return
	}
	n, d := float64(handled-c.handled), (work - c.work).Seconds()
	keep := math.Exp(-n / keepDone)
	c.n, c.time = c.n*keep+n, c.time*keep+d
	c.rate += weight(dt, drainTime) * (n/dt - c.rate)
	c.at, c.handled, c.work = now, handled, work
}

// quick: T's take less than quickTime each, with a doubling of that before it is no longer so.
func (c *pace) quick(was bool) bool {
	most := quickTime.Seconds()
	if was {
		most *= 2
	}
	return c.n >= keepDone/2 && c.time < c.n*most
}

// bound is how many T's a class may hold.
func (c *pace) bound(most, least int, in time.Duration) int {
	if in == 0 {
		return most
	}
	return min(most, max(least, int(min(1e9, c.rate*in.Seconds()))))
}

// slackTime is how long a submitter may sleep while places become free: short enough not to matter beside what the queue holds.
const slackTime = time.Millisecond

// slack is how many places should be free before a submitter is woken: what is taken in slackTime, at most half of all.
func (c *pace) slack(bound int) int {
	return min(bound/2, int(min(1e9, c.rate*slackTime.Seconds())))
}
