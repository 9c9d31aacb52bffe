package pool

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrClosed is what a submitter gets from a pool that drains.
var ErrClosed = errors.New("pool: closed")

// Pool is a bounded queue and the workers that empty it. Make one with New, end it with Drain. Its methods are safe for
// concurrent use.
type Pool[T any] struct {
	cfg   Config[T]
	floor floor[T]
	ended chan struct{} // closed when the last worker, the manager and the scanner have ended
}

// New checks cfg, reporting all that is wrong with it at once, and starts Min workers and their manager. End the pool with Drain.
func New[T any](cfg Config[T]) (*Pool[T], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pool[T]{cfg: cfg, ended: make(chan struct{})}
	m := &manager[T]{cfg: &p.cfg, floor: &p.floor}
	loops := []func(){m.run}
	if cfg.scans() {
		s := &scanner[T]{cfg: &p.cfg, floor: &p.floor}
		loops = append(loops, s.run)
	}
	p.floor.open(&p.cfg, p.startWorker)
	nudge(p.floor.kick) // the policy decides once before there is work
	p.start(loops)
	return p, nil
}

// start starts the loops. The last of them that ends says so to Drain.
func (p *Pool[T]) start(loops []func()) {
	var left atomic.Int32
	left.Store(int32(len(loops)))
	for _, run := range loops {
		go func() {
			run()
			if left.Add(-1) == 0 {
				close(p.ended)
			}
		}()
	}
}

// startWorker makes a worker for the floor. Drain waits for its goroutine by what the floor counts.
func (p *Pool[T]) startWorker() *Worker[T] {
	w := &Worker[T]{cfg: &p.cfg, floor: &p.floor, wake: make(chan struct{}, 1)}
	go w.run()
	return w
}

// SetLimits changes Min and Max. The manager follows at once; busy workers that are too many go when they finish.
func (p *Pool[T]) SetLimits(least, most int) error {
	if err := checkLimits(least, most); err != nil {
		return err
	}
	p.floor.setLimits(least, most)
	nudge(p.floor.kick)
	return nil
}

// Drain ends the pool. Submit is refused at once, and who waits in it gets ErrClosed and keeps what was not taken. The queue runs
// dry, what is requeued meanwhile included, then the workers and the manager end. Drain returns when all have, but for the stuck
// ones, and says how many those are; their goroutines end when Do returns. If ctx ends first Drain returns its cause with the
// number of workers that still have a T in hand, and the pool goes on draining. Drain may be called again, and by many.
func (p *Pool[T]) Drain(ctx context.Context) (stuck int, err error) {
	p.floor.close()
	err = await(ctx, p.ended)
	for {
		stuck, rest := p.floor.unfinished() // some may have been started after the end, by a Requeue
		if err != nil || rest == nil {
			return stuck, err
		}
		err = await(ctx, rest)
	}
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
