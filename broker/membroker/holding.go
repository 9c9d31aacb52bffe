package membroker

import (
	"errors"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// shared is what the holdings of a source have in common. It has no lock: it stands under that of the holdings.
type shared struct {
	leased   bool
	ordered  bool
	window   int64
	prefetch int
	commit   time.Duration

	gate  kit.Gate
	stale kit.StaleInFlight[logEpoch]
	// leaseLost: there was no contact for a lease, so what is out may be somebody else's.
	leaseLost bool

	events     *kit.EventQueue
	wake, kick kit.Bell    // Receive's, and the loop's
	flush      *time.Timer // tells the loop to send settles
	flushing   bool        // it runs
}

// hold counts what is prefetched. Where messages are leased they count by number, too: their leases run.
func (sh *shared) hold(n int, bytes int64) {
	if !sh.leased {
		n = 0
	}
	sh.gate.Hold(n, bytes)
}

// keepsOrder says whether something is out that the prefetch stands behind, and may not go back before.
func (sh *shared) keepsOrder() bool { return sh.ordered && sh.gate.Out() > 0 }

// unconfirmed says that settles which said nil do not hold, or perhaps do not.
func (sh *shared) unconfirmed(c *broker.Claim, n int64, cause error) {
	if n > 0 {
		sh.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: c, N: n, Err: cause})
	}
}

func (sh *shared) sayGap(c *broker.Claim, g *gap) {
	if g != nil {
		sh.events.Say(broker.Event{Kind: broker.Gap, Claim: c, From: g.from, N: g.n})
	}
}

// A holding is what a source has of one log: a partition from its assignment on, or the stream. It outlives a claim where the
// next one begins while the old one is still revoking. It has no lock: it stands under that of the holdings. cur's fields are
// guarded by Broker.mu.
type holding struct {
	sh    *shared
	cur   *cursor
	name  string // Message.Name
	term  int64
	epoch int
	// claims in the order in which they began; the last one is the one that messages are handed out under, and those before it
	// are revoking.
	claims []*claimState
	begun  uint8 // how many there were ever
	w      window
	spans  []span // the prefetch
	held   int64  // its bytes
	heldN  int

	// stale are offsets that are out here under claims that have ended. They are not handed out under the next one.
	stale kit.StaleOffsets

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
	outs     outputs

	// Leased: what is still to be sent.
	acks  []int64
	backs []leasedBack
}

// A leasedBack is a give-back that is to be sent. due is when its delay is over; zero: it has none.
type leasedBack struct {
	offset int64
	due    time.Time
	runs   int32
}

// logEpoch names a log between two recreations.
type logEpoch struct {
	cur   *cursor
	epoch int
}

func newHolding(sh *shared, n notice) *holding {
	h := &holding{sh: sh, cur: n.cur, term: n.term, epoch: n.start.epoch, runs: n.start.runs}
	h.name = n.cur.log.name(h.epoch)
	h.stale = sh.stale.Of(h.log())
	if sh.leased {
		return h
	}
	h.pos, h.floor, h.high = n.start.committed, n.start.committed, n.start.committed
	h.w.lo, h.w.hi = h.floor, h.floor
	for _, o := range n.start.done {
		h.w.extend(h.floor, o+1)
		h.w.at(o).state = done
	}
	if h.runs == nil {
		h.runs = make(map[int64]int32)
	}
	return h
}

func (h *holding) log() logEpoch { return logEpoch{h.cur, h.epoch} }

// claim is the one that messages are handed out under.
func (h *holding) claim() *claimState { return h.claims[len(h.claims)-1] }

// begin makes the holding's next claim, and says that it is assigned. It is admitted when that was told.
func (h *holding) begin(g *gap) *claimState {
	h.begun++
	cs := &claimState{h: h, no: h.begun}
	cs.claim, cs.keeper = broker.NewClaim(h.cur.log.topic, h.cur.log.partition, cs)
	h.sh.events.Say(broker.Event{Kind: broker.Assigned, Claim: cs.claim})
	h.sh.sayGap(cs.claim, g)
	h.dirty = h.dirty || g != nil // the position is behind it
	return cs
}

func (h *holding) admit(cs *claimState) { h.claims = append(h.claims, cs) }

// forget takes a claim that has ended from the holding, unless it is the last one.
func (h *holding) forget(cs *claimState) {
	for i, x := range h.claims[:len(h.claims)-1] {
		if x == cs {
			h.claims = append(h.claims[:i:i], h.claims[i+1:]...)
			return
		}
	}
}

// behindOlder says whether an order wants that nothing is handed out before what is out under earlier claims was settled.
func (h *holding) behindOlder() bool {
	if !h.sh.ordered {
		return false
	}
	for _, cs := range h.claims[:len(h.claims)-1] {
		if cs.out > 0 {
			return true
		}
	}
	return len(h.stale) > 0
}

