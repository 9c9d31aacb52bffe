package consumer

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// scanEvery is how often the pool looks at what workers hold: the precision of timeouts, and how long an ack may wait for a slow
// neighbour in the same run.
const scanEvery = 10 * time.Millisecond

// split is the pool's Split: of a run that a worker has held for two scans, the successes are acked, for they must not wait for a slow
// neighbour, and the unstarted go to another worker.
func (c *Consumer) split(r *run) (*run, bool) {
	d0, d1, u0, u1 := r.steal()
	c.ackRange(nil, r, d0, d1)
	if u0 >= u1 {
		return nil, false
	}
	rest := new(run)
	rest.init(r.c, r.ms[u0:u1])
	rest.first = r.first
	if !r.c.enter(rest) {
		_, _, u0, u1 = rest.steal()
		c.giveBack(r.c, backs(rest.ms[u0:u1]), r.c.why())
		return nil, false
	}
	return rest, true
}

// watch is the pool's Held: it ends the context of a message that runs too long, and gives up a worker that does not come back.
func (c *Consumer) watch(w *pool.Worker[*run], r *run, _ time.Duration) (abandon bool) {
	i := r.running()
	if c.cfg.Timeout == 0 || i < 0 {
		return false
	}
	now := time.Now()
	if r.seen != i+1 {
		r.seen, r.seenAt, r.stuck = i+1, now, false
		return false
	}
	ran := now.Sub(r.seenAt)
	if ran < c.cfg.Timeout {
		return false
	}
	l, _ := w.Shown.Load().(*local)
	if l == nil {
		return false
	}
	// Mark first, cancel second. The other way round: the scan sees message i over its time; the worker finishes it and starts the next
	// with the same context; the cancel lands, and the next one fails for what it did not do.
	if s := l.shown.Load(); r.mark(i, expired) {
		s.cancel(ErrTimeout)
	}
	return ran >= c.cfg.Timeout+c.cfg.StuckAfter && c.giveUp(l, r, i, ran)
}

// giveUp takes message i from a handler that does not return. Its late result is void.
func (c *Consumer) giveUp(l *local, r *run, i int, ran time.Duration) bool {
	e := Stuck{Message: &r.ms[i], For: ran}
	if int(c.stuck.Load()) >= c.cfg.MaxStuck {
		if !r.stuck {
			r.stuck = true
			e.Stack = stackOf(l.goroutine)
			c.tell(e)
		}
		return false
	}
	e.Stack = stackOf(l.goroutine)
	from, end, ok := r.disown(i)
	if !ok {
		return false
	}
	c.stuck.Add(1)
	e.Replaced = true
	c.tell(e)
	r.c.leave(r)
	c.ackRange(nil, r, from, i)
	if i+1 < end {
		c.again(r.c, r.ms[i+1:end], r.first)
	}
	c.decideOn(r.c, &r.ms[i], r.first, &lateError{errors.New("handler did not return")})
	return true
}

// goroutineID reads the calling goroutine's number from its stack's first line, "goroutine 12 [running]:". It serves to find its stack
// among all others, nothing else.
func goroutineID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// stackOf returns the stack of one goroutine; "" when it is not among the first MiB of all stacks.
func stackOf(id uint64) string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " [")
	for len(buf) > 0 {
		one, rest, _ := bytes.Cut(buf, []byte("\n\n"))
		if bytes.HasPrefix(one, head) {
			return string(one)
		}
		buf = rest
	}
	return ""
}
