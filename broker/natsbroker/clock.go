package natsbroker

import "time"

// A clock tells a source's time: nanoseconds since it was made, monotonic.
type clock struct{ base time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) now() int64 { return int64(time.Since(c.base)) }

func (c clock) at(n int64) time.Time { return c.base.Add(time.Duration(n)) }
