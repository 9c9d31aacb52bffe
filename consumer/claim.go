package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A claim is the engine's side of a broker.Claim: what of it is alive here, so that a revocation and the drain can reach each
// message where it lies.
type claim struct {
	*broker.Claim
	feed *feed
	// ctx is the parent of the handlers' contexts: it ends with the broker's claim, or with the consumer's work.
	ctx    context.Context
	cancel context.CancelCauseFunc

	lanes  *lanes      // nil: there is no order
	closed atomic.Bool // over is set

	_           line // workers read what is above for each message; dispatchers write what follows for each run
	mu          sync.Mutex
	plain       *gathering           // what gathers, whatever its key
	byKey       map[group]*gathering // or what gathers by key
	over        string               // why nothing of it may start any more; "": it may
	first, last *work                // live runs, oldest first
}

// claimOf finds or makes the engine's side of b.
func (c *Consumer) claimOf(f *feed, b *broker.Claim) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.claims[b]
	if k == nil {
		k = &claim{Claim: b, feed: f, over: c.over}
		k.closed.Store(c.over != "")
		k.lanes = c.lanesOf(k)
		k.ctx, k.cancel = context.WithCancelCause(c.work)
		c.claims[b] = k
		c.watchers.Go(func() { c.watchClaim(k) })
	}
	return k
}

// watchClaim follows a claim to its end.
func (c *Consumer) watchClaim(k *claim) {
	reason := "revoked"
	select {
	case <-k.Ended():
		reason = "lost"
	case <-k.Revoking():
	case <-c.gone:
		k.cancel(ErrShutdown)
		return
	}
	c.clear(k, reason)
	select {
	case <-k.Ended():
		k.cancel(k.Cause())
		c.dropWaiting(k)
	case <-c.gone:
		k.cancel(ErrShutdown)
	}
	c.mu.Lock()
	delete(c.claims, k.Claim)
	if k.lanes != nil {
		k.lanes.users--
	}
	c.mu.Unlock()
}

// enter registers live runs. It says no when nothing of the claim may start any more: then they are the caller's to give back.
func (k *claim) enter(rs ...*work) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != "" {
		return false
	}
	for _, r := range rs {
		r.linked, r.prev, r.next = true, k.last, nil
		if k.last != nil {
			k.last.next = r
		} else {
			k.first = r
		}
		k.last = r
	}
	return true
}

// leave takes a run out of the list; a second time it does nothing.
func (k *claim) leave(r *work) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !r.linked {
		return
	}
	r.linked = false
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		k.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		k.last = r.prev
	}
	r.prev, r.next = nil, nil
}

// close marks the claim as over and returns its live runs, oldest first. The first reason stays.
func (k *claim) close(reason string) (live []*work) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over == "" {
		k.over = reason
		k.closed.Store(true)
	}
	for r := k.first; r != nil; r = r.next {
		live = append(live, r)
	}
	return live
}

// why says why nothing of the claim may start any more; "": it may.
func (k *claim) why() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over
}

// clear ends the start of new work of k: what has returned and is unsettled is acked, what is unstarted or parked goes back, what
// runs goes on. Queued runs stay in the queue as empty husks.
func (c *Consumer) clear(k *claim, reason string) {
	var back []broker.Back
	var numbers []uint64
	for _, r := range k.close(reason) {
		d0, d1, u0, u1 := r.steal()
		c.ackRange(nil, r, d0, d1)
		back = append(back, backs(r.part(u0, u1))...)
		numbers = append(numbers, r.lanesOf(u0, u1)...)
	}
	if ms, lanes := c.takeGathering(k); len(ms) > 0 {
		back, numbers = append(back, backs(ms)...), append(numbers, lanes...)
	}
	now := time.Now()
	for _, p := range c.parked.take(func(p parked) bool { return p.k == k }) {
		back = append(back, p.rest(now))
		numbers = append(numbers, p.lane...)
	}
	c.giveBack(k, back, numbers, reason)
	c.letters.flush(k)
}
