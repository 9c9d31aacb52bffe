package consumer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// claims has the claims that have not ended.
type claims struct {
	handlers context.Context // the parent of all handlers' contexts; set before the first claim
	lanes    *partitionLanes // nil: there is no order

	mu   sync.Mutex
	open map[*broker.Claim]*claim
	made uint64          // claims, since the start
	left map[*claim]bool // those that have ended, and of which something was in a handler then
	over string          // why no claim may start anything any more
}

func newClaims(cfg *Config) *claims {
	t := &claims{open: map[*broker.Claim]*claim{}, left: map[*claim]bool{}}
	if cfg.ordered() {
		t.lanes = newPartitionLanes(cfg.Lane)
	}
	return t
}

// of finds or makes the engine's side of b. fresh: it was made, and the caller follows it to its end.
func (t *claims) of(f *feed, b *broker.Claim) (k *claim, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.open[b]; k != nil {
		return k, false
	}
	t.made++
	k = &claim{Claim: b, id: t.made, feed: f, over: t.over, leaving: make(chan struct{})}
	if k.closed.Store(t.over != ""); t.over != "" {
		close(k.leaving)
	}
	if t.lanes != nil && !f.retries {
		k.lanes = t.lanes.use(k.partition())
	}
	k.ctx, k.cancel = context.WithCancelCause(t.handlers)
	t.open[b] = k
	return k, true
}

// shut has no claim that begins from now on start anything.
func (t *claims) shut(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = reason
}

// all are the claims that have not ended.
func (t *claims) all() []*claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.open))
}

// present are all of which something may be here: handlers go on when their claim has ended, and what they have is settled, and
// in the budget, when they return.
func (t *claims) present() []*claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	return slices.AppendSeq(slices.Collect(maps.Values(t.open)), maps.Keys(t.left))
}

// sweep forgets those whose handlers have returned; the last ones when somebody looks, or the next claim ends.
func (t *claims) sweep() {
	maps.DeleteFunc(t.left, func(k *claim, _ bool) bool { return k.idle() })
}

// feeds are whose the claims are that have not ended.
func (t *claims) feeds() map[*broker.Claim]*feed {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := make(map[*broker.Claim]*feed, len(t.open))
	for b, k := range t.open {
		of[b] = k.feed
	}
	return of
}

// forget takes out a claim that has ended.
func (t *claims) forget(k *claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, k.Claim)
	t.left[k] = true // unless nothing is in a handler
	t.sweep()
	if k.lanes != nil {
		k.lanes.held.CompareAndSwap(k, nil)
		t.lanes.leave(k.partition())
	}
}

// A claim is the engine's side of a broker.Claim: what of it is alive here, so that a revocation and the drain can reach each
// message where it lies.
type claim struct {
	*broker.Claim
	id   uint64 // of all of the consumer; not 0
	feed *feed
	// ctx is the parent of the handlers' contexts: it ends with the broker's claim, or with the end of a drain.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// leaving is closed when over is set, for handlers that wait.
	leaving chan struct{}

	lanes  *lanes      // nil: there is no order
	closed atomic.Bool // over is set

	cleared, forgotten bool // what the revoker, whose they are, has done

	_           line // workers read what is above for each message; dispatchers write what follows for each work
	shelf       shelf
	mu          sync.Mutex
	over        string // why nothing of it may start any more; "": it may
	first, last *work  // live works, oldest first
}

// partition names what its lanes are of.
func (k *claim) partition() partitionKey { return partitionKey{k.feed, k.Topic, k.Partition} }

// hasEnded says whether the broker's claim has.
func (k *claim) hasEnded() bool {
	select {
	case <-k.Ended():
		return true
	default:
		return false
	}
}

// enter registers live works. It says no when nothing of the claim may start any more: then they are the caller's to give back.
func (k *claim) enter(ws ...*work) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != "" {
		return false
	}
	for _, w := range ws {
		w.linked, w.prev, w.next = true, k.last, nil
		if k.last != nil {
			k.last.next = w
		} else {
			k.first = w
		}
		k.last = w
	}
	return true
}

