package consumer

import (
	"cmp"
	"time"
)

// A clock counts what has passed since it was made, in nanoseconds. It is steady: a step of the wall clock, as at boot or after a
// sleep of the machine, moves no time that was noted by it.
type clock struct{ epoch time.Time }

// newClock makes a clock at which no time from now on is 0.
func newClock() clock { return clock{time.Now().Add(-1)} }

// at is when t was, which came from time.Now.
func (c clock) at(t time.Time) int64 { return int64(t.Sub(c.epoch)) }

// since is how long ago at was.
func (c clock) since(at int64) time.Duration { return time.Duration(c.at(time.Now()) - at) }

// lasted is since; 0: it did not begin.
func (c clock) lasted(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return c.since(at)
}

// wall is at by the wall clock as it is now. The two clocks are read one after the other: no two looks see quite the same.
func (c clock) wall(at int64) time.Time { return time.Now().Round(0).Add(-c.since(at)) }

// longestAgo is more than any process is old; a header may say more.
const longestAgo = 100 * 365 * 24 * time.Hour

// told is when t was, which another process said by its wall clock, and never 0. What is still to come is now.
func (c clock) told(t time.Time) int64 {
	now := time.Now()
	return cmp.Or(c.at(now)-int64(min(max(now.Sub(t), 0), longestAgo)), -1)
}
