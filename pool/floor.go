package pool

import (
	"errors"
	"runtime"
	"sync"
	"time"
)

// errFull: there is no room for a T whose submitter does not wait.
var errFull = errors.New("pool: full")

// floor is all that submitters, workers, manager and scanner share. Each method is one event: it takes the lock once, for memory
// work only, and wakes whom it concerns when it has given the lock up. None expects its caller to hold it.
type floor[T any] struct {
	clock
	cfg   *Config[T]
	spare spareWaiters[T]

	_  [64]byte   // what workers only read does not share a cache line with what they write
	mu sync.Mutex // everything below, and each Worker's place
	handoff[T]
	tally    tally
	ending   ending
	min, max int
	expected int // see Pool.Expect
	last     Decision
	rates    Rates
}

// open makes a floor. hire makes workers of it and starts their goroutines.
func (f *floor[T]) open(cfg *Config[T], hire func() *Worker[T]) {
	f.cfg, f.min, f.max = cfg, cfg.Min, cfg.Max
	f.ending.over = make(chan struct{})
	f.clock = clock{time.Now()}
	f.handoff.clock = f.clock
	f.kick = make(chan struct{}, 1)
	f.queue = newQueue[T](cfg.Weights, cfg.Strict, cfg.Queue)
	if cfg.QueueTime > 0 {
		f.queue.bound = cfg.leastBound(cfg.Max) // until the pace is known
	}
	f.crew = crew[T]{hire: hire, idleTimeout: cfg.IdleTimeout, looks: never}
	if cfg.scans() {
		f.crew.scan, f.crew.scanOne, f.crew.look = cfg.Scan, cfg.ScanOne, time.NewTimer(cfg.Scan)
		f.crew.look.Stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for range cfg.Min {
		f.crew.start()
	}
}

// enter lets x in if it can be done at once. Else it is in the line of its class, and the waiter that stands for it there is
// returned; or without wait it is not, and there is errFull.
func (f *floor[T]) enter(class int, x item[T], wait bool) (*waiter[T], error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, ErrClosed
	}
	if f.fits(class) == 0 {
		if !wait {
			f.queue.refused = true
			f.mu.Unlock()
			return nil, errFull
		}
		s := f.spare.get()
		s.one[0] = x.t
		s.ts, s.each, s.n = s.one[:], append(s.each[:0], x.n), x.n
		f.tally.in += int64(s.n)
		f.queue.wait(class, s)
		f.starved()
		f.mu.Unlock()
		return s, nil
	}
	f.tally.in += int64(x.n)
	w := f.put(class, x)
	f.starved()
	f.mu.Unlock()
	w.wakeAll()
	return nil, nil
}

// crowd is how many workers may have a T in hand before who wakes more of them lets those run first. On its way to thousands of
// idle workers a submitter would else come to the last of them before the first has run: all would take turns, each with a stack,
// a timer and a T that no cache has any more.
const crowd = 512

// enterAll lets in those of ts, with each their messages, that it can at once, and puts the others into the line of their class,
// where the waiter that is returned stands for them. In a crowd it lets others run before it returns.
func (f *floor[T]) enterAll(class int, ts []T, each []int) (*waiter[T], error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, ErrClosed
	}
	var woken *Worker[T]
	taken := min(f.fits(class), len(ts))
	for i, t := range ts[:taken] {
		f.tally.in += int64(each[i])
		if w := f.put(class, item[T]{t, each[i]}); w != nil {
			w.woken, woken = woken, w
		}
	}
	var s *waiter[T]
	if taken < len(ts) {
		s = f.spare.get()
		s.ts, s.each, s.n = ts[taken:], append(s.each[:0], each[taken:]...), 0
		for _, n := range s.each {
			s.n += n
		}
		f.tally.in += int64(s.n)
		f.queue.wait(class, s)
	}
	f.starved()
	crowded := woken != nil && f.crew.busy > crowd
	f.mu.Unlock()
	woken.wakeAll()
	if crowded {
		runtime.Gosched()
	}
	return s, nil
}

