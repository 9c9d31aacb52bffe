package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A till settles: every ack and every nack goes through it. It counts what is here, frees the lanes of what is settled, and has
// what waits in them follow. What the queue refuses comes back to it, and is given back: so there is one loop, and it is here.
type till struct {
	tell    *teller
	queue   *queue
	batches *batches // nil: one by one
	order   Order

	_     line
	held  atomic.Int64 // messages received and not settled
	_     line
	empty chan struct{} // signalled when held falls to 0

	rested atomic.Bool   // who looks now and then rests while nothing is here
	begun  chan struct{} // signalled when something is, and that rests
}

func newTill(tell *teller, q *queue, b *batches, o Order) *till {
	return &till{tell: tell, queue: q, batches: b, order: o, empty: make(chan struct{}, 1), begun: make(chan struct{}, 1)}
}

// ack settles messages of k as done; what waits for them in their lanes follows.
func (t *till) ack(k *claim, tokens []uint64, lanes []uint64) { t.ackLast(k, tokens, lanes, false) }

// ackLast is ack; last: by a worker that has nothing else to do with what it was handed, and comes back for what follows.
func (t *till) ackLast(k *claim, tokens []uint64, lanes []uint64, last bool) {
	err := k.feed.source.Ack(k.Claim, tokens)
	t.settled(len(tokens), err)
	t.releaseLast(k, lanes, errors.Is(err, broker.ErrLost), last)
}

// ackPart acks messages [a, b) of w, whose handler returned nil, with one call. buf lends its memory, where the caller has some.
func (t *till) ackPart(w *work, a, b int, buf *[]uint64) { t.ackEnd(w, a, b, buf, false) }

// ackBeside acks, beside w's worker, the successes that take takes from it, and returns the unstarted that it takes.
func (t *till) ackBeside(w *work, take func() (d0, d1, u0, u1 int)) (u0, u1 int) {
	pass := w.takeTurn() // first: of two that take, the second would overtake the first
	defer pass()
	d0, d1, u0, u1 := take()
	t.ackPart(w, d0, d1, nil)
	return u0, u1
}

// ackEnd is ackPart; last: as in ackLast, and by the worker that leaves w.
func (t *till) ackEnd(w *work, a, b int, buf *[]uint64, last bool) {
	lanes := w.lanesOf(a, b)
	if last && w.run {
		lanes = w.runLane(b)
	}
	if a >= b {
		t.releaseLast(w.k, lanes, false, last)
		return
	}
	tokens := w.tokensOf(a, b, buf)
	t.tell.handled(w.part(a, b))
	if w.emitted.Load() != nil {
		t.ackEmitted(w, a, b, tokens, lanes)
		return
	}
	t.ackLast(w.k, tokens, lanes, last)
}

// ackEmitted is the end of ackEnd where handlers emitted something.
func (t *till) ackEmitted(w *work, a, b int, tokens []uint64, lanes []uint64) {
	if w.batch {
		a, b = 0, len(w.ms)
	}
	t.ackSome(w, numbers(a, b), tokens, lanes)
}

// ackSome acks messages of w, by their numbers, with what was emitted for them.
func (t *till) ackSome(w *work, which []int, tokens []uint64, lanes []uint64) {
	e := w.emitted.Load()
	if e == nil || w.k.feed.emitter == nil {
		t.ack(w.k, tokens, lanes)
		return
	}
	es := e.of(w, which, tokens)
	_ = t.ackEmitting(w.k, es, lanes) // which has counted and told it
	clear(es)
	lists.Put(&es)
}

// ackEmitting is ack, with what was made of the messages.
func (t *till) ackEmitting(k *claim, es []broker.Emission, lanes []uint64) error {
	n := 0
	for _, e := range es {
		n += len(e.Tokens)
	}
	err := k.feed.emitter.AckEmitting(k.Claim, es)
	t.settled(n, err)
	t.release(k, lanes, errors.Is(err, broker.ErrLost))
	return err
}

// numbers are a, a+1, …, b-1.
func numbers(a, b int) []int {
	ns := make([]int, b-a)
	for i := range ns {
		ns[i] = a + i
	}
	return ns
}

