package kafkabroker

import (
	"cmp"
	"slices"

	"github.com/longshoremq/longshore/broker/kit"
)

// What a tracker knows of an offset.
const (
	out     uint8 = iota // handed out and not settled
	done                 // handled, or gone from the log
	back                 // given back, to be fetched again
	stale                // out under a claim that has ended; to be fetched again when it is settled
	kept                 // handled, and what was made of it is in no transaction yet
	sending              // the same, and it is in the one that is under way
)

// An entry is one message that was met and is not below the floor.
type entry struct {
	offset int64
	size   uint32
	// gen tells the times apart that an offset was handed out, so that a settle of the last time is not taken for one of this time.
	gen   uint16
	state uint8
}

// A tracker knows what became of the messages of a partition during one claim. It is a state machine without clock, lock or I/O.
//
// The messages of a log are met in its order by offer, and pass says how far the log was looked through. Offsets that were passed
// and not offered have no message (compaction, transaction markers) and count as finished. What is committed is floor: the lowest
// unfinished offset, or where all is finished how far the log was passed. Both the floor and what is finished above it come from
// one snapshot.
//
// The idea of tracking only what was received, with finished offsets in the commit's metadata, is parallel-consumer's.
type tracker struct {
	// What each ack touches is within 128 bytes.
	list      []entry // sorted; the first one is unfinished
	runs      map[int64]int32
	outN      int
	openN     int   // entries that are not done
	acked     int64 // all acks
	version   int64 // rises with each change that a commit would show
	unmetered int   // changes since the metadata was measured last
	keptN     int64 // entries that are kept
	fenced    bool
	exact     bool  // the metadata has to have room for all that is finished: see mapped
	passed    int64 // all below was looked through once

	log    uint64
	first  int     // see progress
	mem    []entry // empty; where the list's memory begins
	before []span  // finished by former owners, not passed yet
	stale  kit.StaleOffsets
	// orphans are what was out when the tracker was fenced: its size by token.
	orphans map[uint64]uint32

	suspect *suspect // what is run alone
	wary    bool     // messages are run alone: that some of them are finished does not say that none kills

	begun, starts int64 // the floor at the beginning, and progress.starts there
	confirmed     int64 // acks that a commit has
	committed     int64 // the version that is committed

	inherited int64 // what former owners knew is below it

	most    int // how many entries the window may have
	encoded int // length of the metadata when it was measured last
}

// newTracker begins at what is committed. staleInFlight are the offsets that are out under ended claims of the same log; the map
// stays the caller's.
func newTracker(p progress, staleInFlight kit.StaleOffsets, most int) *tracker {
	t := &tracker{
		log: p.log, first: p.first, passed: p.base, before: slices.Clone(p.done), runs: make(map[int64]int32), stale: staleInFlight,
		begun: p.base, starts: int64(p.starts), most: most, version: 1,
	}
	if n := len(p.done); n > 0 {
		t.inherited = p.done[n-1].to
	}
	for _, r := range p.runs {
		t.runs[r.offset] = r.runs
		t.inherited = max(t.inherited, r.offset+1)
	}
	t.trim()
	return t
}

const offsetBits = 48

func token(o int64, gen uint16) uint64 { return uint64(gen)<<offsetBits | uint64(o) }

func splitToken(t uint64) (o int64, gen uint16) { return int64(t & maxOffset), uint16(t >> offsetBits) }

// find returns where an offset is in the list, or belongs. Where the log is dense it is found at the first look.
func (t *tracker) find(o int64) (int, bool) {
	n := len(t.list)
	if n == 0 || o > t.list[n-1].offset {
		return n, false
	}
	if i := o - t.list[0].offset; i >= 0 && i < int64(n) && t.list[i].offset == o {
		return int(i), true
	}
	return slices.BinarySearchFunc(t.list, o, func(e entry, o int64) int { return cmp.Compare(e.offset, o) })
}

