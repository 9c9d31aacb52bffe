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
type pace struct{ mean atomic.Int64 } // of one handler call, ns; 0: unknown

// observe adds n handler calls that took that long together.
func (p *pace) observe(n int, took time.Duration) {
	h, x := p.mean.Load(), max(1, int64(took)/int64(n))
	if h == 0 {
		p.mean.Store(x)
		return
	}
	p.mean.Store(max(1, h+(x-h)/8))
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