// nack gives messages of k back to the broker; what waits for them in their lanes goes back, too.
func (t *till) nack(k *claim, back []broker.Back, lanes []uint64) {
	t.nackAlone(k, back)
	t.release(k, lanes, true)
}

// nackAlone is nack for what has no lane, or whose lane the caller frees.
func (t *till) nackAlone(k *claim, back []broker.Back) {
	err := k.feed.source.Nack(k.Claim, back)
	t.settled(len(back), err)
}

// giveBack nacks what no handler finished, and says so.
func (t *till) giveBack(k *claim, back []broker.Back, lanes []uint64, reason string) {
	if len(back) == 0 {
		return
	}
	t.tell.count.givenBack.Add(int64(len(back)))
	t.nack(k, back, lanes)
	t.tell.tell(GivenBack{N: len(back), Reason: reason})
}

// submit queues new works of k. It waits for room until ctx ends; what the queue has not taken by then is given back.
func (t *till) submit(ctx context.Context, k *claim, ws []*work) {
	t.refused(t.queue.submit(ctx, k, ws))
}

// again queues messages that were let in before; it never blocks.
func (t *till) again(k *claim, ms []broker.Message, lanes []uint64, was past) {
	if t.batches != nil {
		t.gather(k, ms, lanes, was, was.first != 0)
		return
	}
	w := new(work)
	w.init(k, ms, lanes)
	w.past, w.each = was, true
	t.refused(t.queue.requeue(w))
}

// gather takes messages of k into batches; see batches.add.
func (t *till) gather(k *claim, ms []broker.Message, lanes []uint64, was past, alone bool) {
	t.refused(t.batches.add(k, ms, lanes, was, alone))
}

// absorb takes what came into lanes of k into the batches that gather there.
func (t *till) absorb(k *claim, numbers []uint64) { t.refused(t.batches.absorb(k, numbers)) }

// lingered queues a batch whose time is over.
func (t *till) lingered(g *gathering) { t.refused(t.batches.lingered(g)) }

// refused gives back works, of one claim, that are in no queue.
func (t *till) refused(ws []*work) {
	if len(ws) > 0 {
		t.release(ws[0].k, t.returnWorks(ws), true)
	}
}

// release lets go of the lanes of messages of k that were settled: what waits in them follows. again: the messages come again, so
// what waits behind them goes back too; it comes again after them.
func (t *till) release(k *claim, numbers []uint64, again bool) {
	t.releaseLast(k, numbers, again, false)
}

// releaseLast is release; last: as in ackLast.
func (t *till) releaseLast(k *claim, numbers []uint64, again, last bool) {
	if k.lanes == nil {
		return
	}
	most := t.queue.mostInRun(k)
	var lost *claim
	if again {
		lost = k
	}
	var kept []lapse
	for len(numbers)+len(kept) > 0 {
		var f followers
		thawed := k.lanes.done(numbers, lost, most, &f)
		if len(kept) > 0 { // rarely
			thawed = k.lanes.wentBack(kept, most, &f) || thawed
		}
		if thawed {
			k.thaw()
		}
		t.returnWaiting(f.back)
		if kept = f.kept; len(kept) > 0 {
			k.lapsed(kept)
		}
		numbers, lost = t.returnWorks(t.follow(f.next, last)), k
	}
}

// recall has what is unstarted of a run wait in its lane again, before all others: the one before it failed. For the worker,
// which has the lane. It is what stands behind from, and what stands from there on was started last and taken out.
func (t *till) recall(w *work, from int) {
	_, next, _ := unpackState(w.state.Load())
	_, _, _, end := w.steal()
	switch ms := w.ms[from:max(next, end)]; {
	case len(ms) == 0:
	case w.k.closed.Load(): // it comes again whatever runs before it
		t.returned(w.k, backs(ms), "lost")
	default:
		t.putBack(row{k: w.k, number: w.lanes[0], ms: ms})
	}
}

// putBehind has messages [n, …) of a batch of one lane wait in that lane again, before all others: the one before them failed.
// alone: whose fault that was is not known, so each gets a call of its own; together, good ones would use up their attempts
// because of a bad one among them.
func (t *till) putBehind(w *work, n int, alone bool) {
	t.putBack(row{k: w.k, number: w.lanes[0], ms: w.ms[n:], alone: alone})
}