// isHeld says whether nothing may be handed out of it until a later time (Hold).
func (h *holding) isHeld(now func() time.Time) bool {
	if h.heldUntil.IsZero() {
		return false
	}
	if now().Before(h.heldUntil) {
		return true
	}
	h.heldUntil = time.Time{}
	return false
}

// dirtied lets the loop send the holding's settles soon.
func (h *holding) dirtied() { h.dirtiedFor(h.sh.commit) }

func (h *holding) dirtiedFor(d time.Duration) {
	h.dirty = true
	if !h.sh.flushing {
		h.sh.flushing = true
		h.sh.flush.Reset(d)
	}
}

// dropPrefetch gives back what Receive has not returned. Partitioned: it is asked for again. Leased: the loop sends it back.
func (h *holding) dropPrefetch() {
	if len(h.spans) == 0 {
		return
	}
	if h.sh.leased {
		for _, sp := range h.spans {
			h.returnSpan(sp)
		}
	} else {
		h.pos = min(h.pos, h.spans[0].from)
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
		case back:
			if h.delayed(o) {
				continue
			}
			fallthrough
		default:
			h.backs = append(h.backs, leasedBack{offset: o, runs: sp.runs})
		}
	}
	h.dirty = true
}

func (h *holding) forgetPrefetch() {
	h.sh.hold(-h.heldN, -h.held)
	h.spans, h.held, h.heldN = nil, 0, 0
}

// rewind makes the offset, and what follows it, be looked at again.
func (h *holding) rewind(o int64) {
	h.dropPrefetch()
	h.pos = min(h.pos, max(o, h.floor))
}

// handable says whether an offset may be handed out: not when it is out, nor when it is finished here.
func (h *holding) handable(o int64) bool {
	if h.stale.Has(o) {
		return false
	}
	if o >= h.w.hi {
		return true
	}
	if o < h.w.lo {
		return h.sh.leased
	}
	return h.w.at(o).handable()
}

// delayed says whether the offset was given back with a delay that is not over. It came again before that was sent, which is to
// be sent still.
func (h *holding) delayed(o int64) bool {
	return slices.ContainsFunc(h.backs, func(b leasedBack) bool { return b.offset == o && time.Now().Before(b.due) })
}

// passOver deals with a redelivery that must not be handed out: what is finished is acked again, what is out has a new lease.
func (h *holding) passOver(o int64) {
	if !h.sh.leased {
		return
	}
	sl := h.w.get(o)
	if sl == nil {
		return
	}
	switch sl.state {
	case done:
		h.acks = append(h.acks, o)
		h.dirtied()
	case expired:
		sl.state = out
	}
}

