package consumer

import (
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A revoker follows claims to their end, and takes back what of them has not started.
type revoker struct {
	claims  *claims
	till    *till
	queue   *queue
	batches *batches
	parked  *parking
	letters *letters

	loop sync.WaitGroup
	gone chan struct{} // closed when Run has given up waiting for claims to end
	wake chan struct{} // a token: there are turned ones

	mu     sync.Mutex
	turned []*claim // those that are no longer open, or have ended, since the last look
}

func newRevoker(c *claims, t *till, q *queue, b *batches, p *parking, l *letters) *revoker {
	return &revoker{claims: c, till: t, queue: q, batches: b, parked: p, letters: l,
		gone: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// follow has a claim watched; it does not block.
func (r *revoker) follow(k *claim) { k.Follow(func() { r.turn(k) }) }

// turn notes that k is to be looked at. The adapter calls it.
func (r *revoker) turn(k *claim) {
	r.mu.Lock()
	r.turned = append(r.turned, k)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// start begins to watch claims.
func (r *revoker) start() { r.loop.Go(r.run) }

// end stops watching, and gives up the claims that have not ended.
func (r *revoker) end() {
	close(r.gone)
	r.loop.Wait()
	r.look()
	for _, k := range r.claims.all() {
		k.cancel(ErrShutdown)
	}
}

func (r *revoker) run() {
	for {
		select {
		case <-r.wake:
			r.look()
		case <-r.gone:
			return
		}
	}
}

// look deals with all that have turned.
func (r *revoker) look() {
	r.mu.Lock()
	turned := r.turned
	r.turned = nil
	r.mu.Unlock()
	for _, k := range turned {
		r.watch(k)
	}
	if len(turned) > 0 {
		r.queue.sweep()
	}
}

// watch does what k's turn asks for. A claim may be looked at more often than it turned.
func (r *revoker) watch(k *claim) {
	ended := k.hasEnded()
	if !k.cleared {
		k.cleared = true
		r.clear(k, k.whyNothingStarts())
	}
	if ended && !k.forgotten {
		k.forgotten = true
		k.cancel(k.Cause())
		r.till.dropWaiting(k)
		r.claims.forget(k)
	}
}

// clear ends the start of new work of k: what has returned and is unsettled is acked, what is unstarted or parked goes back, what
// runs goes on. Works that wait for a worker stay in the pool's queue, empty, until it is swept, and keep no message in memory.
func (r *revoker) clear(k *claim, reason string) {
	var back []broker.Back
	var lanes []uint64
	for _, w := range k.close(reason) {
		u0, u1 := r.till.ackBeside(w, w.steal)
		unstarted := w.part(u0, u1)
		back = append(back, backs(unstarted)...)
		lanes = append(lanes, w.lanesUnstarted(u0, u1)...)
		k.empty(unstarted)
	}
	ms, of := r.batches.take(k)
	back, lanes = append(back, backs(ms)...), append(lanes, of...)
	now := time.Now()
	for _, p := range r.parked.takeOf(k) {
		back = append(back, p.rest(now))
		lanes = append(lanes, p.lane...)
	}
	r.till.giveBack(k, back, lanes, reason)
	r.letters.flush(k)
}
