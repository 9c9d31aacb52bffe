package consumer

import "time"

// A clock counts what has passed since it was made, in nanoseconds. It is steady: a step of the wall clock, as at boot or after a
// sleep of the machine, moves no time that was noted by it.
type clock struct{ epoch time.Time }

// newClock makes a clock at which no time from now on is 0.
func newClock() clock { return clock{time.Now().Add(-1)} }

// at is when t was, which came from time.Now.
func (c clock) at(t time.Time) int64 { return int64(t.Sub(c.epoch)) }

// wall is at by the wall clock as it is now. The two clocks are read one after the other: cut to milliseconds, one time is the
// same at nearly each look.
func (c clock) wall(at int64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(at - c.at(now))).Truncate(time.Millisecond)
}