// leave takes a submitter that gives up out of its line, with cause as its error where it still has T's. False: it is being
// woken.
func (f *floor[T]) leave(s *waiter[T], cause error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.queue.leave(s) {
		return false
	}
	if len(s.ts) > 0 {
		f.tally.in -= int64(s.n)
		s.err = cause
	}
	return true
}

// requeued is how something is requeued: so many messages of it were announced; by a worker that comes back at once.
type requeued struct {
	expected int
	last     bool
}

// requeue puts ts at the end of their class, whatever the bound and even after the end.
func (f *floor[T]) requeue(class int, how requeued, ts []T, each []int) {
	f.mu.Lock()
	var woken *Worker[T]
	f.expected -= how.expected
	for i, t := range ts {
		if how.last && i == 0 {
			f.queue.push(class, item[T]{t, each[i]}) // the worker takes it, or who is called by the one that takes before it
			continue
		}
		if w := f.put(class, item[T]{t, each[i]}); w != nil {
			w.woken, woken = woken, w
		}
	}
	f.reopen()
	f.starved()
	f.mu.Unlock()
	woken.wakeAll()
}

// splitOff puts what was taken off the T in a worker's hand in front of its class. The worker may be done with the rest of it
// by now.
func (f *floor[T]) splitOff(h held[T], x item[T]) {
	f.mu.Lock()
	x.n = f.crew.lighten(h.w, h.seq, x.n)
	w := f.putFront(h.class, x)
	f.reopen()
	f.starved()
	f.mu.Unlock()
	w.wakeAll()
}

// expect counts messages as arrived that will be requeued.
func (f *floor[T]) expect(n int) {
	f.mu.Lock()
	f.tally.in += int64(n)
	f.expected += n
	f.mu.Unlock()
}

// next takes what w has done with its T into the totals, and gives it another, or parks it. It returns what w is now: busy, idle
// or leaving.
func (f *floor[T]) next(w *Worker[T], now time.Duration) state {
	f.mu.Lock()
	if w.state == busy || w.state == abandoned {
		f.tally.add(w.outcome(now))
	}
	if !f.crew.finish(w) {
		another := f.relieve()
		f.mu.Unlock()
		another.wakeAll()
		return leaving
	}
	if f.queue.items > 0 {
		another, admitted := f.take(w, now)
		// The last idle worker may have come for this, with more behind it: when that was put down, there was one idle.
		f.starved()
		f.mu.Unlock()
		another.wakeAll()
		admitted.wake()
		return busy
	}
	f.crew.park(w, now)
	woken := f.dismiss()
	f.mu.Unlock()
	woken.wakeAll()
	return idle
}

// timedOut: w's timer has fired. Where w was idle for its whole timeout the manager is to know.
func (f *floor[T]) timedOut(w *Worker[T]) {
	f.mu.Lock()
	reports := f.crew.timedOut(w, f.now())
	if reports {
		f.tally.reports++
	}
	f.mu.Unlock()
	if reports {
		nudge(f.kick)
	}
}

func (f *floor[T]) panicked() {
	f.mu.Lock()
	f.tally.panics++
	f.mu.Unlock()
}

