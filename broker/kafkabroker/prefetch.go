package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// A prefetch is what was fetched of a partition and is not handed out yet, and where to go on.
type prefetch struct {
	gate  *kit.Gate // of which it takes
	part  *part     // whose it is
	lists *lists    // in which that stands

	// pos is what to fetch next; scan is how far the tracker has looked. They differ by what is here.
	pos, scan int64
	cur       *decoder
	curBytes  int64
	busy      bool // Receive decodes from cur
	flying    bool // a fetch is under way
	calm      bool // the last one brought nothing
	// version tells what was fetched or decoded before a rewind from what came after it.
	version  int
	retryAt  time.Time
	idle     int   // answers in a row that came at once and brought nothing
	spoiltAt int64 // one more than the offset at which decoding failed once
}

// put takes what was fetched.
func (f *prefetch) put(d *decoder, bytes int64) {
	f.cur, f.curBytes = d, bytes
	f.gate.Hold(0, bytes)
	f.lists.stocks(f.part)
}

// left says how many bytes are still to be decoded.
func (f *prefetch) left(bytes int64) {
	f.gate.Hold(0, bytes-f.curBytes)
	f.curBytes = bytes
}

// done says that all is decoded.
func (f *prefetch) done() {
	f.cur, f.pos = nil, f.scan
	f.lists.rests(f.part)
}

// retry lets nothing be fetched before a time.
func (f *prefetch) retry(at time.Time) {
	f.retryAt = at
	f.lists.waits(f.part)
}

// drop lets it go; it is fetched again.
func (f *prefetch) drop() {
	f.version++
	f.calm = false
	f.left(0)
	f.done()
}

// rewind makes an offset, and what follows it, be looked at again. What is here begins above it, since it was met before.
func (f *prefetch) rewind(o int64) {
	f.scan = min(f.scan, o)
	f.drop()
}

// jump goes on at an offset.
func (f *prefetch) jump(to int64) {
	f.scan = to
	f.drop()
}

const (
	// idleAllowed is how many answers may come at once and bring nothing before the next fetch waits: one that names a replica does.
	idleAllowed = 3
	// idleMost is the longest wait.
	idleMost = time.Second
)

// fruitless is told of an answer that came at once and brought nothing to go on from. A broker that has nothing waits before it
// says so; one that does not wait is asked less and less often.
func (f *prefetch) fruitless(now time.Time) {
	f.idle++
	if f.idle <= idleAllowed {
		return
	}
	if at := now.Add(min(idleMost, retryWait<<min(f.idle-idleAllowed, 10))); at.After(f.retryAt) {
		f.retry(at)
	}
}