// leave takes a work out of the list; a second time it does nothing.
func (k *claim) leave(w *work) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !w.linked {
		return
	}
	w.linked = false
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		k.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		k.last = w.prev
	}
	w.prev, w.next = nil, nil
}

// idle says that there are no live works; there never are any more where it has ended.
func (k *claim) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first == nil
}

// empty lets go of messages that were taken from a live work before anybody started them: they are in nobody's budget any more,
// and stay in memory with all that was allocated beside them. Under the lock, for who looks at live works.
func (k *claim) empty(ms []broker.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(ms)
}

// whileOpen calls do unless nothing of the claim may start any more, and says whether it did. Whoever closes the claim finds what
// do put down. do is called under the lock.
func (k *claim) whileOpen(do func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != "" {
		return false
	}
	do()
	return true
}

// close marks the claim as over and returns its live works, oldest first. The first reason stays.
func (k *claim) close(reason string) (live []*work) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over == "" {
		k.over = reason
		k.closed.Store(true)
		close(k.leaving)
	}
	for w := k.first; w != nil; w = w.next {
		live = append(live, w)
	}
	return live
}

// why says why nothing of the claim may start any more; "": it may.
func (k *claim) why() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over
}

// whyNothingStarts is why for who sees that the broker's claim has turned, perhaps before the revoker.
func (k *claim) whyNothingStarts() string {
	return cmp.Or(k.why(), whyTurned(k.Claim))
}

// whyTurned says why the broker's claim is no longer open.
func whyTurned(b *broker.Claim) string {
	select {
	case <-b.Ended():
		return "lost"
	default:
		return "revoked"
	}
}

// whyEnded says why the contexts of its handlers have.
func (k *claim) whyEnded() string {
	if errors.Is(context.Cause(k.ctx), ErrShutdown) {
		return "shutdown"
	}
	return "lost"
}

// detain says that what is at large of lanes takes long, so that what waits there does, too.
func (k *claim) detain(lanes []uint64) {
	if len(lanes) > 0 {
		k.lanes.keep(lanes)
	}
}

// hold has the source hand out nothing of a claim for as long as a lane of its partition is full, and says whether it can.
func (k *claim) hold() bool {
	k.lanes.held.Store(k)
	return k.holdOn()
}

// holdOn is hold for one that is held already, before its time is over.
func (k *claim) holdOn() bool {
	if !k.feed.hold(k.Claim, time.Now().Add(holdFull)) {
		return false
	}
	if !k.lanes.stillFull() { // thawed before it was held
		k.thaw()
	}
	return true
}

// thaw has the source go on with the claim that is held for lanes that are full no more. That need not be k: the lane of a topic
// that was made anew thaws when a message of the old one is settled, under the old one's claim.
func (k *claim) thaw() {
	if held := k.lanes.held.Load(); held != nil {
		held.feed.hold(held.Claim, time.Now())
	}
}

// each calls do with each message in k's live works and incomplete batches that is not settled, under its locks.
func (k *claim) each(do func(*Message)) {
	k.shelf.each(do) // first: what is queued meanwhile is seen twice, and not missed
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := k.first; w != nil; w = w.next {
		from, next, end := unpackState(w.state.Load())
		left := w.part(min(max(from, next-1), end), end)
		for i := range left {
			do(&left[i])
		}
	}
}

// running returns what of k is in handlers.
func (k *claim) running() (all []sighting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := k.first; w != nil; w = w.next {
		if s, ok := w.sight(); ok {
			all = append(all, s)
		}
	}
	return all
}

// see notes that message i of w runs, in which goroutine, and since when. Under the claim's lock, for the end of the drain
// reads it.
func (k *claim) see(w *work, i int, goroutine uint64, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.see(i, goroutine, since)
}

// seenAt is since when message i of w runs, as far as the watchdog saw it: late by at most two scans. What it has not seen yet
// began then.
func (k *claim) seenAt(w *work, i int, then time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.seen != nil && w.seen.i == i {
		return w.seen.at
	}
	return then
}