// take hands out up to n messages that follow each other, as part of the claim. What it returns is filled in without the lock.
func (h *holding) take(n int) (sp span, gen uint16) {
	for len(h.spans) > 0 {
		head := &h.spans[0]
		for head.n > 0 && (!h.handable(head.from) || h.delayed(head.from)) {
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
	if !h.sh.leased {
		first = h.floor // what is passed over because it is out under an ended claim belongs to the window, too
	}
	h.w.extend(first, sp.from+n)
	if sl := h.w.get(sp.from); sl != nil {
		gen = sl.gen
	}
	if sp.from < h.w.lo { // forgotten, and delivered again: it gets no slot, and its settle is taken on trust
		h.w.reach(sp.from)
		gen = h.w.at(sp.from).gen
	}
	cs, i := h.claim(), int64(0)
	for ; i < n; i++ {
		o := sp.from + i
		sl := h.w.at(o)
		if i > 0 && (sl.gen != gen || !sl.handable() || h.delayed(o) || h.stale.Has(o) ||
			len(h.runs) > 0 && (h.runs[o] > 0 || h.runs[sp.from] > 0)) {
			break
		}
		size := sp.size(o)
		sl.state, sl.claim, sl.size = out, cs.no, uint32(size)
		bytes += size
	}
	h.overtaken()
	cs.out += int(i)
	h.sh.gate.HandOut(int(i), bytes)
	h.high = max(h.high, sp.from+i)
	return i, bytes, gen
}

// overtaken drops give-backs that were not sent before their message was delivered again and handed out: they would pull it from
// the handler that has it now.
func (h *holding) overtaken() {
	h.backs = slices.DeleteFunc(h.backs, func(b leasedBack) bool { return h.w.state(b.offset) == out })
}

// shift takes n messages off the front of a prefetched span.
func (h *holding) shift(sp *span, n, bytes int64) {
	sp.from, sp.n, sp.bytes = sp.from+n, sp.n-n, sp.bytes-bytes
	h.held -= bytes
	h.heldN -= int(n)
	h.sh.hold(-int(n), -bytes)
}

// enter takes what was leased as the prefetch.
func (h *holding) enter(spans []span) {
	h.spans = spans
	for i := range spans {
		h.count(&spans[i])
	}
}

// count counts a span that was prefetched.
func (h *holding) count(sp *span) {
	h.held += sp.bytes
	h.heldN += int(sp.n)
	h.sh.hold(int(sp.n), sp.bytes)
}

// read looks up messages of the partition. It runs at the broker.
func (h *holding) read(maxBytes int64) {
	l := h.cur.log
	h.pos = max(h.pos, h.floor) // what was to be looked at again may have been finished meanwhile
	if h.pos < l.first {
		h.jump(l.first)
	}
	room := h.floor + h.sh.window - h.pos
	if room <= 0 {
		if !h.stalled && h.pos < l.end {
			h.stalled = true
			h.sh.events.Say(broker.Event{Kind: broker.Stalled, Claim: h.claim().claim, From: h.floor})
		}
		return
	}
	sp, _ := l.read(h.pos, int(min(int64(h.sh.prefetch), room)), maxBytes)
	if sp.n == 0 {
		return
	}
	h.pos = sp.from + sp.n
	h.spans = append(h.spans[:0], sp)
	h.count(&h.spans[0])
}

// jump passes messages that the log does not have any more, and says how many nobody handled.
func (h *holding) jump(first int64) {
	from, missing := h.pos, int64(0)
	if h.w.lo == h.w.hi {
		missing = first - h.pos
		h.w.lo, h.w.hi, h.floor = first, first, first
	} else {
		h.w.extend(h.floor, first)
		for o := h.pos; o < first; o++ {
			if sl := h.w.get(o); sl != nil && (sl.state == unseen || sl.state == back) {
				missing++
				sl.state = done
			}
		}
	}
	h.pos = first
	h.advance()
	h.dirtied()
	if missing > 0 {
		h.sh.sayGap(h.claim().claim, &gap{from: from, n: missing})
	}
}

// advance moves the floor over what is done. Leased: the window keeps what was finished last, to ack it again.
func (h *holding) advance() {
	if h.sh.leased {
		for h.w.hi-h.w.lo > remembered && h.w.at(h.w.lo).state != out && h.w.at(h.w.lo).state != expired {
			h.w.lo++
		}
		return
	}
	for h.floor < h.w.hi && h.w.at(h.floor).state == done {
		h.floor++
	}
	h.w.lo = h.floor
	if h.stalled && h.w.hi-h.floor < h.sh.window {
		h.stalled = false
		h.sh.wake.Ring()
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

// snapshot is what to commit.
func (h *holding) snapshot() progress {
	p := progress{committed: h.floor, done: h.finished(), epoch: h.epoch}
	if len(h.runs) > 0 {
		p.runs = make(map[int64]int32, len(h.runs))
		for o, n := range h.runs {
			p.runs[o] = n
		}
	}
	return p
}

// extends appends what is to be extended of the stream: what is out, prefetched, or settled and not sent yet. Were the last not,
// the leases of give-backs would run out, and these pull the message from the next holder when they are sent.
func (h *holding) extends(os []int64) []int64 {
	for o := h.w.lo; o < h.w.hi; o++ {
		if h.w.at(o).state == out {
			os = append(os, o)
		}
	}
	for _, sp := range h.spans {
		for o := sp.from; o < sp.from+sp.n; o++ {
			os = append(os, o)
		}
	}
	os = append(os, h.acks...)
	for _, b := range h.backs {
		os = append(os, b.offset)
	}
	return os
}

var errLease = errors.New("membroker: lease has run out")

// expire marks what is out as perhaps somebody else's. Give-backs that were not sent must not be any more: they would pull the
// message from whoever has it now.
func (h *holding) expire() {
	h.forgetPrefetch()
	for o := h.w.lo; o < h.w.hi; o++ {
		if sl := h.w.at(o); sl.state == out {
			sl.state = expired
		}
	}
	h.sh.unconfirmed(h.claim().claim, int64(len(h.backs)+len(h.acks)), errLease)
	h.backs = nil
}

// giveBackAll gives back the prefetch and what is out and never was settled, where somebody must be told. What has lost its lease
// is not.
func (h *holding) giveBackAll() {
	if !h.sh.leased {
		return
	}
	h.dropPrefetch()
	for o := h.w.lo; o < h.w.hi && !h.sh.leaseLost; o++ {
		if h.w.at(o).state == out {
			h.backs = append(h.backs, leasedBack{offset: o})
		}
	}
}

// collect takes what is to be sent.
func (h *holding) collect() *batch {
	b := &batch{h: h, term: h.term, promised: h.promised}
	h.dirty = false
	if h.sh.leased {
		b.acks, b.backs = h.acks, h.backs
		h.acks, h.backs = nil, nil
		return b
	}
	b.p, b.outs = h.snapshot(), h.outs.all()
	return b
}

// fenceAll fences the claims of the holding, and returns them.
func (h *holding) fenceAll() []*claimState {
	for _, cs := range h.claims {
		cs.fence()
	}
	return h.claims
}