// offer says whether the message at an offset is to be handed out now, and marks it so. It is not when it is out already,
// finished, or still out under a claim that has ended.
func (t *tracker) offer(o int64, size uint32) (tok uint64, ok bool) {
	if o < t.floor() {
		return 0, false
	}
	i, found := t.find(o)
	if !found {
		t.grow()
		if e := t.meet(o, size); i == len(t.list) {
			t.list = append(t.list, e)
		} else {
			t.list = slices.Insert(t.list, i, e)
		}
		t.passed = max(t.passed, o+1)
		t.changed()
		if t.list[i].state != done {
			t.openN++
		}
		if t.list[i].state != out {
			t.advance()
			return 0, false
		}
		t.outN++
		return token(o, 0), true
	}
	e := &t.list[i]
	if e.state != back {
		return 0, false
	}
	e.state, e.size = out, size
	t.outN++
	return token(o, e.gen), true
}

// wants says whether offer would hand a message out.
func (t *tracker) wants(o int64) bool {
	if o < t.floor() {
		return false
	}
	if i, found := t.find(o); found {
		return t.list[i].state == back
	}
	return t.meet(o, 0).state == out
}

// suspects notes what is run alone, or that nothing is.
func (t *tracker) suspects(x *suspect) {
	t.suspect = x
	t.changed()
}

// grow makes room for one more entry. What was dropped at the front is used again.
func (t *tracker) grow() {
	switch n := len(t.list); {
	case n < cap(t.list):
	case n < cap(t.mem)/2:
		t.list = append(t.mem, t.list...) // to the front; the two may overlap, and copy knows that
	default:
		t.mem = make([]entry, 0, max(64, 2*n))
		t.list = append(t.mem, t.list...)
	}
}

func (t *tracker) meet(o int64, size uint32) entry {
	switch {
	case len(t.before) > 0 && within(t.before, o):
		return entry{offset: o, state: done}
	case t.stale.Has(o):
		return entry{offset: o, state: stale}
	}
	return entry{offset: o, size: size, state: out}
}

// pass says that the log was looked through from an offset up to another: what was given back there and did not come again is not
// in the log any more. It returns how many these are.
func (t *tracker) pass(from, to int64) (gone int64) {
	return t.skip(from, to, func(s uint8) bool { return s == back })
}

// jump says that the offsets from, from+1, …, to-1 can never be read again. It returns how many of them nobody has handled,
// taking it that each offset that was never passed had a message. What is below them may be read again: of that, what is out
// under an ended claim stays unfinished.
func (t *tracker) jump(from, to int64) (gone int64) {
	o := max(from, t.passed)
	for _, s := range t.before {
		if s.from >= to {
			break
		}
		gone += max(0, s.from-o)
		o = max(o, s.to)
	}
	gone += max(0, to-o)
	return gone + t.skip(from, to, func(s uint8) bool { return s == back || s == stale })
}

// cut is what is left of its progress where the log was cut off at an offset, and how many that are finished were at or above
// it. What is on its way into a transaction is not finished: nobody knows what becomes of that.
func (t *tracker) cut(at int64) (left progress, gone int64) {
	left = t.snapshot(true).progress
	left.base, left.done = min(at, t.floor()), nil
	left.runs = slices.DeleteFunc(left.runs, func(r failedRuns) bool { return r.offset >= at })
	gone = max(0, t.floor()-at)
	for _, s := range t.finished(0, false) {
		if s.from < at {
			left.done = append(left.done, span{s.from, min(s.to, at)})
		}
		gone += max(0, s.to-max(s.from, at))
	}
	return left, gone
}

func (t *tracker) skip(from, to int64, isGone func(uint8) bool) (gone int64) {
	i, _ := t.find(from)
	for ; i < len(t.list) && t.list[i].offset < to; i++ {
		if isGone(t.list[i].state) {
			t.list[i].state = done
			t.openN--
			gone++
		}
	}
	if to > t.passed || gone > 0 {
		t.passed = max(t.passed, to)
		t.changed()
		t.advance()
	}
	t.trim()
	return gone
}

// trim forgets what former owners finished below passed: it is in the list now.
func (t *tracker) trim() {
	for len(t.before) > 0 && t.before[0].to <= t.passed {
		t.before = t.before[1:]
	}
	if len(t.before) > 0 && t.before[0].from < t.passed {
		t.before[0].from = t.passed
	}
}

// A settling says what a settle came to.
type settling int

