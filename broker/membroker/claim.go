package membroker

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A claimState is the source's side of a claim; it is Claim.State. It has no lock: it stands under that of the holdings.
type claimState struct {
	h      *holding
	keeper broker.Keeper
	claim  *broker.Claim
	no     uint8
	out    int // handed out and not settled
	shut   bool
	by     time.Time
	fenced bool
	// orphans were out when the claim was fenced: what they take of the budget, by token.
	orphans map[uint64]uint32
}

// fence makes settles say ErrLost from here on. What is out keeps its budget until it is settled.
func (cs *claimState) fence() {
	cs.fenced, cs.shut = true, true
	cs.orphans = make(map[uint64]uint32)
	w := &cs.h.w
	for o := w.lo; o < w.hi && cs.out > 0; o++ {
		sl := w.at(o)
		if sl.claim != cs.no || sl.state != out && sl.state != expired {
			continue
		}
		cs.orphans[token(o, sl.gen)] = sl.size
		cs.h.sh.stale.Add(cs.h.log(), o)
		sl.state = back
		sl.gen++
		cs.out--
	}
}

// end tells of the claim's end; it is called without a lock, when the claim is fenced.
func (cs *claimState) end(events *kit.EventQueue, cause error) {
	cs.keeper.End(cause)
	events.Say(broker.Event{Kind: broker.Ended, Claim: cs.claim, Err: cause})
}

func lostTo(cause error) error { return fmt.Errorf("membroker: %w: %w", cause, broker.ErrLost) }

// finish fences a revoked claim. Of the holding's last one it takes what is to be committed; what is out under another one
// comes under the next claim.
func (cs *claimState) finish() *ending {
	h := cs.h
	e := &ending{h: h, cs: cs, last: cs == h.claim()}
	cs.fence()
	switch {
	case e.last:
		h.forgetPrefetch()
		e.p, e.outs, e.promised = h.snapshot(), h.takeOuts(), h.promised
	default:
		h.forget(cs)
		h.rewind(h.floor)
	}
	return e
}

type settling int

const (
	settledBefore settling = iota
	settledNow
	settledLate  // its lease had run out
	settledLost  // its claim has ended
	settledStale // its claim has ended, and it is out no more: it may be handed out again
)

// settle moves a message from out to a state, and frees its budget.
func (cs *claimState) settle(t uint64, to uint8) (settling, int64) {
	h := cs.h
	o, _ := splitToken(t)
	if cs.fenced {
		return cs.settleOrphan(t, o), o
	}
	if !cs.isOut(t) {
		return settledBefore, o
	}
	sl := h.w.at(o)
	how := settledNow
	if sl.state == expired || h.sh.leaseLost {
		how = settledLate
	}
	sl.state = to
	if to == back {
		sl.gen++
	}
	if cs.out--; cs.out == 0 && cs != h.claim() {
		h.sh.wake.Ring() // for what stands behind it
	}
	h.sh.gate.Free(1, int64(sl.size))
	return how, o
}

// isOut says whether the message was handed out and is not settled, by the window.
func (cs *claimState) isOut(t uint64) bool {
	o, gen := splitToken(t)
	sl := cs.h.w.get(o)
	return sl != nil && sl.gen == gen && sl.claim == cs.no && (sl.state == out || sl.state == expired)
}

// settleOrphan settles what was out when the claim was fenced.
func (cs *claimState) settleOrphan(t uint64, o int64) settling {
	size, found := cs.orphans[t]
	if !found {
		return settledLost
	}
	delete(cs.orphans, t)
	sh := cs.h.sh
	sh.gate.Free(1, int64(size))
	free, last := sh.stale.Settle(cs.h.log(), o)
	if last {
		sh.wake.Ring() // for what stands behind them
	}
	if free {
		return settledStale
	}
	return settledLost
}

// giveBack notes what is to be sent, or kept, of a message that was given back.
func (cs *claimState) giveBack(o int64, b broker.Back) {
	h := cs.h
	if h.sh.leased {
		lb := leasedBack{offset: o, runs: b.Runs}
		if b.Delay > 0 {
			lb.due = time.Now().Add(b.Delay)
		}
		h.backs = append(h.backs, lb)
		return
	}
	if b.Runs > 0 {
		h.runs[o] = max(h.runs[o], b.Runs)
	}
}

// settled does what each settle ends with.
func (cs *claimState) settled(t *kit.Tally) {
	h := cs.h
	if t.Held > 0 {
		h.promised += int64(t.Held)
		h.advance()
	}
	if t.Held+t.Lost > 0 {
		h.dirtied()
	}
	if cs.shut && cs.out == 0 {
		h.sh.kick.Ring()
	}
	if wake, _ := h.sh.gate.Feed(); wake { // an eager gate is refilled by that alone
		h.sh.wake.Ring()
	}
}
