package membroker

// What a source knows of an offset in its window.
const (
	unseen  uint8 = iota // never handed out here, or forgotten
	out                  // handed out and not settled
	expired              // handed out and not settled, and its lease has run out
	done                 // acked, or not there any more
	back                 // given back
)

// A slot is what a source knows of one offset.
type slot struct {
	state uint8
	claim uint8 // the number of the claim it was handed out under
	// gen tells the times apart that an offset was handed out, so that a settle of the last time is not taken for one of this time.
	gen  uint16
	size uint32
}

// handable says whether the offset may be handed out, as far as the slot knows.
func (sl *slot) handable() bool { return sl.state == unseen || sl.state == back }

// A window has the slots of [lo, hi) in a ring. The zero value is empty, from offset 0.
type window struct {
	lo, hi int64
	ring   []slot
}

func (w *window) at(o int64) *slot { return &w.ring[o&int64(len(w.ring)-1)] }

// get is nil for an offset that the window does not have.
func (w *window) get(o int64) *slot {
	if o < w.lo || o >= w.hi {
		return nil
	}
	return w.at(o)
}

// state of an offset, wherever it is.
func (w *window) state(o int64) uint8 {
	if o < w.lo || o >= w.hi {
		return unseen
	}
	return w.at(o).state
}

// extend lets the window reach up to hi; new slots are unseen. It starts at hi's message when it is empty.
func (w *window) extend(from, hi int64) {
	if hi <= w.hi {
		return
	}
	if w.lo == w.hi {
		w.lo, w.hi = from, from
	}
	if n := hi - w.lo; n > int64(len(w.ring)) {
		size := int64(max(64, len(w.ring)))
		for size < n {
			size *= 2
		}
		ring := make([]slot, size)
		for o := w.lo; o < w.hi; o++ {
			ring[o&(size-1)] = *w.at(o)
		}
		w.ring = ring
	}
	for o := w.hi; o < hi; o++ {
		*w.at(o) = slot{}
	}
	w.hi = hi
}

// A token is the generation and the offset.
const offsetBits = 48

func token(o int64, gen uint16) uint64 { return uint64(gen)<<offsetBits | uint64(o) }

func splitToken(t uint64) (o int64, gen uint16) {
	return int64(t & (1<<offsetBits - 1)), uint16(t >> offsetBits)
}

// reach lets the window begin at lo, below what it has.
func (w *window) reach(lo int64) {
	old := *w
	if lo >= old.lo {
		return
	}
	*w = window{}
	w.extend(lo, old.hi)
	for o := old.lo; o < old.hi; o++ {
		*w.at(o) = *old.at(o)
	}
}
