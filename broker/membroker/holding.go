package membroker

import (
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A holding is what a source has of one log: a partition from its assignment on, or the stream. It outlives a claim where the
// next one begins while the old one is still revoking. Guarded by Source.mu, but for cur's fields.
type holding struct {
	s     *Source
	cur   *cursor
	term  int64
	epoch int
	claim *claimState // that messages are handed out under
	w     window
	spans []span // the prefetch
	held  int64  // its bytes
	heldN int

	// strays are offsets that are out here under claims that have ended. They are not handed out under the next one.
	strays strays

	heldUntil time.Time // Hold
	stalled   bool

	// Partitioned.
	pos   int64 // what to ask for next
	floor int64 // all below are done
	high  int64 // one above the highest that was handed out
	runs  map[int64]int32
	dirty bool
	// promised: settles that said nil and are not known to be committed.
	promised int64

	// Leased: what is still to be sent.
	acks  []int64
	backs []leasedBack
}

type leasedBack struct {
	offset int64
	delay  time.Duration
	runs   int32
}

// strays counts by offset what is out under ended claims of one log.
type strays map[int64]int

// logEpoch names a log between two recreations.
type logEpoch struct {
	cur   *cursor
	epoch int
}

// A claimState is the source's side of a claim; it is Claim.State. Guarded by Source.mu.
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

func (s *Source) newHolding(n notice) *holding {
	h := &holding{s: s, cur: n.cur, term: n.term, epoch: n.start.epoch, runs: n.start.runs}
	h.strays = s.straysOf(h)
	if s.b.stream == nil {
		h.pos, h.floor, h.high = n.start.committed, n.start.committed, n.start.committed
		h.w.lo, h.w.hi = h.floor, h.floor
		for _, o := range n.start.done {
			h.w.extend(h.floor, o+1)
			h.w.at(o).state = done
		}
		if h.runs == nil {
			h.runs = make(map[int64]int32)
		}
	}
	return h
}

// straysOf needs no s.mu: only the loop makes and ends claims. It takes it to find them.
func (s *Source) straysOf(h *holding) strays {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := logEpoch{h.cur, h.epoch}
	if s.strays == nil {
		s.strays = make(map[logEpoch]strays)
	}
	if s.strays[key] == nil {
		s.strays[key] = make(strays)
	}
	return s.strays[key]
}

// settleStray lets a message be handed out again that was out under an ended claim.
func (h *holding) settleStray(o int64) {
	if h.strays[o]--; h.strays[o] > 0 {
		return
	}
	delete(h.strays, o)
	if len(h.strays) == 0 {
		signal(h.s.wake) // for what stands behind them
	}
	for _, now := range h.s.holdings {
		if now.cur == h.cur && now.epoch == h.epoch && h.s.b.stream == nil {
			now.rewind(o)
			signal(h.s.wake)
		}
	}
}

// behindStrays says whether an order wants that nothing is handed out before what is out under earlier claims was settled.
func (h *holding) behindStrays() bool {
	if !h.s.o.Ordered || h.s.mutant.is(orderedIgnored) {
		return false
	}
	return len(h.strays) > 0 || slices.ContainsFunc(h.s.revoking, func(cs *claimState) bool { return cs.h == h && cs != h.claim && cs.out > 0 })
}

// begin makes the holding's next claim.
func (h *holding) begin() *claimState {
	no := uint8(1)
	if h.claim != nil {
		no = h.claim.no + 1
	}
	cs := &claimState{h: h, no: no}
	cs.claim, cs.keeper = broker.NewClaim(h.cur.log.topic, h.cur.log.partition, cs)
	h.claim = cs
	return cs
}

// ready says whether Receive may hand out something of it now.
func (h *holding) ready(now func() time.Time) bool {
	if h.claim.shut || h.s.pausedHolding(h) {
		return false
	}
	if !h.heldUntil.IsZero() {
		if now().Before(h.heldUntil) {
			return false
		}
		h.heldUntil = time.Time{}
	}
	return true
}

// dropPrefetch gives back what Receive has not returned. Partitioned: it is asked for again. Leased: the loop sends it back.
func (h *holding) dropPrefetch() {
	if len(h.spans) == 0 {
		return
	}
	if h.s.b.stream == nil {
		h.pos = min(h.pos, h.spans[0].from)
	} else {
		for _, sp := range h.spans {
			h.returnSpan(sp)
		}
	}
	h.forgetPrefetch()
}

// returnSpan queues the give-back of messages that nobody saw, unless they are also out or done here.
func (h *holding) returnSpan(sp span) {
	for o := sp.from; o < sp.from+sp.n; o++ {
		switch h.w.state(o) {
		case out, expired:
		case done:
			h.acks = append(h.acks, o)
		default:
			h.backs = append(h.backs, leasedBack{offset: o, runs: sp.runs})
		}
	}
	h.dirty = true
}

func (h *holding) forgetPrefetch() {
	h.s.held -= h.held
	h.s.heldN -= h.heldN
	h.spans, h.held, h.heldN = nil, 0, 0
}

// rewind makes the offset, and what follows it, be looked at again.
func (h *holding) rewind(o int64) {
	h.dropPrefetch()
	h.pos = min(h.pos, max(o, h.floor))
}

// handable says whether an offset may be handed out: not when it is out, nor when it is finished here.
func (h *holding) handable(o int64) bool {
	if len(h.strays) > 0 && h.strays[o] > 0 && !h.s.mutant.is(strayHandedOut) {
		return false
	}
	if o >= h.w.hi {
		return true
	}
	if o < h.w.lo {
		return h.s.b.stream != nil
	}
	st := h.w.at(o).state
	return st == unseen || st == back || h.s.mutant.is(redeliverOut) && st != done
}

// passOver deals with a redelivery that must not be handed out: what is finished is acked again, what is out has a new lease.
func (h *holding) passOver(o int64) {
	if h.s.b.stream == nil {
		return
	}
	sl := h.w.get(o)
	if sl == nil {
		return
	}
	switch sl.state {
	case done:
		h.acks = append(h.acks, o)
		h.s.dirtied(h)
	case expired:
		sl.state = out
	}
}

// take hands out up to n messages that follow each other, as part of the claim. What it returns is filled in without the lock.
func (h *holding) take(n int) (sp span, gen uint16) {
	for len(h.spans) > 0 {
		head := &h.spans[0]
		for head.n > 0 && !h.handable(head.from) {
			h.passOver(head.from)
			h.shift(head, 1, head.size(head.from))
		}
		if head.n == 0 {
			h.spans[0] = span{}
			h.spans = h.spans[1:]
			continue
		}
		sp = *head
		sp.n, sp.bytes, gen = h.mark(head, min(int64(n), head.n))
		h.shift(head, sp.n, sp.bytes)
		if r := h.runs[sp.from]; r > 0 {
			sp.runs, sp.attempt = r, r+1
		}
		return sp, gen
	}
	return span{}, 0
}

// mark sets the slots of the longest run from the span's start, at most n, that may go out as one.
func (h *holding) mark(sp *span, n int64) (marked, bytes int64, gen uint16) {
	first := sp.from
	if h.s.b.stream == nil {
		first = h.floor // what is passed over because it is a stray belongs to the window, too
	}
	h.w.extend(first, sp.from+n)
	if sl := h.w.get(sp.from); sl != nil {
		gen = sl.gen
	}
	if sp.from < h.w.lo { // forgotten, and delivered again: it gets no slot, and its settle is taken on trust
		h.w.reach(sp.from)
		gen = h.w.at(sp.from).gen
	}
	i := int64(0)
	for ; i < n; i++ {
		o := sp.from + i
		sl := h.w.at(o)
		if i > 0 && (sl.gen != gen || !h.handable(o) || len(h.runs) > 0 && (h.runs[o] > 0 || h.runs[sp.from] > 0)) {
			break
		}
		size := sp.size(o)
		sl.state, sl.claim, sl.size = out, h.claim.no, uint32(size)
		bytes += size
	}
	h.claim.out += int(i)
	h.s.outN += int(i)
	h.s.outBytes += bytes
	h.high = max(h.high, sp.from+i)
	return i, bytes, gen
}

// shift takes n messages off the front of a prefetched span.
func (h *holding) shift(sp *span, n, bytes int64) {
	sp.from, sp.n, sp.bytes = sp.from+n, sp.n-n, sp.bytes-bytes
	h.held -= bytes
	h.s.held -= bytes
	h.heldN -= int(n)
	h.s.heldN -= int(n)
}

// advance moves the floor over what is done. Leased: the window keeps what was finished last, to ack it again.
func (h *holding) advance() {
	if h.s.b.stream != nil {
		for h.w.hi-h.w.lo > remembered && h.w.at(h.w.lo).state != out && h.w.at(h.w.lo).state != expired {
			h.w.lo++
		}
		return
	}
	for h.floor < h.w.hi && h.w.at(h.floor).state == done {
		h.floor++
	}
	h.w.lo = h.floor
	if h.stalled && h.w.hi-h.floor < int64(h.s.cfg.Window) {
		h.stalled = false
		signal(h.s.wake)
	}
}

// finished lists what is done above the floor.
func (h *holding) finished() []int64 {
	var os []int64
	for o := h.floor; o < h.w.hi; o++ {
		if h.w.at(o).state == done {
			os = append(os, o)
		}
	}
	return os
}