// leaving: w's goroutine is about to end. After a Goexit in Do another takes the slot.
func (f *floor[T]) leaving(w *Worker[T], goexit bool) {
	f.mu.Lock()
	if goexit {
		f.tally.goexits++
		f.tally.add(w.outcome(f.now()))
		if f.crew.lose(w) {
			f.refill()
		}
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	woken := f.dismiss()
	another := f.relieve()
	f.mu.Unlock()
	woken.wakeAll()
	another.wakeAll()
}

// left: w's goroutine has nothing left to do.
func (f *floor[T]) left(w *Worker[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !w.lost {
		f.crew.running--
		f.ending.workerLeft(f.closed, f.crew.running, f.queue.items)
	}
}

// close refuses all submitters from now on, and who waits.
func (f *floor[T]) close() {
	f.mu.Lock()
	var refused waiters[T]
	if !f.closed {
		f.closed = true
		before := f.queue.backlog
		refused = f.queue.refuse(ErrClosed)
		f.tally.in -= int64(before - f.queue.backlog)
	}
	woken := f.dismiss()
	f.mu.Unlock()
	refused.wake()
	woken.wakeAll()
}

// unfinished is how many workers have a T in hand, abandoned ones too; rest is closed when the others have ended, nil if they
// have.
func (f *floor[T]) unfinished() (n int, rest <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crew.stuck + f.crew.busy, f.ending.rest(f.crew.running)
}

func (f *floor[T]) setLimits(least, most int) {
	f.mu.Lock()
	f.min, f.max = least, most
	f.mu.Unlock()
}

// observe takes the Observation, but for what the manager adds.
func (f *floor[T]) observe() Observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := Observation{
		Now: f.now(), In: f.tally.in, Done: f.tally.done, Work: f.tally.work, Squares: f.tally.squares, Refused: f.tally.refused,
		Backlog: f.queue.backlog, Expected: f.expected, Fill: f.queue.fill(), Reports: f.tally.reports, Min: f.min, Max: f.max,
	}
	o.Full = f.queue.refused || f.queue.blocked > 0 || o.Fill >= 0.9
	f.queue.refused = false
	f.crew.observe(&o)
	return o
}

// apply makes the workers as many as decided, and says whether work waits now with no worker idle. A drained pool needs no
// workers. It takes what was handled into the pace, and sets what follows from that: how workers are woken, and the queue's bound
// in time.
func (f *floor[T]) apply(d Decision, c *pace) (starving, drained bool) {
	f.mu.Lock()
	if f.drained() {
		f.mu.Unlock()
		return false, true
	}
	f.rates = d.Observation.Rates
	if d.Target != d.From {
		f.tally.decided++
		f.last = d
	}
	woken := f.crew.resize(d.Target, d.Force)
	c.update(f.now(), f.tally.handled, f.tally.work)
	admitted := f.queue.tune(c, c.bound(f.cfg.Queue, f.cfg.leastBound(f.max), f.cfg.QueueTime))
	starving = f.starving()
	f.alert = !starving // else it looks again by the clock
	f.mu.Unlock()
	woken.wakeAll()
	admitted.wake()
	return starving, false
}

// held appends to hs what the scanner is to look at, as of now.
func (f *floor[T]) held(hs []held[T]) (_ []held[T], now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = f.now()
	return f.crew.dueFor(hs, now), now
}

// lookedAt sets the scanner's timer after a look, which was then.
func (f *floor[T]) lookedAt(hs []held[T], then time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crew.rest(hs, then, f.now())
}

// abandon gives the slot of a worker that still has its T number seq in hand to another.
func (f *floor[T]) abandon(w *Worker[T], seq uint64) {
	f.mu.Lock()
	done, free := f.crew.abandon(w, seq, f.cfg.MaxStuck)
	if done { // it is no more among those whose reports are looked at
		w.early = w.soFar()
		f.tally.count(w.early)
	}
	if free {
		f.refill()
	}
	woken := f.dismiss()
	f.ending.workerLeft(f.closed, f.crew.running, f.queue.items)
	f.mu.Unlock()
	woken.wakeAll()
}

func (f *floor[T]) stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, q, c := &f.tally, &f.queue, &f.crew
	return Stats{
		In: t.in, Done: t.done, Work: t.work,
		Backlog: q.backlog, Queued: q.items, Blocked: q.blocked, Expected: f.expected, InHand: c.inHand,
		Live: c.live, Busy: c.busy, Idle: len(c.idle), Stuck: c.stuck, Min: f.min, Max: f.max,
		Reports: t.reports, Panics: t.panics, Goexits: t.goexits,
		Decisions: t.decided, Last: f.last, Rates: f.rates,
	}
}

func (f *floor[T]) inHand() []T {
	f.mu.Lock()
	defer f.mu.Unlock()
	ts := make([]T, 0, f.crew.busy)
	for w := f.crew.oldest; w != nil; w = w.newer {
		ts = append(ts, w.cur)
	}
	return ts
}

func (f *floor[T]) load() Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Load{Queued: f.queue.items, PerSecond: f.queue.rate, Backlog: f.queue.backlog, Live: f.crew.live, Max: f.max}
}
