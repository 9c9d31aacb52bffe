package pool

import "fmt"

// item is a T that waits, with the messages in it as counted when it was taken in.
type item[T any] struct {
	t T
	n int
}

// ring is a double-ended queue that grows and never shrinks under the size it needed once. Its size is a power of two.
type ring[T any] struct {
	buf  []item[T]
	head int
	len  int
}

func (r *ring[T]) pushBack(x item[T]) {
	r.grow()
	r.buf[(r.head+r.len)&(len(r.buf)-1)] = x
	r.len++
}

func (r *ring[T]) pushFront(x item[T]) {
	r.grow()
	r.head = (r.head - 1) & (len(r.buf) - 1)
	r.buf[r.head] = x
	r.len++
}

func (r *ring[T]) popFront() item[T] {
	x := r.buf[r.head]
	r.buf[r.head] = item[T]{} // what the caller lets go of must not stay reachable here
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.len--
	return x
}

func (r *ring[T]) grow() {
	if r.len < len(r.buf) {
		return
	}
	buf := make([]item[T], max(16, 2*len(r.buf)))
	n := copy(buf, r.buf[r.head:])
	copy(buf[n:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}

// class is one of the queue's lines, with the submitters that wait for room in it, longest first.
type class[T any] struct {
	ring[T]
	weight      int
	first, last *waiter[T]
}

// waiter is a blocked submitter. Workers take its T's into the class as they make room, and wake it when they have them all.
type waiter[T any] struct {
	one  [1]T  // backs ts for Submit
	ts   []T   // not yet taken
	each []int // messages in each of ts
	n    int   // in all
	done bool  // all taken, or refused: no longer in the line
	err  error
	next *waiter[T]
	ch   chan struct{} // room for one
}

// queue is the classes and whose turn it is. Everything is under the pool's lock.
type queue[T any] struct {
	classes []class[T]
	bound   int  // per class
	items   int  // T's in all classes
	backlog int  // messages in them and with blocked submitters
	blocked int  // submitters
	refused bool // the queue was full for somebody since the last observation
	turn    int  // class that is taken from
	left    int  // T's that it may have yet
}

func newQueue[T any](weights []int, bound int) queue[T] {
	q := queue[T]{classes: make([]class[T], len(weights)), bound: bound, left: weights[0]}
	for i, n := range weights {
		q.classes[i].weight = n
	}
	return q
}

func (q *queue[T]) has(class int) error {
	if class < 0 || class >= len(q.classes) {
		return fmt.Errorf("pool: class %d: there are %d", class, len(q.classes))
	}
	return nil
}

// room is how many T's a submitter may put into c. Those already waiting go first.
func (q *queue[T]) room(c *class[T]) int {
	if c.first != nil {
		return 0
	}
	return max(0, q.bound-c.len)
}

func (q *queue[T]) push(c *class[T], t T, n int) {
	c.pushBack(item[T]{t, n})
	q.items++
	q.backlog += n
}

func (q *queue[T]) pushFront(c *class[T], t T, n int) {
	c.ring.pushFront(item[T]{t, n})
	q.items++
	q.backlog += n
}

// pop takes the next T by weight, and the waiting submitters that its going completed. Only when items > 0.
func (q *queue[T]) pop() (x item[T], class int, woken *waiter[T]) {
	for q.left == 0 || q.classes[q.turn].len == 0 {
		if q.turn++; q.turn == len(q.classes) {
			q.turn = 0
		}
		q.left = q.classes[q.turn].weight
	}
	q.left--
	c := &q.classes[q.turn]
	x = c.popFront()
	q.items--
	q.backlog -= x.n
	if c.first != nil {
		woken = q.admit(c)
	}
	return x, q.turn, woken
}

// admit moves T's of waiting submitters into c's free places and returns the submitters that have none left, as a list.
func (q *queue[T]) admit(c *class[T]) (woken *waiter[T]) {
	for c.first != nil && c.len < q.bound {
		x := c.first
		c.pushBack(item[T]{x.ts[0], x.each[0]})
		q.items++
		x.n -= x.each[0]
		if x.ts, x.each = x.ts[1:], x.each[1:]; len(x.ts) == 0 {
			q.unlink(c, nil, x)
			x.next, woken = woken, x
		}
	}
	return woken
}

// line puts x at the end of c's waiting submitters.
func (q *queue[T]) line(c *class[T], x *waiter[T]) {
	if c.first == nil {
		c.first = x
	} else {
		c.last.next = x
	}
	c.last = x
	q.blocked++
	q.backlog += x.n
	q.refused = true
}

// unlink takes x, which stands behind prev, out of c's line.
func (q *queue[T]) unlink(c *class[T], prev, x *waiter[T]) {
	if prev == nil {
		c.first = x.next
	} else {
		prev.next = x.next
	}
	if c.last == x {
		c.last = prev
	}
	x.next, x.done = nil, true
	q.blocked--
}

// leave takes a submitter that gives up out of the line. False: too late, all was taken.
func (q *queue[T]) leave(c *class[T], x *waiter[T]) bool {
	if x.done {
		return false
	}
	var prev *waiter[T]
	for y := c.first; y != x; y = y.next {
		prev = y
	}
	q.unlink(c, prev, x)
	q.backlog -= x.n
	return true
}

// refuse empties the lines: all who wait get err and keep what was not taken.
func (q *queue[T]) refuse(err error) (woken *waiter[T]) {
	for i := range q.classes {
		c := &q.classes[i]
		for c.first != nil {
			x := c.first
			q.unlink(c, nil, x)
			q.backlog -= x.n
			x.err = err
			x.next, woken = woken, x
		}
	}
	return woken
}

// wake tells the submitters of a list that their wait is over. Called without the lock.
func (x *waiter[T]) wake() {
	for x != nil {
		next := x.next
		x.next = nil
		x.ch <- struct{}{}
		x = next
	}
}

// fill is the part of the bound in use by the fullest class.
func (q *queue[T]) fill() float64 {
	most := 0
	for i := range q.classes {
		most = max(most, q.classes[i].len)
	}
	return float64(most) / float64(q.bound)
}
