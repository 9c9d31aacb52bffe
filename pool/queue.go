package pool

// item is a T that waits, with the messages in it as counted when it was taken in.
type item[T any] struct {
	t T
	n int
}

// ring is a double-ended queue that grows and never shrinks under the size it needed once. Its size is a power of two.
type ring[T any] struct {
	buf    []item[T]
	head   int
	len    int
	pushed moment
}

// A moment is how many were pushed until then.
type moment struct{ front, back uint64 }

func (r *ring[T]) at(i int) *item[T] { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) pushBack(x item[T]) {
	r.grow()
	*r.at(r.len) = x
	r.len++
	r.pushed.back++
}

func (r *ring[T]) pushFront(x item[T]) {
	r.grow()
	r.head = (r.head - 1) & (len(r.buf) - 1)
	r.buf[r.head] = x
	r.len++
	r.pushed.front++
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

// class is one of the queue's lines, with the submitters that wait for room in it.
type class[T any] struct {
	ring[T]
	weight int
	passed int        // T's of others taken while this one waited, with strict
	line   waiters[T] // with T's that found no room
	taken  waiters[T] // whose T's are all in: see admit
}

// queue is the classes and whose turn it is. It has no lock.
type queue[T any] struct {
	classes []class[T]
	bound   int     // per class
	rate    float64 // T's taken per second
	slack   int     // so many places of a class must be free before blocked submitters are woken
	items   int     // T's in all classes
	backlog int     // messages in them and with blocked submitters
	blocked int     // submitters
	quick   bool    // T's are handled faster than a goroutine is woken
	refused bool    // the queue was full for somebody since the last observation
	strict  bool    // by rank and not by weight
	turn    int     // class that is taken from
	left    int     // T's that it may have yet
}

func newQueue[T any](weights []int, strict bool, bound int) queue[T] {
	q := queue[T]{classes: make([]class[T], len(weights)), bound: bound, strict: strict, left: weights[0]}
	for i, n := range weights {
		q.classes[i].weight = n
	}
	return q
}

// room is how many T's a submitter may put into c. Those already waiting go first.
func (q *queue[T]) room(class int) int {
	c := &q.classes[class]
	if c.line.first != nil {
		return 0
	}
	return max(0, q.bound-c.len)
}

func (q *queue[T]) push(class int, x item[T]) {
	q.classes[class].pushBack(x)
	q.items++
	q.backlog += x.n
}

func (q *queue[T]) pushFront(class int, x item[T]) {
	q.classes[class].pushFront(x)
	q.items++
	q.backlog += x.n
}

// pop takes the next T by weight or rank, and the submitters to wake. Only when items > 0.
func (q *queue[T]) pop() (x item[T], class int, woken waiters[T]) {
	if q.strict {
		q.turn = q.ranked()
	} else {
		q.weighed()
	}
	c := &q.classes[q.turn]
	x = c.popFront()
	q.items--
	q.backlog -= x.n
	if q.blocked > 0 {
		woken = q.admit(c)
	}
	return x, q.turn, woken
}

// weighed goes on to the next class with something, when the present one has had its share.
func (q *queue[T]) weighed() {
	for q.left == 0 || q.classes[q.turn].len == 0 {
		if q.turn++; q.turn == len(q.classes) {
			q.turn = 0
		}
		q.left = q.classes[q.turn].weight
	}
	q.left--
}

// mostPassed is how many T's of others a class that waits lets pass by with strict.
const mostPassed = 100

// ranked is the first class that has something, or a later one that was passed over so often: of several that which was passed
// over most.
func (q *queue[T]) ranked() int {
	pick := -1
	for i := range q.classes {
		c := &q.classes[i]
		switch {
		case c.len == 0:
			c.passed = 0
		case pick < 0, c.passed >= mostPassed && c.passed > q.classes[pick].passed:
			pick = i
		}
	}
	for i := range q.classes {
		if c := &q.classes[i]; c.len > 0 {
			c.passed++
		}
	}
	q.classes[pick].passed = 0
	return pick
}

// admit moves T's of waiting submitters into c's free places, and takes out the submitters to wake. These stay until there is
// some slack: to wake one for each free place would be a switch of goroutines for each T.
func (q *queue[T]) admit(c *class[T]) (woken waiters[T]) {
	for c.line.first != nil && c.len < q.bound {
		x := c.line.first
		c.pushBack(item[T]{x.ts[0], x.each[0]})
		q.items++
		x.n -= x.each[0]
		if x.ts, x.each = x.ts[1:], x.each[1:]; len(x.ts) == 0 {
			c.line.remove(x)
			c.taken.add(x)
		}
	}
	if c.taken.first != nil && c.len <= q.bound-q.slack {
		woken = c.taken
		q.release(woken)
		c.taken = waiters[T]{}
	}
	return woken
}

// release marks a list as being woken.
func (q *queue[T]) release(l waiters[T]) {
	for x := l.first; x != nil; x = x.next {
		x.in = nil
		q.blocked--
	}
}

// wait puts x at the end of its class's line.
func (q *queue[T]) wait(class int, x *waiter[T]) {
	q.classes[class].line.add(x)
	q.blocked++
	q.backlog += x.n
	q.refused = true
}

// leave takes a submitter that gives up out of its list. False: it is being woken.
func (q *queue[T]) leave(x *waiter[T]) bool {
	if x.in == nil {
		return false
	}
	x.in.remove(x)
	q.blocked--
	q.backlog -= x.n
	return true
}

// refuse empties the lists: who still has T's gets err and keeps them.
func (q *queue[T]) refuse(err error) (woken waiters[T]) {
	for i := range q.classes {
		c := &q.classes[i]
		for x := c.line.first; x != nil; x = c.line.first {
			c.line.remove(x)
			q.backlog -= x.n
			x.err = err
			woken.add(x)
		}
		for x := c.taken.first; x != nil; x = c.taken.first {
			c.taken.remove(x)
			woken.add(x)
		}
	}
	q.release(woken)
	return woken
}

// fill is the part of the bound in use by the fullest class.
func (q *queue[T]) fill() float64 {
	most := 0
	for i := range q.classes {
		most = max(most, q.classes[i].len)
	}
	return float64(most) / float64(q.bound)
}

// tune sets what follows from the pace, and the bound. Who finds room by that is to be woken.
func (q *queue[T]) tune(c *pace, bound int) (admitted waiters[T]) {
	q.quick, q.rate = c.quick(q.quick), c.rate
	q.bound, q.slack = bound, c.slack(bound)
	for i := range q.classes {
		admitted.append(q.admit(&q.classes[i]))
	}
	return admitted
}
