package pool

import "context"

// Submit hands t to a worker or puts it into its class's queue. It blocks while that is full, until there is room, ctx ends or
// the pool is drained. When it returns an error, t was not taken and is still the caller's: ErrClosed, or context.Cause(ctx).
// There is no third outcome.
func (p *Pool[T]) Submit(ctx context.Context, class int, t T) error {
	if err := p.queue.has(class); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n := p.messages(t)
	p.mu.Lock()
	if ok, err := p.offer(class, t, n); ok || err != nil {
		return err
	}
	x := p.newWaiter()
	x.one[0] = t
	x.ts, x.each, x.n = x.one[:], append(x.each[:0], n), n
	_, err := p.wait(ctx, class, x, nil)
	return err
}

// TrySubmit is Submit that does not block. False: t was not taken, for the class is full or the pool drains.
func (p *Pool[T]) TrySubmit(class int, t T) bool {
	if err := p.queue.has(class); err != nil {
		panic(err)
	}
	n := p.messages(t)
	p.mu.Lock()
	ok, err := p.offer(class, t, n)
	if !ok && err == nil {
		p.queue.refused = true
		p.mu.Unlock()
	}
	return ok
}

// offer takes t in if it can be done at once. Called with the lock; gives it up, unless there is no room: false and no error.
func (p *Pool[T]) offer(class int, t T, n int) (bool, error) {
	if p.closed {
		p.mu.Unlock()
		return false, ErrClosed
	}
	if len(p.idle) == 0 && p.queue.room(&p.queue.classes[class]) == 0 {
		return false, nil
	}
	p.in += int64(n)
	w := p.put(class, t, n)
	p.starved()
	p.mu.Unlock()
	w.wakeAll()
	return true, nil
}

// put gives t to an idle worker or the queue, whatever the bound. Called with the lock; the caller wakes the worker without it.
func (p *Pool[T]) put(class int, t T, n int) *Worker[T] {
	switch {
	case len(p.idle) == 0:
		p.queue.push(&p.queue.classes[class], t, n)
		return nil
	case !p.queue.quick:
		return p.give(class, t, n)
	}
	p.queue.push(&p.queue.classes[class], t, n)
	return p.call()
}

// SubmitAll is Submit for many, in their order and with one lock for all that fit. It blocks for the rest. taken is how many
// were: ts[taken:] are still the caller's. ts itself is not kept.
func (p *Pool[T]) SubmitAll(ctx context.Context, class int, ts []T) (taken int, err error) {
	if err := p.queue.has(class); err != nil || len(ts) == 0 {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var few [64]int
	each := p.countAll(few[:0], ts)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, ErrClosed
	}
	fit := len(p.idle) + p.queue.room(&p.queue.classes[class])
	var woken *Worker[T]
	for ; taken < min(fit, len(ts)); taken++ {
		p.in += int64(each[taken])
		if w := p.put(class, ts[taken], each[taken]); w != nil {
			w.woken, woken = woken, w
		}
	}
	if taken < len(ts) {
		x := p.newWaiter()
		x.ts, x.each, x.n = ts[taken:], append(x.each[:0], each[taken:]...), 0
		for _, n := range x.each {
			x.n += n
		}
		left, err := p.wait(ctx, class, x, woken)
		return len(ts) - left, err
	}
	p.starved()
	p.mu.Unlock()
	woken.wakeAll()
	return taken, nil
}

// wait stands in class's line with x until all of it is taken, and returns how many were not. Called with the lock, which it
// gives up; then it wakes the workers that were given something.
func (p *Pool[T]) wait(ctx context.Context, class int, x *waiter[T], woken *Worker[T]) (left int, err error) {
	p.in += int64(x.n)
	p.queue.wait(&p.queue.classes[class], x)
	p.starved()
	p.mu.Unlock()
	woken.wakeAll()
	select {
	case <-x.ch:
	case <-ctx.Done():
		p.mu.Lock()
		left := p.queue.leave(x)
		if left && len(x.ts) > 0 {
			p.in -= int64(x.n)
			x.err = context.Cause(ctx)
		}
		p.mu.Unlock()
		if !left { // whoever took it out of the list is about to say so
			<-x.ch
		}
	}
	left, err = len(x.ts), x.err
	p.freeWaiter(x)
	return left, err
}

// Requeue puts ts at the end of their class. It never blocks and works while the pool drains, and afterwards too: it is for what
// was let in before (rests of work, successors, retries that are due) and not counted as an arrival. Workers must use it, never
// Submit. The slice is not kept.
func (p *Pool[T]) Requeue(class int, ts ...T) { p.requeue(class, false, ts) }

func (p *Pool[T]) requeue(class int, expected bool, ts []T) {
	if err := p.queue.has(class); err != nil {
		panic(err)
	}
	var few [64]int
	each := p.countAll(few[:0], ts)
	p.mu.Lock()
	var woken *Worker[T]
	for i, t := range ts {
		if expected {
			p.expected -= each[i]
		}
		if w := p.put(class, t, each[i]); w != nil {
			w.woken, woken = woken, w
		}
	}
	if p.live == 0 && p.queue.items > 0 { // drained already: nothing that was let in is lost
		p.spawn()
	}
	p.starved()
	p.mu.Unlock()
	woken.wakeAll()
}

// Expect announces n messages that wait for others to be handled and will be passed to RequeueExpected then: the manager counts
// them as arrivals, and as a backlog, where it works out how many workers the load asks for. A negative n takes back what will
// not come. It does not block.
func (p *Pool[T]) Expect(n int) {
	p.mu.Lock()
	p.in += int64(n)
	p.expected += n
	p.mu.Unlock()
}

// RequeueExpected is Requeue for what was announced by Expect.
func (p *Pool[T]) RequeueExpected(class int, ts ...T) { p.requeue(class, true, ts) }

// requeueFront puts the rest of what a worker has in hand before everything that came after it.
func (p *Pool[T]) requeueFront(class int, t T) {
	n := p.messages(t)
	p.mu.Lock()
	var w *Worker[T]
	if len(p.idle) > 0 {
		w = p.give(class, t, n)
	} else {
		p.queue.pushFront(&p.queue.classes[class], t, n)
	}
	if p.live == 0 && p.queue.items > 0 {
		p.spawn()
	}
	p.starved()
	p.mu.Unlock()
	w.wakeAll()
}

func (p *Pool[T]) messages(t T) int {
	if p.cfg.Count == nil {
		return 1
	}
	return p.cfg.Count(t)
}

// countAll appends to each the messages of every one of ts. It runs before the lock is taken: Count is the caller's.
func (p *Pool[T]) countAll(each []int, ts []T) []int {
	for _, t := range ts {
		each = append(each, p.messages(t))
	}
	return each
}

func (p *Pool[T]) newWaiter() *waiter[T] {
	if x, ok := p.waiters.Get().(*waiter[T]); ok {
		return x
	}
	return &waiter[T]{ch: make(chan struct{}, 1)}
}

func (p *Pool[T]) freeWaiter(x *waiter[T]) {
	var zero T
	x.one[0] = zero
	x.ts, x.each, x.n, x.err = nil, x.each[:0], 0, nil
	p.waiters.Put(x)
}
