package consumer

import (
	"sync/atomic"
	"time"
)

// handOff is how much work one hand-off to a worker should hold. Handing over one message costs about as much as 50-100 ns of
// work, so this much makes it vanish, and is still too short to matter as a wait behind a neighbour.
const handOff = 75 * time.Microsecond

// pace knows how long handlers take, so that a hand-off can be cut to about handOff of work. It is shared by all workers: an
// update lost between two of them does not matter.
type pace struct {
	mean atomic.Int64 // of one handler call, ns; 0: unknown
	good atomic.Int64 // the same of those that came to something
}

// observe adds n handler calls that took that long together. good: not all of them failed.
func (p *pace) observe(n int, took time.Duration, good bool) {
	x := max(1, int64(took)/int64(n))
	approach(&p.mean, x)
	if good {
		approach(&p.good, x)
	}
}

// approach moves a mean by an eighth.
func approach(mean *atomic.Int64, x int64) {
	h := mean.Load()
	if h == 0 {
		h = x
	}
	mean.Store(max(1, h+(x-h)/8))
}

// quickShare of what a call takes that comes to something: one that fails sooner was refused before it did what takes the time.
const quickShare = 4

// quick says whether n calls that all failed took so little that they tell nothing of how long the others take. As long as none
// has come to anything, what fails is all that is known.
func (p *pace) quick(n int, took time.Duration) bool {
	return int64(took)/int64(n) < p.good.Load()/quickShare
}

// call is the mean time of a handler call; 0: unknown.
func (p *pace) call() time.Duration { return time.Duration(p.mean.Load()) }

// quantum is how many messages make one hand-off: one as long as nothing is known.
func (p *pace) quantum(limit int) int {
	h := p.mean.Load()
	if h == 0 {
		return 1
	}
	return max(1, min(limit, int(int64(handOff)/h)))
}
