package pool

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed is what a submitter gets from a pool that drains.
var ErrClosed = errors.New("pool: closed")

// Pool is a bounded queue and the workers that empty it. Make one with New, end it with Drain. Its methods are safe for
// concurrent use.
type Pool[T any] struct {
	cfg     Config[T]
	epoch   time.Time     // the clock's zero
	waiters sync.Pool     // of *waiter[T]
	kick    chan struct{} // something happened that the manager should see; room for one
	look    chan struct{} // a T is in hand again: the scanner may have to look; room for one
	stop    chan struct{} // closed when the last worker has ended after a Drain
	ended   chan struct{} // closed when the loops have ended, too

	_        [64]byte   // what workers only read does not share a cache line with what they write
	mu       sync.Mutex // everything below, and each Worker's fields that say so
	queue    queue[T]
	idle     []*Worker[T] // a stack: last in, first out, so that surplus workers stay idle and say so
	oldest   *Worker[T]   // the busy ones, in the order in which they began
	newest   *Worker[T]
	live     int           // workers with a slot: idle, busy or just started
	running  int           // the goroutines of these, and of those that are ending
	excess   int           // busy ones with a slot that are to go when they finish
	busy     int           // with a T in hand
	inHand   int           // messages that these have
	started  time.Duration // sum of the times at which they began
	stuck    int           // abandoned
	min, max int
	closed   bool          // Drain has begun
	gone     chan struct{} // closed when a worker that was started after the end has ended, if Drain waits for it
	over     bool          // and it is done: stop is closed
	loops    int           // manager and scanner, as long as they run
	calling  bool          // a called worker is on its way
	alert    bool          // the manager sleeps and wants to know of starvation
	blind    bool          // the scanner sleeps and wants to know of work

	in, done int64
	expected int // see Expect
	work     time.Duration
	squares  float64
	handled  int64 // T\'s
	refused  int64 // of done: see Worker.Refused
	reports  int64
	panics   int64
	goexits  int64
	decided  int64
	last     Decision
	rates    Rates
}

// New checks cfg, reporting all that is wrong with it at once, and starts Min workers and their manager. End the pool with Drain.
func New[T any](cfg Config[T]) (*Pool[T], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pool[T]{
		cfg:   cfg,
		epoch: time.Now(),
		kick:  make(chan struct{}, 1),
		look:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
		queue: newQueue[T](cfg.Weights, cfg.Strict, cfg.Queue),
		min:   cfg.Min,
		max:   cfg.Max,
		loops: 1,
	}
	if cfg.QueueTime > 0 {
		p.queue.bound = cfg.leastBound(cfg.Max) // until the pace is known
	}
	if cfg.Split != nil || cfg.Held != nil {
		p.loops++
		go p.scan()
	}
	p.mu.Lock()
	for range cfg.Min {
		p.spawn()
	}
	p.mu.Unlock()
	nudge(p.kick) // the policy decides once before there is work
	go p.manage()
	return p, nil
}

// now is the time since the pool's start. Reading the monotonic clock alone costs half of time.Now.
func (p *Pool[T]) now() time.Duration { return time.Since(p.epoch) }

// SetLimits changes Min and Max. The manager follows at once; busy workers that are too many go when they finish.
func (p *Pool[T]) SetLimits(least, most int) error {
	if err := checkLimits(least, most); err != nil {
		return err
	}
	p.mu.Lock()
	p.min, p.max = least, most
	p.mu.Unlock()
	nudge(p.kick)
	return nil
}

// Drain ends the pool. Submit is refused at once, and who waits in it gets ErrClosed and keeps what was not taken. The queue runs
// dry, what is requeued meanwhile included, then the workers and the manager end. Drain returns when all have, but for the stuck
// ones, and says how many those are; their goroutines end when Do returns. If ctx ends first Drain returns its cause with the
// number of workers that still have a T in hand, and the pool goes on draining. Drain may be called again, and by many.
func (p *Pool[T]) Drain(ctx context.Context) (stuck int, err error) {
	p.mu.Lock()
	var refused waiters[T]
	if !p.closed {
		p.closed = true
		before := p.queue.backlog
		refused = p.queue.refuse(ErrClosed)
		p.in -= int64(before - p.queue.backlog)
	}
	woken := p.endIfDrained()
	p.mu.Unlock()
	refused.wake()
	woken.wakeAll()
	err = await(ctx, p.ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	for err == nil && p.running > 0 { // requeued after the end
		if p.gone == nil {
			p.gone = make(chan struct{})
		}
		gone := p.gone
		p.mu.Unlock()
		err = await(ctx, gone)
		p.mu.Lock()
	}
	return p.stuck + p.busy, err
}

// await returns when ch is closed or, with its cause, when ctx ends first.
func await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endIfDrained sends the idle workers home once nothing is left to do: it returns those to wake. Until then they stay, for a busy
// one may requeue. Called with the lock.
func (p *Pool[T]) endIfDrained() (woken *Worker[T]) {
	if !p.drained() {
		return nil
	}
	return p.retire(len(p.idle))
}

// drained: nothing is left to do, or to be requeued by who does it. Called with the lock.
func (p *Pool[T]) drained() bool { return p.closed && p.queue.items == 0 && p.busy == 0 }

// endIfOver tells manager and scanner to end once the workers have. Called with the lock.
func (p *Pool[T]) endIfOver() {
	if p.gone != nil && p.running == 0 {
		close(p.gone)
		p.gone = nil
	}
	if p.closed && !p.over && p.running == 0 && p.queue.items == 0 {
		p.over = true
		close(p.stop)
	}
}

// loopEnded is called by manager and scanner when they end.
func (p *Pool[T]) loopEnded() {
	p.mu.Lock()
	p.loops--
	last := p.loops == 0
	p.mu.Unlock()
	if last {
		close(p.ended)
	}
}