// putBack has messages wait in their lane again, before all others.
func (t *till) putBack(r row) {
	t.queue.expect(len(r.ms))
	if r.k.lanes.putBack(r) {
		t.tell.laneFull(r.k, r.number)
	}
}

// follow has messages start whose turn has come. It returns those that must not start any more.
func (t *till) follow(next []row, last bool) (refused []*work) {
	if t.batches == nil {
		return t.queue.follow(next, last)
	}
	for _, r := range next {
		t.queue.expect(-1)
		refused = append(refused, t.batches.add(r.k, r.ms, []uint64{r.number}, past{}, r.alone)...)
	}
	return refused
}

// dropWaiting gives back what waits under a claim that has ended.
func (t *till) dropWaiting(k *claim) {
	if k.lanes == nil {
		return
	}
	var f followers
	if k.lanes.drop(k, &f) {
		k.thaw()
	}
	t.returnWaiting(f.back)
}

// returnWorks gives back what is unstarted of works that are in no queue, one call for those in a row that are of one claim. It
// returns their lanes, for the caller to free.
func (t *till) returnWorks(ws []*work) (lanes []uint64) {
	for len(ws) > 0 {
		k := ws[0].k
		var back []broker.Back
		for len(ws) > 0 && ws[0].k == k {
			w := ws[0]
			_, _, u0, u1 := w.steal()
			k.leave(w)
			back = append(back, backs(w.part(u0, u1))...)
			lanes = append(lanes, w.lanesUnstarted(u0, u1)...)
			ws = ws[1:]
		}
		t.returned(k, back, "drain") // the claim is open, so it is the stop that the queue does not wait for
	}
	return lanes
}

// returnWaiting gives back messages that waited, one call for those in a row that are of one claim.
func (t *till) returnWaiting(rows []row) {
	for len(rows) > 0 {
		k := rows[0].k
		var back []broker.Back
		for len(rows) > 0 && rows[0].k == k {
			back = append(back, backs(rows[0].ms)...)
			rows = rows[1:]
		}
		t.queue.expect(-len(back))
		t.returned(k, back, "lost") // the claim is open, so it is the message before it that was
	}
}

// returned is giveBack for what has no lane. The reason is the claim's; otherwise, where it is open.
func (t *till) returned(k *claim, back []broker.Back, otherwise string) {
	if len(back) == 0 {
		return
	}
	reason := k.why()
	if reason == "" {
		reason = otherwise
	}
	t.tell.count.givenBack.Add(int64(len(back)))
	t.nackAlone(k, back)
	t.tell.tell(GivenBack{N: len(back), Reason: reason})
}

// received counts n messages in.
func (t *till) received(n int) {
	if t.held.Add(int64(n)) == int64(n) && t.rested.Load() {
		select {
		case t.begun <- struct{}{}:
		default:
		}
	}
}

// rest says whether begun is to be signalled, and whether nothing is here.
func (t *till) rest(on bool) (nothing bool) {
	t.rested.Store(on) // first: what comes from here on signals
	return t.held.Load() == 0
}

// settled counts n messages out, and wakes who waits for the last one.
func (t *till) settled(n int, err error) {
	if err != nil {
		late := lateOf(n, err)
		t.tell.count.lost.Add(int64(late))
		t.tell.tell(Lost{N: late, Err: err})
	}
	if t.held.Add(int64(-n)) == 0 {
		select {
		case t.empty <- struct{}{}:
		default:
		}
	}
}

// lateOf is how many of n settles that ended with err came too late.
func lateOf(n int, err error) int {
	var lost *broker.LostError
	switch {
	case errors.As(err, &lost):
		return min(max(1, lost.N), n)
	case errors.Is(err, broker.ErrSettled): // they were settled before, and do not come again
		return 0
	}
	return n
}

// wait waits until everything received is settled, at most d, and says whether it is.
func (t *till) wait(d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	for t.held.Load() > 0 {
		select {
		case <-t.empty:
		case <-timer.C:
			return t.held.Load() == 0
		}
	}
	return true
}
