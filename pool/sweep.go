package pool

import "slices"

// Sweep takes out of the queue what has no messages by now, as Count says, and returns it, in its order for each class: nobody
// will do it. Call it when messages were taken from T's that wait. Until a worker comes by, these count as a backlog else, and
// have the pool grow. What a blocked submitter has stays.
func (p *Pool[T]) Sweep() (empty []T) {
	for class := range p.cfg.Weights {
		for {
			ts, then := p.floor.look(class)
			each := p.cfg.countAll(nil, ts) // without the lock: Count is the caller's
			if !slices.Contains(each, 0) {
				break
			}
			empty = append(empty, p.floor.sweep(class, then, each)...) // none where something came before it: look again
		}
	}
	return empty
}

// look is what waits in a class, and when that was.
func (f *floor[T]) look(class int) (ts []T, then moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.queue.classes[class]
	ts = make([]T, c.len)
	for i := range ts {
		ts[i] = c.at(i).t
	}
	return ts, c.pushed
}

// sweep takes out what was empty then. each has the messages of what waited.
func (f *floor[T]) sweep(class int, then moment, each []int) (empty []T) {
	f.mu.Lock()
	empty, admitted := f.queue.sweep(class, then, each)
	woken := f.dismiss()
	f.mu.Unlock()
	woken.wakeAll()
	admitted.wake()
	return empty
}

// sweep takes out of a class what was empty then, and returns the submitters to wake. each has the messages of what waited. What
// of that is left stands before all that came since; but for what came before it: then it does nothing.
func (q *queue[T]) sweep(class int, then moment, each []int) (empty []T, woken waiters[T]) {
	c := &q.classes[class]
	if c.pushed.front != then.front {
		return nil, woken
	}
	left := max(0, c.len-int(c.pushed.back-then.back))
	each = each[len(each)-left:]
	n := 0
	for i := range c.len {
		x := *c.at(i)
		if i < left && each[i] == 0 {
			empty = append(empty, x.t)
			q.items--
			q.backlog -= x.n
			continue
		}
		*c.at(n) = x
		n++
	}
	for i := n; i < c.len; i++ {
		*c.at(i) = item[T]{}
	}
	c.len = n
	return empty, q.admit(c)
}
