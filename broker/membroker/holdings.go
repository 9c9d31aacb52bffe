package membroker

import (
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// holdings are all that a source has, and decide about it: what is handed out, what a settle comes to, which claims end. They
// do no I/O, start nothing and wait for nothing; what is to be sent is returned. Each method takes the lock, and calls none
// that does. The broker's lock may be taken inside it, never the other way round.
//
// Receive hands out, any goroutine settles, and the loop alone lets claims begin and end.
type holdings struct {
	mu       sync.Mutex
	shared   *shared
	list     holdingList // that Receive looks at
	turn     int         // whose turn it is in Receive
	pauses   kit.Pauses
	stop     error     // why Receive hands out nothing any more; nil: it does
	broken   error     // what Receive failed with, for good; it goes before stop
	contact  time.Time // the last heartbeat that the broker answered
	lapsed   bool      // Receive waits for one
	leaseFor time.Duration
}

func newHoldings(c SourceConfig, b Config, events *kit.EventQueue, wake, kick kit.Bell) *holdings {
	return &holdings{
		leaseFor: b.Lease,
		shared: &shared{
			leased: b.Leased, window: int64(c.Window), prefetch: c.Prefetch, commit: c.CommitInterval,
			gate: kit.Gate{Eager: true}, stale: make(kit.StaleInFlight[logEpoch]), events: events, wake: wake, kick: kick,
		},
	}
}

// open begins. What flush sends on is when settles are to be sent.
func (hs *holdings) open(o broker.Options, flush *time.Timer, now time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.shared.gate.SetBudget(o.Budget)
	hs.shared.ordered, hs.shared.flush, hs.contact = o.Ordered, flush, now
}

// end lets Receive hand out nothing any more. The first cause holds, unless the process is killed.
func (hs *holdings) end(cause error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.stop == nil || cause == errKilled {
		hs.stop = cause
	}
}

// stopped says whether end was called.
func (hs *holdings) stopped() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.stop != nil
}

// fail lets Receive return err from here on.
func (hs *holdings) fail(err error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.broken = err
}

func (hs *holdings) setBudget(b broker.Budget) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.shared.gate.SetBudget(b)
}

// pause gives the prefetch of what is paused back, unless it stands behind what is out: the loop does it then.
func (hs *holdings) pause(topics []string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.pauses.Pause(topics...)
	for _, h := range hs.list {
		if hs.pauses.Has(h.cur.log.topic) && !hs.shared.keepsOrder() {
			h.dropPrefetch()
		}
	}
}

func (hs *holdings) resume(topics []string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.pauses.Resume(topics...)
}

// holdUntil hands out nothing of the holding until then.
func (hs *holdings) holdUntil(h *holding, until time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.heldUntil = until
	h.dropPrefetch()
}

// fill says how full the holding's window of unfinished offsets is, 0..1.
func (hs *holdings) fill(h *holding) float64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return min(1, float64(h.w.hi-h.floor)/float64(hs.shared.window))
}

// handOut takes messages out of the prefetch of the next claim in turn. starved: there is no budget for any.
func (hs *holdings) handOut(n int) (g grant, starved bool, err error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.broken != nil {
		return grant{}, false, hs.broken
	}
	if hs.stop != nil {
		return grant{}, false, fmt.Errorf("membroker: receiving: %w", hs.stop)
	}
	if hs.lapsed = time.Since(hs.contact) >= hs.leaseFor; hs.lapsed { // as after SIGSTOP: first hear what is still ours
		return grant{}, true, nil
	}
	free, _, ok := hs.shared.gate.Room()
	if !ok {
		return grant{}, true, nil
	}
	for range hs.list {
		hs.turn = (hs.turn + 1) % len(hs.list)
		h := hs.list[hs.turn]
		if len(h.spans) == 0 || h.claim().shut || hs.pauses.Has(h.cur.log.topic) || h.isHeld(time.Now) || h.behindOlder() {
			continue
		}
		if sp, gen := h.take(min(n, free)); sp.n > 0 {
			return grant{sp: sp, gen: gen, cs: h.claim()}, false, nil
		}
	}
	return grant{}, false, nil
}