const (
	settledNow    settling = iota
	settledBefore          // nothing changed
	settledLate            // it was out when the tracker was fenced, and is settled now
	settledLost            // the tracker is fenced, and it is not out any more, or never was: nothing changed
)

// ack settles a message as handled. size is what it takes of the budget, and is 0 when nothing changed.
func (t *tracker) ack(tok uint64) (how settling, size uint32) {
	e, how, size := t.settle(tok)
	if e == nil {
		return how, size
	}
	e.state = done
	t.openN--
	t.acked++
	if len(t.runs) > 0 {
		delete(t.runs, e.offset)
	}
	t.changed()
	if e.offset == t.list[0].offset {
		t.advance()
	}
	return how, size
}

// giveBack settles a message as not handled; runs are remembered.
func (t *tracker) giveBack(tok uint64, runs int32) (how settling, size uint32) {
	e, how, size := t.settle(tok)
	if e == nil {
		return how, size
	}
	e.state = back
	e.gen++
	if runs > t.runs[e.offset] {
		t.runs[e.offset] = runs
		t.changed()
	}
	return how, size
}

func (t *tracker) settle(tok uint64) (e *entry, how settling, size uint32) {
	if t.fenced {
		size, late := t.orphans[tok]
		if !late {
			return nil, settledLost, 0
		}
		delete(t.orphans, tok)
		return nil, settledLate, size
	}
	i, isOut := t.out(tok)
	if !isOut {
		return nil, settledBefore, 0
	}
	t.outN--
	return &t.list[i], settledNow, t.list[i].size
}

// isOut says whether a message is handed out and not settled.
func (t *tracker) isOut(tok uint64) bool {
	if t.fenced {
		_, late := t.orphans[tok]
		return late
	}
	_, is := t.out(tok)
	return is
}

// out finds what is out in the list.
func (t *tracker) out(tok uint64) (i int, is bool) {
	o, gen := splitToken(tok)
	i, found := t.find(o)
	return i, found && t.list[i].gen == gen && t.list[i].state == out
}

// settleStale says that a message which was out under an ended claim is settled; it can be handed out now. again: it has to be
// fetched again.
func (t *tracker) settleStale(o int64) (again bool) {
	if i, found := t.find(o); found && t.list[i].state == stale {
		t.list[i].state = back
		return true
	}
	return false
}

// fence ends it: each settle says lost from here on. It returns the offsets that are out; what they take of the budget stays
// taken until they are settled.
func (t *tracker) fence() (outs []int64) {
	if t.fenced {
		return nil
	}
	t.fenced = true
	t.orphans = make(map[uint64]uint32, t.outN)
	for i := range t.list {
		if e := &t.list[i]; e.state == out {
			t.orphans[token(e.offset, e.gen)] = e.size
			outs = append(outs, e.offset)
			e.state = stale
		}
	}
	t.outN = 0
	return outs
}

func (t *tracker) changed() {
	t.version++
	t.unmetered++
}

// advance drops finished entries at the front.
func (t *tracker) advance() {
	n := 0
	for n < len(t.list) && t.list[n].state == done {
		n++
	}
	if n > 0 {
		t.list = t.list[n:]
	}
}

// floor is the lowest unfinished offset: what to commit.
func (t *tracker) floor() int64 {
	if len(t.list) > 0 {
		return t.list[0].offset
	}
	return t.passed
}

// awaitsOutputs says whether the lowest unfinished message is handled, and waits for its transaction alone.
func (t *tracker) awaitsOutputs() bool {
	return len(t.list) > 0 && (t.list[0].state == kept || t.list[0].state == sending)
}

// A snapshot is what to commit, and what will be known once it is.
type snapshot struct {
	progress
	version, acked int64
}

// snapshot takes offset and map together. clean: the owner ends well, so what it leaves unfinished has not killed it.
func (t *tracker) snapshot(clean bool) snapshot {
	s := snapshot{version: t.version, acked: t.acked - t.keptN}
	s.progress = progress{base: t.base(), log: t.log, first: t.first, starts: 1}
	if s.base == t.begun || t.wary {
		s.starts = int(t.starts) + 1
	}
	if clean {
		s.starts--
	} else if t.suspect != nil && t.suspect.offset >= s.base {
		s.suspect = t.suspect
	}
	s.done = t.finished(s.base, true)
	for o, n := range t.runs {
		if o >= s.base {
			s.runs = append(s.runs, failedRuns{o, n})
		} else {
			delete(t.runs, o)
		}
	}
	slices.SortFunc(s.runs, func(a, b failedRuns) int { return cmp.Compare(a.offset, b.offset) })
	return s
}

