package pool

import (
	"math"
	"time"
)

// state is where a worker is in its life: see the package's drawing.
type state uint8

const (
	fresh     state = iota // started, has not asked for work yet
	idle                   // on the stack, waiting to be woken
	busy                   // has a T in hand
	leaving                // woken to go
	abandoned              // has a T in hand and no slot any more
)

// place is what the crew knows of one worker, which reads cur when it was told that it is busy, and told when it was woken.
type place[T any] struct {
	state        state
	told         state // what it was woken for; written before the wake, by who took it off the stack
	cur          T
	class        int
	size         int           // messages in cur
	since        time.Duration // when cur was taken, or when the worker became idle
	due          time.Duration // when the scanner is to look at cur
	seq          uint64        // counts T's
	older, newer *Worker[T]    // the busy ones by since
	woken        *Worker[T]    // a list of workers to wake
	timer        *time.Timer   // reports the idle timeout
	armed        bool          // timer runs
	lost         bool          // abandoned at some time: has no slot
	early        outcome       // what was in the totals then of the T in its hand
	idleLong     bool          // has reported since it became idle
	called       bool          // woken to look for work, and on its way
	reports      bool          // Do reported of the T before
}

// crew is the workers and their slots: who is idle, who has which T in hand, how many there are. It has no lock and knows no
// queue. It wakes nobody: who is to be woken is returned as a list.
type crew[T any] struct {
	hire        func() *Worker[T] // makes a worker and starts its goroutine
	idleTimeout time.Duration
	scan        time.Duration // how long a T is in hand before the scanner looks at it; 0: there is none
	scanOne     time.Duration // the same of a T of one message
	look        *time.Timer   // the scanner's
	looks       time.Duration // when that fires; never: it is stopped

	idle    []*Worker[T] // a stack: last in, first out, so that surplus workers stay idle and say so
	oldest  *Worker[T]   // the busy ones, in the order in which they began
	newest  *Worker[T]
	live    int           // workers with a slot: idle, busy or just started
	running int           // the goroutines of these, and of those that are ending
	excess  int           // busy ones with a slot that are to go when they finish
	busy    int           // with a T in hand
	inHand  int           // messages that these have
	started time.Duration // sum of the times at which they began
	stuck   int           // abandoned
	calling bool          // a called worker is on its way
}

// size is how many workers there are but for those that are to go.
func (c *crew[T]) size() int { return c.live - c.excess }

// start adds a worker.
func (c *crew[T]) start() {
	c.live++
	c.running++
	c.hire()
}

// resize makes the workers n, and returns the idle ones that go. With force busy ones go, too, as they finish.
func (c *crew[T]) resize(n int, force bool) (woken *Worker[T]) {
	size := c.size()
	for ; size < n; size++ {
		if c.excess > 0 {
			c.excess--
		} else {
			c.start()
		}
	}
	woken = c.retire(min(len(c.idle), max(0, size-n)))
	if size = c.size(); size > n && force {
		c.excess += size - n
	}
	return woken
}

// begin puts x into w's hand.
func (c *crew[T]) begin(w *Worker[T], class int, x item[T], now time.Duration) {
	w.cur, w.class, w.size, w.since, w.state = x.t, class, x.n, now, busy
	w.seq++
	c.busy++
	c.inHand += x.n
	c.started += now
	if w.older = c.newest; w.older == nil {
		c.oldest = w
	} else {
		w.older.newer = w
	}
	c.newest = w
	if c.scan > 0 {
		w.due = now + c.scan
		if x.n == 1 {
			w.due = now + c.scanOne
		}
		c.lookAt(w.due+c.scan, now) // with what comes soon after it; most of that is done by then
	}
}

// never is when a timer fires that is stopped.
const never = time.Duration(math.MaxInt64)

// lookAt has the scanner look then, if it would not do so sooner.
func (c *crew[T]) lookAt(at, now time.Duration) {
	if at < c.looks {
		c.looks = at
		c.look.Reset(at - now)
	}
}

// dueFor appends to hs what the scanner is to look at now, and not again for one scan.
func (c *crew[T]) dueFor(hs []held[T], now time.Duration) []held[T] {
	c.looks = never
	for w := c.oldest; w != nil && now-w.since >= c.scan; w = w.newer {
		if w.due <= now {
			w.due = now + c.scan
			hs = append(hs, held[T]{w: w, t: w.cur, class: w.class, seq: w.seq, d: now - w.since})
		}
	}
	return hs
}

// rest has the scanner look at what it looked at then when that was asked for, and at all else when it is due.
func (c *crew[T]) rest(hs []held[T], then, now time.Duration) {
	for _, h := range hs {
		if h.w.seq == h.seq && h.w.state == busy {
			h.w.due = then + min(max(c.scan, h.rest), never-then)
		}
	}
	next := never
	for w := c.oldest; w != nil; w = w.newer {
		if now-w.since >= c.scan {
			next = min(next, w.due)
			continue
		}
		next = min(next, w.due+c.scan)
		if w.size != 1 { // those behind it are due later
			break
		}
	}
	if next < never {
		c.lookAt(max(next, then+c.scan), now)
	}
}

// lighten takes n messages off the T of that number in w's hand, if w still has it, and returns how many of them are to be
// counted when they are done: none where w has finished that T, and all of it was counted then.
func (c *crew[T]) lighten(w *Worker[T], seq uint64, n int) int {
	switch {
	case w.seq == seq && w.state == busy:
		w.size -= n
		c.inHand -= n
	case !w.reports:
		return 0
	}
	return n
}