// fetch asks the broker for each holding that has nothing ready. lost: the answer does not get here. due is when to ask again
// although nobody says that there is something.
func (hs *holdings) fetch(p *place, lost error, figures *figures) (got bool, due time.Time, err error) {
	now := time.Now()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.b.faults.down {
		return false, due, errDown
	}
	if err := p.b.faults.fail(OpReceive); err != nil {
		return false, due, &refusal{err}
	}
	if hs.stop != nil {
		return false, due, nil
	}
	p.m.waiting = true
	for i := range hs.list {
		h := hs.list[(hs.turn+1+i)%len(hs.list)] // who is next to hand out asks first, or a small budget would starve the others
		if h.isHeld(func() time.Time { return now }) {
			due = earlier(due, h.heldUntil)
			continue
		}
		if len(h.spans) > 0 || h.claim().shut || hs.pauses.Has(h.cur.log.topic) || h.epoch != h.cur.log.epoch {
			continue
		}
		n, bytes, ok := hs.shared.gate.FetchRoom()
		if !ok {
			break
		}
		due = earlier(due, p.m.pull(h, n, bytes, now, lost))
		got = got || len(h.spans) > 0
	}
	if !got {
		figures.learn(p, hs.list, now)
	}
	return got, due, lost
}

// ack settles messages as handled.
func (hs *holdings) ack(cs *claimState, tokens []uint64) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var t kit.Tally
	hs.list.ack(cs, tokens, &t)
	cs.settled(&t)
	return t.Err()
}

// nack gives messages back. atMostOnce: nothing comes again.
func (hs *holdings) nack(cs *claimState, backs []broker.Back, atMostOnce bool) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var t kit.Tally
	lowest := int64(-1)
	for _, b := range backs {
		switch how, o := cs.settle(b.Token, back); {
		case how == settledBefore:
			t.Again++
		case how != settledNow || atMostOnce:
			t.Lost++
			if how == settledStale {
				hs.list.again(cs.h.log(), o)
			}
		default:
			t.Held++
			cs.giveBack(o, b)
			if lowest < 0 || o < lowest {
				lowest = o
			}
		}
	}
	if lowest >= 0 && !hs.shared.leased {
		cs.h.rewind(lowest)
		hs.shared.wake.Ring()
	}
	cs.settled(&t)
	return t.Err()
}

// lapsedOut says whether the lease of what is out has run out: the message's, or, of partitions, the process's.
func (hs *holdings) lapsedOut(cs *claimState, token uint64) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.shared.leased && cs.fenced {
		_, late := cs.orphans[token]
		return late
	}
	if !cs.isOut(token) {
		return false
	}
	o, _ := splitToken(token)
	return hs.shared.leased && cs.h.w.state(o) == expired || hs.shared.leaseLost || time.Since(hs.contact) >= hs.leaseFor
}

// begin makes a holding and its first claim, and says that it is assigned. Receive sees it when it is admitted, for by then
// that was told.
func (hs *holdings) begin(n notice) *claimState {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return newHolding(hs.shared, n).begin(n.gap)
}

// next makes the next claim of a holding whose log was bounced, beside the old one, which revokes. What was on its way to the
// broker meanwhile was refused by the old term, so it is sent again. Who has stopped begins no claim, and releases when the old
// one has ended: nil.
func (hs *holdings) next(h *holding, n notice) *claimState {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.term = n.term
	h.dirtied()
	if hs.stop != nil {
		return nil
	}
	return h.begin(nil)
}

// admit lets Receive hand out messages under a claim.
func (hs *holdings) admit(cs *claimState) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if cs.h.admit(cs); len(cs.h.claims) == 1 {
		hs.list = append(hs.list, cs.h)
	}
	hs.shared.wake.Ring()
}

// of returns the holding of the cursor, or nil.
func (hs *holdings) of(c *cursor) *holding {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.list.of(c)
}

// all returns all holdings.
func (hs *holdings) all() holdingList {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return append(holdingList(nil), hs.list...)
}

// shut begins the end of the holding's claim: Receive hands out nothing of it from here on. It returns the claim to revoke;
// nil: it revokes already.
func (hs *holdings) shut(h *holding, by time.Time) *claimState {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	cs := h.claim()
	if cs.shut {
		return nil
	}
	cs.shut, cs.by = true, by
	return cs
}

