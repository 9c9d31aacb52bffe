package pool

import "context"

// Submit hands t to a worker or puts it into its class's queue. It blocks while that is full, until there is room, ctx ends or
// the pool is drained. When it returns an error, t was not taken and is still the caller's: ErrClosed, or context.Cause(ctx).
// There is no third outcome.
func (p *Pool[T]) Submit(ctx context.Context, class int, t T) error {
	if err := p.cfg.hasClass(class); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x, err := p.floor.enter(class, item[T]{t, p.cfg.messages(t)}, true)
	if x != nil {
		_, err = p.wait(ctx, x)
	}
	return err
}

// TrySubmit is Submit that does not block. False: t was not taken, for the class is full or the pool drains. It panics where
// there is no such class.
func (p *Pool[T]) TrySubmit(class int, t T) bool {
	if err := p.cfg.hasClass(class); err != nil {
		panic(err)
	}
	_, err := p.floor.enter(class, item[T]{t, p.cfg.messages(t)}, false)
	return err == nil
}

// SubmitAll is Submit for many, in their order and with one lock for all that fit. It blocks for the rest. taken is how many
// were: ts[taken:] are still the caller's. ts itself is not kept.
func (p *Pool[T]) SubmitAll(ctx context.Context, class int, ts []T) (taken int, err error) {
	if err := p.cfg.hasClass(class); err != nil || len(ts) == 0 {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var few [64]int
	x, err := p.floor.enterAll(class, ts, p.cfg.countAll(few[:0], ts))
	switch {
	case err != nil:
		return 0, err
	case x == nil:
		return len(ts), nil
	}
	left, err := p.wait(ctx, x)
	return len(ts) - left, err
}

// wait waits until all T's of x, which stands in a line, are taken, and returns how many were not.
func (p *Pool[T]) wait(ctx context.Context, x *waiter[T]) (left int, err error) {
	select {
	case <-x.ch:
	case <-ctx.Done():
		if !p.floor.leave(x, context.Cause(ctx)) { // whoever took it out of the list is about to say so
			<-x.ch
		}
	}
	left, err = len(x.ts), x.err
	p.floor.spare.put(x)
	return left, err
}

// Requeue puts ts at the end of their class. It never blocks and works while the pool drains, and afterwards too: it is for what
// was let in before (rests of work, successors, retries that are due) and not counted as an arrival. Workers must use it, never
// Submit. The slice is not kept. It panics where there is no such class.
func (p *Pool[T]) Requeue(class int, ts ...T) { p.requeue(class, requeued{}, ts) }

func (p *Pool[T]) requeue(class int, how requeued, ts []T) {
	if err := p.cfg.hasClass(class); err != nil {
		panic(err)
	}
	var few [64]int
	p.floor.requeue(class, how, ts, p.cfg.countAll(few[:0], ts))
}

// Expect announces n messages that wait for others to be handled and will be passed to RequeueExpected then: the manager counts
// them as arrivals, and as a backlog, where it works out how many workers the load asks for. A negative n takes back what will
// not come. It does not block.
func (p *Pool[T]) Expect(n int) { p.floor.expect(n) }

// RequeueExpected is Requeue for t, n messages of which Expect announced; it may have fewer by now.
func (p *Pool[T]) RequeueExpected(class, n int, t T) { p.requeue(class, requeued{expected: n}, []T{t}) }

// RequeueLast is RequeueExpected for the last that a Do does: no other worker is woken for t, since this one comes back at once.
// To wake another costs more than a short T does.
func (p *Pool[T]) RequeueLast(class, n int, t T) {
	p.requeue(class, requeued{expected: n, last: true}, []T{t})
}