// remove takes w out of the busy ones.
func (c *crew[T]) remove(w *Worker[T]) {
	c.busy--
	c.inHand -= w.size
	c.started -= w.since
	if w.older == nil {
		c.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		c.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer = nil, nil
}

// finish takes what w has in hand, if anything, out of it, and says whether w stays.
func (c *crew[T]) finish(w *Worker[T]) (stays bool) {
	switch w.state {
	case busy:
		c.remove(w)
	case abandoned: // its slot has another worker
		c.stuck--
		w.state = leaving
		return false
	}
	if w.called {
		w.called = false
		c.calling = false
	}
	if c.excess > 0 {
		c.excess--
		c.live--
		w.state = leaving
		return false
	}
	return true
}

// lose is finish for a worker whose goroutine is lost. It says whether the slot is free for another.
func (c *crew[T]) lose(w *Worker[T]) (free bool) {
	was := w.state
	w.state = leaving
	if was == abandoned {
		c.stuck--
		return false
	}
	c.remove(w)
	return c.vacate()
}

// abandon takes the slot away from a worker that still has its T number seq in hand, unless there are most of these already. It
// says whether it did, and whether the slot is free for another.
func (c *crew[T]) abandon(w *Worker[T], seq uint64, most int) (done, free bool) {
	if w.state != busy || w.seq != seq || c.stuck >= most {
		return false, false
	}
	c.remove(w)
	w.state, w.lost = abandoned, true
	c.stuck++
	c.running--
	return true, c.vacate()
}

// vacate ends a slot's use by one worker. False: the slot was one too many.
func (c *crew[T]) vacate() bool {
	c.live--
	if c.excess > 0 {
		c.excess--
		return false
	}
	return true
}

// park puts w onto the stack. Its timer is set only if it does not run anyway: a worker that is woken and parks again a thousand
// times a second touches it once per idle timeout.
func (c *crew[T]) park(w *Worker[T], now time.Duration) {
	w.state, w.since, w.idleLong = idle, now, false
	c.idle = append(c.idle, w)
	if w.armed {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(c.idleTimeout, w.timeout)
	} else {
		w.timer.Reset(c.idleTimeout)
	}
}

// timedOut: w's timer has fired. It says whether w was idle for its whole timeout; if it was busy in between, the timer goes on.
func (c *crew[T]) timedOut(w *Worker[T], now time.Duration) bool {
	w.armed = false
	if w.state != idle || w.idleLong {
		return false
	}
	if rest := c.idleTimeout - (now - w.since); rest > 0 {
		w.armed = true
		w.timer.Reset(rest)
		return false
	}
	w.idleLong = true
	return true
}

// give takes the worker that became idle last off the stack and puts x into its hand: it is to be woken.
func (c *crew[T]) give(class int, x item[T], now time.Duration) *Worker[T] {
	w := c.popIdle()
	w.told = busy
	c.begin(w, class, x, now)
	return w
}

// call takes the worker that became idle last off the stack, to come and look for work: it is to be woken. One is on its way at
// a time; when it takes something and more is there, it calls the next. So short work is not spread over more workers than it
// needs, and the rest stay idle. Nil: one is on its way already. Only with an idle worker.
func (c *crew[T]) call() *Worker[T] {
	if c.calling {
		return nil
	}
	w := c.popIdle()
	w.state, w.told, w.called, c.calling = fresh, fresh, true, true
	return w
}

func (c *crew[T]) popIdle() *Worker[T] {
	last := len(c.idle) - 1
	w := c.idle[last]
	c.idle[last] = nil
	c.idle = c.idle[:last]
	return w
}

// retire takes the n longest idle workers off the stack: they are to be woken.
func (c *crew[T]) retire(n int) (woken *Worker[T]) {
	for _, w := range c.idle[:n] {
		w.state, w.told = leaving, leaving
		w.woken, woken = woken, w
	}
	c.live -= n
	rest := copy(c.idle, c.idle[n:])
	clear(c.idle[rest:])
	c.idle = c.idle[:rest]
	return woken
}

// observe adds to o who does what, and what the busy ones reported of what they hold.
func (c *crew[T]) observe(o *Observation) {
	o.Workers, o.Busy, o.Idle, o.InHand, o.IdleTimeout = c.size(), c.busy, len(c.idle), c.inHand, c.idleTimeout
	o.Age = time.Duration(c.busy)*o.Now - c.started
	if c.oldest != nil {
		o.Oldest = o.Now - c.oldest.since
	}
	for w := c.oldest; w != nil && o.Now-w.since >= tick; w = w.newer {
		f := w.soFar()
		o.Done, o.Work, o.Refused, o.InHand, o.Age = o.Done+f.n, o.Work+f.d, o.Refused+f.refused, o.InHand-int(f.n), o.Age-f.d
	}
	for o.IdleLong < len(c.idle) && c.idle[o.IdleLong].idleLong { // these are at the bottom of the stack
		o.IdleLong++
	}
	if len(c.idle) > 0 {
		o.LongestIdle = o.Now - c.idle[0].since
	}
}

// wakeAll wakes a list of workers. Called without a lock.
func (w *Worker[T]) wakeAll() {
	for w != nil {
		next := w.woken
		w.woken = nil
		w.wake <- struct{}{}
		w = next
	}
}
