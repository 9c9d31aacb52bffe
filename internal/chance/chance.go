// Package chance is where jitter has its randomness from, so that a simulation of the whole can repeat a run. It is internal: a
// program that uses longshore cannot set it.
package chance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// dice are those of a simulation.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

// seeded is nil but in a simulation.
var seeded atomic.Pointer[dice]

// Float64 is at least 0 and below 1.
func Float64() float64 {
	d := seeded.Load()
	if d == nil {
		return rand.Float64()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.Float64()
}

// Below is at least 0 and below limit, which is more than 0.
func Below(limit time.Duration) time.Duration {
	d := seeded.Load()
	if d == nil {
		return rand.N(limit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rnd.Int64N(int64(limit)))
}

// Seed makes all that follows depend on the seed, in the whole process, until restore is called. For simulations, one at a time.
func Seed(seed uint64) (restore func()) {
	seeded.Store(&dice{rnd: rand.New(rand.NewPCG(seed, 1))})
	return func() { seeded.Store(nil) }
}
