package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A part is a partition during one claim; it is Claim.State. All but the claim is guarded by Source.mu.
type part struct {
	s *Source
	partitionID
	id     topicID
	tr     *tracker
	claim  *broker.Claim
	keeper broker.Keeper

	shut bool // revoking
	over bool // its claim has ended, and its last commit may be put together
	by   time.Time
	bare bool // the broker refused our metadata: commit without

	// pos is what to fetch next; scan is how far the tracker has looked. They differ by what is prefetched.
	pos, scan int64
	cur       *decoder // the prefetch
	curBytes  int64
	busy      bool // Receive decodes from cur
	// version tells what was fetched or decoded before a rewind from what came after it.
	version int
	flying  bool // a fetch is under way
	retryAt time.Time
	idle    int   // answers in a row that came at once and brought nothing
	suspect int64 // the offset at which decoding failed once

	careful int // so many more messages are run alone
	mark    marking
	killer  int64 // what ran alone when another process ended; -1: nothing
	crashes int32

	known []position // see book
	epoch int32      // of the last batch that was decoded; -1: of none

	leader  int32
	replica int32 // to fetch from instead; -1: none
	end     int64 // of the log, as far as it may be read; -1: unknown
	endAt   time.Time

	heldUntil time.Time
	stalled   bool
}

// drop lets the prefetch go; it is fetched again.
func (p *part) drop() {
	p.version++
	p.s.gate.Hold(0, -p.curBytes)
	p.cur, p.curBytes = nil, 0
	p.pos = p.scan
}

// rewind makes an offset, and what follows it, be looked at again. What is prefetched begins above it, since it was met before.
func (p *part) rewind(o int64) {
	p.drop()
	p.scan = min(p.scan, o)
	p.pos = p.scan
}

// jump goes on at an offset, and returns how many messages nobody handled.
func (p *part) jump(to int64) (gone int64) {
	gone = p.tr.jump(p.scan, to)
	p.drop()
	p.scan, p.pos = to, to
	return gone
}

const (
	// idleAllowed is how many answers may come at once and bring nothing before the next fetch waits: one that names a replica does.
	idleAllowed = 3
	// idleMost is the longest wait.
	idleMost = time.Second
)

// fruitless is told of an answer that came at once and brought nothing to go on from. A broker that has nothing waits before it
// says so; one that does not wait is asked less and less often.
func (p *part) fruitless(now time.Time) {
	p.idle++
	if p.idle <= idleAllowed {
		return
	}
	if at := now.Add(min(idleMost, retryWait<<min(p.idle-idleAllowed, 10))); at.After(p.retryAt) {
		p.retryAt = at
	}
}

// ready says whether it may be handed out from now.
func (p *part) ready(now time.Time) bool {
	if p.shut || p.s.pauses.Has(p.topic) || now.Before(p.heldUntil) {
		return false
	}
	if p.scan < p.tr.passed { // what was given back must come, however full the window is
		return true
	}
	full := p.tr.window() >= 1
	if full && !p.stalled {
		p.stalled = true
		p.s.say(broker.Event{Kind: broker.Stalled, Claim: p.claim, From: p.tr.floor()})
	}
	return !full
}

// thaw lets a stalled part go on when its window is no longer nearly full.
func (p *part) thaw() {
	if p.stalled && p.tr.window() < 0.9 {
		p.stalled = false
		signal(p.s.wake)
		signal(p.s.kick)
	}
}

// fence makes settles say ErrLost from here on, and remembers what is out.
func (p *part) fence() {
	p.shut = true
	for _, o := range p.tr.fence() {
		p.s.stale.Add(p.logKey(), o)
	}
	p.drop()
	p.unsuspect()
	delete(p.s.parts, p.partitionID)
	for i, x := range p.s.turns {
		if x == p {
			p.s.turns = append(p.s.turns[:i:i], p.s.turns[i+1:]...)
			break
		}
	}
}

// behindStale says whether an order wants that nothing is handed out before what is out under earlier claims was settled: it
// comes again, perhaps, and what comes after it would be ahead of it.
func (p *part) behindStale() bool { return p.s.o.Ordered && p.s.stale.Any(p.logKey()) }

func (p *part) logKey() logKey { return logKey{p.partitionID, p.id.log()} }

// settleStale lets a message be handed out again that was out under an ended claim.
func (p *part) settleStale(o int64) {
	free, last := p.s.stale.Settle(p.logKey(), o)
	if !free {
		return
	}
	if last {
		signal(p.s.wake) // for what stands behind them
	}
	if now := p.s.parts[p.partitionID]; now != nil && now.id == p.id && now.tr.settleStale(o) {
		now.rewind(o)
		signal(p.s.kick)
	}
}