// finished lists the finished offsets from base on, with what is on its way into a transaction or without it. Offsets without a
// message join what is finished before them.
func (t *tracker) finished(base int64, onTheirWay bool) (spans []span) {
	for i, e := range t.list {
		if e.state != done && !(onTheirWay && e.state == sending) || e.offset < base {
			continue
		}
		to := t.passed
		if i+1 < len(t.list) {
			to = t.list[i+1].offset
		}
		spans = appendSpan(spans, span{e.offset, to})
	}
	for _, s := range t.before {
		spans = appendSpan(spans, s)
	}
	return spans
}

// dirty says whether a commit would tell anything new.
func (t *tracker) dirty() bool { return t.version != t.committed }

// commit says that a snapshot was committed.
func (t *tracker) commit(s snapshot) {
	t.committed = max(t.committed, s.version)
	t.confirmed = max(t.confirmed, s.acked)
}

// uncommit forgets that anything was committed, so that it is dirty.
func (t *tracker) uncommit() { t.committed = 0 }

// unconfirmed is how many acks no commit is known to have.
func (t *tracker) unconfirmed() int64 { return t.acked - t.confirmed }

// intakeLimit is the part of the commit's metadata that may be in use while messages are taken in.
const intakeLimit = 0.75

// thawPart is how full the window may be at most for intake to go on that has stopped.
const thawPart = 0.9

// waiting is how many messages up to the log's end were never met, and open how many were and are not finished. Offsets without a
// message that were not passed yet count as messages.
func (t *tracker) waiting(end int64) (waiting, open int64) {
	waiting = max(0, end-t.passed)
	for _, s := range t.before {
		waiting -= max(0, min(s.to, end)-max(s.from, t.passed))
	}
	return max(0, waiting), int64(t.openN)
}

// room is how many messages may be looked at from an offset on until the window is full; at least 1.
func (t *tracker) room(from int64) int {
	return int(max(1, int64(t.most-len(t.list))+max(0, t.passed-from)))
}

// window says how full the window of unfinished offsets is: 1 is where intake stops.
func (t *tracker) window() float64 {
	if t.unmetered > t.unmeteredMost() {
		t.unmetered = 0
		t.encoded = t.measure()
	}
	entries, metadata := float64(len(t.list))/float64(t.most), float64(t.encoded)/(intakeLimit*metadataLimit)
	if t.exact && t.mapped() >= 1 {
		metadata = max(metadata, 1)
	}
	if t.passed < t.inherited && (t.openN == 0 || t.encoded < metadataLimit) {
		metadata = min(metadata, inheritedMost)
	}
	return max(entries, metadata)
}

// inheritedMost is how full the window is at most while that is taken in of which former owners knew something. It is in the
// metadata already, which has room for it, and stays there until the floor has passed it: were nothing let in, nothing would be
// out that brings the floor on.
const inheritedMost = 0.8

// unmeteredMost is how many changes may go by before the metadata is measured again. Where it has no room, intake waits for it to
// become shorter, which it does as what is open is finished: the last few of that must be seen, for nothing comes behind them.
func (t *tracker) unmeteredMost() int {
	most := max(256, len(t.list)/8)
	if t.passed >= t.inherited && t.openN < most && float64(t.encoded) >= thawPart*intakeLimit*metadataLimit {
		return t.openN / 8
	}
	return most
}

// measure says how long the metadata would be. While even a bit for each offset takes little of the room, it says how long that
// is: to put the metadata together takes a look at each entry.
func (t *tracker) measure() int {
	top := t.passed
	if n := len(t.before); n > 0 {
		top = max(top, t.before[n-1].to)
	}
	if most := mostEncoded(top-t.floor(), len(t.runs)); most <= metadataLimit/4 {
		return most
	}
	return len(t.snapshot(false).encode(2 * metadataLimit))
}