// over fences the revoked claims that have nothing out any more, or whose time is over, and returns their endings; next is when
// to look again. The older claims of a holding end first: else what is acked through an old one after the last one's end, and
// release, would never be committed.
func (hs *holdings) over(now time.Time) (ends []*ending, next time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range append(holdingList(nil), hs.list...) {
		for _, cs := range append([]*claimState(nil), h.claims...) {
			if !cs.shut {
				break
			}
			if cs.out > 0 && now.Before(cs.by) {
				next = earlier(next, cs.by)
				break
			}
			e := cs.finish()
			if e.last {
				hs.list = hs.list.without(h)
			}
			ends = append(ends, e)
		}
	}
	if len(ends) > 0 {
		hs.shared.wake.Ring()
	}
	return ends, next
}

// lose fences the claims of a holding that is somebody else's already, and returns them, and how many settles said nil and are
// not known to hold. gone: its log is, so they do not come again.
func (hs *holdings) lose(h *holding, gone bool) (over []*claimState, promised int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	over = h.fenceAll()
	h.forgetPrefetch()
	outs := h.takeOuts()
	hs.list = hs.list.without(h)
	if !gone || len(outs.list) > 0 { // what was made of the messages is not stored, wherever they are
		promised = h.promised
	}
	h.promised = 0
	hs.shared.wake.Ring()
	return over, promised
}

// close is Close's and Kill's: it fences all claims, lets go of all holdings, and returns the claims and what is still to be
// sent.
func (hs *holdings) close() (over []*claimState, bs []*batch) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.list {
		h.giveBackAll()
		over = append(over, h.fenceAll()...)
		bs = append(bs, h.collect())
	}
	hs.list = nil
	return over, bs
}

// rewind makes an offset of the holding, and what follows it, be looked at again.
func (hs *holdings) rewind(h *holding, o int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.rewind(o)
	hs.shared.wake.Ring()
}

// extends lists what this source has of the stream.
func (hs *holdings) extends() (os []int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.shared.leased {
		return nil
	}
	for _, h := range hs.list {
		os = h.extends(os)
	}
	return os
}

// silent says how long there was no contact at a time, where that is a whole lease or more: what is out may be somebody else's
// now.
func (hs *holdings) silent(now time.Time) time.Duration {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if d := now.Sub(hs.contact); d >= hs.leaseFor {
		return d
	}
	return 0
}

// lapses is when the silence will have lasted for a lease; zero: it has. The broker may have given all to others in that
// moment, so that no try to reach it may be waited for.
func (hs *holdings) lapses(now time.Time) time.Time {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if at := hs.contact.Add(hs.leaseFor); at.After(now) {
		return at
	}
	return time.Time{}
}

// expire is what a silence means on a leased stream.
func (hs *holdings) expire() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.shared.leaseLost {
		return
	}
	hs.shared.leaseLost = true
	for _, h := range hs.list {
		h.expire()
	}
}

// touched notes contact. What the broker had to say was followed by now, so Receive may go on.
func (hs *holdings) touched(at time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.shared.leaseLost, hs.contact = false, at
	if hs.lapsed {
		hs.shared.wake.Ring()
	}
}

// returnPrefetch gives back what Receive will not return any more.
func (hs *holdings) returnPrefetch() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.list {
		if (hs.stop != nil || hs.pauses.Has(h.cur.log.topic)) && !hs.shared.keepsOrder() {
			h.dropPrefetch()
		}
		if len(h.backs) > 0 {
			h.dirtied()
		}
	}
}

// collect takes what is to be sent.
func (hs *holdings) collect() (bs []*batch) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.shared.flushing = false
	for _, h := range hs.list {
		if h.dirty {
			bs = append(bs, h.collect())
		}
	}
	return bs
}

// sent takes note of what became of a batch. What failed is sent again after a while. What was fenced is not: the broker has
// more to say about it.
func (hs *holdings) sent(b *batch) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case b.err == nil, b.fenced() && hs.shared.leased:
		b.h.promised -= b.promised
		if bytes := b.h.outs.stored(b.outs); bytes > 0 {
			hs.shared.gate.Hold(0, -bytes)
			hs.shared.wake.Ring()
		}
	case b.fenced():
	default:
		b.h.acks = append(b.acks, b.h.acks...)
		b.h.backs = append(b.backs, b.h.backs...)
		b.h.overtaken()
		b.h.dirtiedFor(retryEvery)
	}
}

// learnLag takes the figures of an exchange of the loop's.
func (hs *holdings) learnLag(p *place, followed int, figures *figures, now time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.m.notices = p.m.notices[followed:]
	figures.learn(p, hs.list, now)
	figures.learnShare(p.m)
}
