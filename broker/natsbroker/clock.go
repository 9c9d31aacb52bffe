package natsbroker

import (
	"sync/atomic"
	"time"
)

// A clock tells a source's time: nanoseconds since it was made. It runs on while the machine is suspended, when a monotonic clock
// stands still and the server counts leases on. Safe for concurrent use.
type clock struct {
	base  time.Time
	read  func() (mono, wall int64) // since base
	ahead *atomic.Int64             // by how much the wall's clock is, as it was seen last
	slept *atomic.Int64
}

func newClock() clock {
	base := time.Now()
	c := clockOf(func() (mono, wall int64) {
		t := time.Now()
		return int64(t.Sub(base)), t.UnixNano() - base.UnixNano()
	})
	c.base = base
	return c
}

func clockOf(read func() (mono, wall int64)) clock {
	c := clock{time.Time{}, read, new(atomic.Int64), new(atomic.Int64)}
	mono, wall := read()
	c.ahead.Store(wall - mono)
	return c
}

// leastSleep is by how much the wall's clock has to jump ahead to be taken for a sleep. Somebody who sets it forward is taken for
// one, too: messages come again then.
const leastSleep = int64(time.Second)

func (c clock) now() int64 {
	last := c.ahead.Load() // before the clocks: who comes from before a sleep must not undo what another has seen after it
	mono, wall := c.read()
	if jump := wall - mono - last; (jump >= leastSleep || jump <= -leastSleep) && c.ahead.CompareAndSwap(last, wall-mono) {
		c.slept.Add(max(jump, 0))
	}
	return mono + c.slept.Load()
}

func (c clock) at(n int64) time.Time { return c.base.Add(time.Duration(n - c.slept.Load())) }
