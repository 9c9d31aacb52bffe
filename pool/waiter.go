package pool

import "sync"

// waiter is a blocked submitter. Workers take its T's into the class as they make room.
type waiter[T any] struct {
	one  [1]T  // backs ts for Submit
	ts   []T   // not yet taken
	each []int // messages in each of ts
	n    int   // in all
	err  error
	in   *waiters[T] // the list that it is in; nil: being woken
	next *waiter[T]
	ch   chan struct{} // room for one
}

// waiters is a list of them, longest waiting first.
type waiters[T any] struct{ first, last *waiter[T] }

func (l *waiters[T]) add(x *waiter[T]) {
	if l.first == nil {
		l.first = x
	} else {
		l.last.next = x
	}
	l.last, x.in = x, l
}

func (l *waiters[T]) remove(x *waiter[T]) {
	var prev *waiter[T]
	for y := l.first; y != x; y = y.next {
		prev = y
	}
	if prev == nil {
		l.first = x.next
	} else {
		prev.next = x.next
	}
	if l.last == x {
		l.last = prev
	}
	x.next, x.in = nil, nil
}

// append moves all of m to the end of l.
func (l *waiters[T]) append(m waiters[T]) {
	switch {
	case m.first == nil:
	case l.first == nil:
		*l = m
	default:
		l.last.next, l.last = m.first, m.last
	}
}

// wake tells all of a list that their wait is over. Called without a lock, on a list that nobody else has.
func (l waiters[T]) wake() {
	for x := l.first; x != nil; {
		next := x.next
		x.next = nil
		x.ch <- struct{}{}
		x = next
	}
}

// spareWaiters keeps waiters for reuse. It is safe for concurrent use.
type spareWaiters[T any] struct{ pool sync.Pool }

func (s *spareWaiters[T]) get() *waiter[T] {
	if x, ok := s.pool.Get().(*waiter[T]); ok {
		return x
	}
	return &waiter[T]{ch: make(chan struct{}, 1)}
}

func (s *spareWaiters[T]) put(x *waiter[T]) {
	var zero T
	x.one[0] = zero
	x.ts, x.each, x.n, x.err = nil, x.each[:0], 0, nil
	s.pool.Put(x)
}
