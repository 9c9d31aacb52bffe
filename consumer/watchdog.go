package consumer

import (
	"errors"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// A watchdog looks at what workers hold for longer: it takes what waits behind a slow message away from them, ends contexts whose
// time is over, and replaces workers that do not come back.
type watchdog struct {
	timeout, stuckAfter time.Duration
	maxStuck            int
	tell                *teller
	till                *till
	judge               *judge
	workers             *workers
}

func newWatchdog(cfg *Config, tell *teller, t *till, j *judge, ws *workers) *watchdog {
	return &watchdog{
		timeout: cfg.Timeout, stuckAfter: cfg.StuckAfter, maxStuck: cfg.MaxStuck, tell: tell, till: t, judge: j, workers: ws,
	}
}

// split is the pool's Split: of a work that a worker has held for two scans, the successes are acked, for they must not wait for
// a slow neighbour, and the unstarted go to another worker.
func (d *watchdog) split(w *work) (*work, bool) {
	u0, u1 := d.till.ackBeside(w, w.share)
	if u0 >= u1 {
		return nil, false
	}
	rest := w.rest(u0, u1)
	if !w.k.enter(rest) {
		d.till.refused([]*work{rest})
		return nil, false
	}
	return rest, true
}

// watch is the pool's Held: it notes what runs for longer than a scan, ends the context of a message that runs too long, and
// gives up a worker that does not come back.
func (d *watchdog) watch(p *pool.Worker[*work], w *work, held time.Duration) (abandon bool) {
	i := w.running()
	switch {
	case i < 0:
		return false
	case w.given():
		return true // again: one that has returned counted as abandoned still, so the pool kept this worker
	}
	l, _ := p.Shown.Load().(*local)
	if l == nil {
		return false
	}
	if w.seen == nil || w.seen.i != i {
		w.k.see(w, i, l.goroutine, w.begun(held))
		w.k.detain(w.lanesAt(i))
	}
	ran := time.Since(w.seen.at)
	if d.timeout == 0 || ran < d.timeout {
		d.rest(p, w, ran)
		return false
	}
	// Mark first, cancel second. The other way round: the scan sees message i over its time; the worker finishes it and starts the
	// next with the same context; the cancel lands, and the next one fails for what it did not do.
	if s := l.shown.Load(); w.mark(i, expired) {
		s.made().cancel(ErrTimeout)
	}
	return d.isStuck(ran) && d.giveUp(l, w, i, ran)
}

// rest lets the worker alone until the time of its message is over, where it has no other.
func (d *watchdog) rest(p *pool.Worker[*work], w *work, ran time.Duration) {
	switch {
	case !w.alone():
	case d.timeout == 0:
		p.Rest(noTimeout)
	default:
		p.Rest(d.timeout - ran)
	}
}

// noTimeout is when a message without a timeout is looked at again.
const noTimeout = time.Hour

// isStuck says whether a call that has run so long is stuck.
func (d *watchdog) isStuck(ran time.Duration) bool {
	return d.timeout > 0 && ran-d.timeout >= d.stuckAfter // their sum may be more than there is
}

// giveUp replaces a worker whose handler does not return, where there may be one more such, and tells of it.
func (d *watchdog) giveUp(l *local, w *work, i int, ran time.Duration) bool {
	of := l.toldOf(w, i)
	e := Stuck{Message: &w.ms[i], For: ran, Context: of.values()}
	if int(d.workers.stuck.Load()) >= d.maxStuck {
		if !w.seen.stuck {
			w.seen.stuck = true
			e.Stack = stackOf(allStacks(), l.goroutine)
			d.tell.tell(e)
		}
		return false
	}
	e.Stack, e.Replaced = stackOf(allStacks(), l.goroutine), true
	// With an order the message stays with its worker, or the next of its lane would run beside it.
	if w.lanes != nil {
		if !w.mark(i, replaced) {
			return false
		}
		d.workers.stuck.Add(1)
		d.tell.tell(e)
		return true
	}
	// First here, then taken: the other way round the handler may return in between, and its worker find nothing to remove.
	if s, ok := w.sight(); ok {
		d.workers.strays.add(w, s)
	}
	from, end, ok := w.disown(i)
	if !ok {
		d.workers.strays.remove(w)
		return false
	}
	d.workers.stuck.Add(1)
	d.tell.tell(e)
	d.takeOver(w, from, i, end, of)
	return true
}

// takeOver settles what was taken from a stuck worker: the successes [from, i), message i, whose late result is void, and the
// unstarted behind it. of is its call.
func (d *watchdog) takeOver(w *work, from, i, end int, of begun) {
	w.k.leave(w)
	d.till.ackPart(w, from, i, nil)
	err := &lateError{errors.New("handler did not return")}
	if w.batch {
		d.judge.failedBatch(w, err, false, of)
		return
	}
	if i+1 < end {
		d.till.again(w.k, w.ms[i+1:end], nil, w.past)
	}
	d.judge.failed(w.item(i), err, of)
}
