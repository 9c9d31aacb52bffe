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
	batches *batches
	parked  *parking
	letters *letters

	watchers sync.WaitGroup
	gone     chan struct{} // closed when Run has given up waiting for claims to end
}

func newRevoker(c *claims, t *till, b *batches, p *parking, l *letters) *revoker {
	return &revoker{claims: c, till: t, batches: b, parked: p, letters: l, gone: make(chan struct{})}
}

// follow begins to watch a claim.
func (r *revoker) follow(k *claim) { r.watchers.Go(func() { r.watch(k) }) }

// end gives up the claims that have not ended, and waits for their watchers.
func (r *revoker) end() {
	close(r.gone)
	r.watchers.Wait()
}

// watch follows a claim to its end.
func (r *revoker) watch(k *claim) {
	reason := "revoked"
	select {
	case <-k.Ended():
		reason = "lost"
	case <-k.Revoking():
	case <-r.gone:
		k.cancel(ErrShutdown)
		return
	}
	r.clear(k, reason)
	select {
	case <-k.Ended():
		k.cancel(k.Cause())
		r.till.dropWaiting(k)
	case <-r.gone:
		k.cancel(ErrShutdown)
	}
	r.claims.forget(k)
}

// clear ends the start of new work of k: what has returned and is unsettled is acked, what is unstarted or parked goes back, what
// runs goes on. Works that wait for a worker stay in the pool's queue, empty.
func (r *revoker) clear(k *claim, reason string) {
	var back []broker.Back
	var lanes []uint64
	for _, w := range k.close(reason) {
		u0, u1 := r.till.ackBeside(w, w.steal)
		back = append(back, backs(w.part(u0, u1))...)
		lanes = append(lanes, w.lanesUnstarted(u0, u1)...)
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
