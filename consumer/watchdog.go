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

// split is the pool's Split: of a run that a worker has held for two scans, the successes are acked, for they must not wait for a
// slow neighbour, and the unstarted go to another worker.
func (c *Consumer) split(r *work) (*work, bool) {
	d0, d1, u0, u1 := r.steal()
	c.ackRange(nil, r, d0, d1)
	if u0 >= u1 {
		return nil, false
	}
	rest := r.rest(u0, u1)
	if !r.k.enter(rest) {
		c.takeBack(r.k, []*work{rest})
		return nil, false
	}
	return rest, true
}

// watch is the pool's Held: it notes what runs for longer than a scan, ends the context of a message that runs too long, and
// gives up a worker that does not come back.
func (c *Consumer) watch(w *pool.Worker[*work], r *work, _ time.Duration) (abandon bool) {
	i := r.running()
	if i < 0 {
		return false
	}
	l, _ := w.Shown.Load().(*local)
	if l == nil {
		return false
	}
	if r.seen == nil || r.seen.i != i {
		r.see(i, l.goroutine)
		return false
	}
	if c.cfg.Timeout == 0 {
		return false
	}
	ran := time.Since(r.seen.at)
	if ran < c.cfg.Timeout {
		return false
	}
	// Mark first, cancel second. The other way round: the scan sees message i over its time; the worker finishes it and starts the
	// next with the same context; the cancel lands, and the next one fails for what it did not do.
	if s := l.shown.Load(); r.mark(i, expired) {
		s.cancel(ErrTimeout)
	}
	return ran >= c.cfg.Timeout+c.cfg.StuckAfter && c.giveUp(l, r, i, ran)
}

// see notes that message i runs, in which goroutine, and since when. Under the claim's lock, for the end of the drain reads it.
func (r *work) see(i int, goroutine uint64) {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	r.seen = &seen{i: i, at: time.Now(), goroutine: goroutine}
}

// A sighting is a message in a handler.
type sighting struct {
	m         *Message
	at        time.Time // since when, late by at most two scans
	goroutine uint64    // 0: not known yet
}

// running returns what of k is in handlers.
func (k *claim) running() (all []sighting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := k.first; r != nil; r = r.next {
		i := r.running()
		if i < 0 {
			continue
		}
		s := sighting{m: &r.ms[i], at: time.Now()}
		if r.seen != nil && r.seen.i == i {
			s.at, s.goroutine = r.seen.at, r.seen.goroutine
		}
		all = append(all, s)
	}
	return all
}

// giveUp replaces a worker whose handler does not return, and takes message i from it: its late result is void. With an order the
// message stays with it, or the next of its lane would run beside it.
func (c *Consumer) giveUp(l *local, r *work, i int, ran time.Duration) bool {
	e := Stuck{Message: &r.ms[i], For: ran}
	if int(c.stuck.Load()) >= c.cfg.MaxStuck {
		if !r.seen.stuck {
			r.seen.stuck = true
			e.Stack = stackOf(allStacks(), l.goroutine)
			c.tell(e)
		}
		return false
	}
	e.Stack = stackOf(allStacks(), l.goroutine)
	if r.lanes != nil {
		if !r.mark(i, replaced) {
			return false
		}
		c.stuck.Add(1)
		e.Replaced = true
		c.tell(e)
		return true
	}
	from, end, ok := r.disown(i)
	if !ok {
		return false
	}
	c.stuck.Add(1)
	e.Replaced = true
	c.tell(e)
	r.k.leave(r)
	c.ackRange(nil, r, from, i)
	if r.batch != nil {
		c.failedBatch(r, &lateError{errors.New("handler did not return")}, false)
		return true
	}
	if i+1 < end {
		c.again(r.k, r.ms[i+1:end], nil, r.first)
	}
	c.decideOn(r.item(i), &lateError{errors.New("handler did not return")})
	return true
}

// goroutineID reads the calling goroutine's number from its stack's first line, "goroutine 12 [running]:". It serves to find its
// stack among all others, nothing else.
func goroutineID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// allStacks returns the stacks of all goroutines, the first MiB of them. It stops the world meanwhile.
func allStacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// stackOf returns the stack of one goroutine; "" when it is not among them.
func stackOf(stacks []byte, id uint64) string {
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " [")
	for len(stacks) > 0 {
		one, rest, _ := bytes.Cut(stacks, []byte("\n\n"))
		if bytes.HasPrefix(one, head) {
			return string(one)
		}
		stacks = rest
	}
	return ""
}
