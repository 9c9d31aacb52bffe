package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A part is a partition during one claim; it is Claim.State. All but the claim is under its holdings' lock.
type part struct {
	of *holdings // whose it is
	partitionID
	id     topicID
	tr     *tracker
	log    string // Message.Name
	claim  *broker.Claim
	keeper broker.Keeper
	stage  stage
	by     time.Time // when a revocation waits no longer
	prefetch
	listing
	commitMemory
	suspicion
	outs   outputs
	stay   stay
	lastBy time.Time // when its last commit waits for outputs no longer

	leader  int32
	replica int32     // to fetch from instead; -1: none
	named   time.Time // when the leader named it
	shuns   time.Time // until then no replica is to be fetched from: one did not give what it should have
	end     int64     // of the log, as far as it may be read; -1: unknown
	endAt   time.Time
	sought  bool // its leader is asked in which range its log is
	behind  hiding
	away    absence

	heldUntil time.Time
	keepAt    time.Time // held since then, what is prefetched is to lie in memory of its own; zero: not held
	stalled   bool      // its window was full, and is not yet empty enough
	told      bool      // that was told
}

// A stage is how far a claim is. It goes forward only.
type stage int

const (
	open      stage = iota
	draining        // revoked: nothing more is handed out
	fenced          // settles say ErrLost; its claim is still to be ended
	concluded       // its claim has ended, and its last commit may be put together
)

// newPart begins a claim where a look-up says. staleInFlight is what is still out of the log.
func newPart(of *holdings, b *start, leader int32) *part {
	p := &part{of: of, partitionID: b.partitionID, id: b.id, replica: -1, end: -1, leader: leader}
	p.log = b.id.partition(b.no)
	p.prefetch = prefetch{gate: &of.gate, part: p, lists: &of.roster.lists, pos: b.progress.base, scan: b.progress.base}
	p.commitMemory = b.memory()
	p.claim, p.keeper = broker.NewClaim(b.topic, b.no, p)
	p.tr = newTracker(b.progress, of.stale.Of(p.logKey()), of.cfg.Window)
	p.tr.exact = of.cfg.Transactional
	if p.top = b.progress.base; p.epoch >= 0 {
		p.top = max(p.top, p.tr.inherited)
	}
	return p
}

func (p *part) logKey() logKey { return logKey{p.partitionID, p.id.log()} }

func (p *part) logID() logID { return logID{p.partitionID, p.id} }

// node is where to fetch from; negative: nobody knows.
func (p *part) node() int32 {
	if p.replica >= 0 {
		return p.replica
	}
	return p.leader
}

// settled says whether nothing of it is out, or about to be.
func (p *part) settled() bool { return p.tr.outN == 0 && !p.busy }

// namedFor is for how long a replica is fetched from before the leader is asked for one again: that one may name another by then,
// or itself, for this one lags behind. KIP-392 has clients ask as often as they look at the topics by default.
const namedFor = 5 * time.Minute

// follow fetches from a replica that the leader names.
func (p *part) follow(replica int32, now time.Time) { p.replica, p.named = replica, now }

// askAgain has the leader asked for a replica again, when that is due.
func (p *part) askAgain(now time.Time) {
	if p.replica >= 0 && now.Sub(p.named) >= namedFor {
		p.replica = -1
	}
}

// shunned is for how long the leader alone is fetched from where a replica did not give what it should have.
const shunned = 30 * time.Second

// putOff lets nothing be fetched until then, and then of the leader. That one would name the same replica again, whatever is
// wrong there.
func (p *part) putOff(until time.Time) {
	if p.replica >= 0 {
		p.replica, p.shuns = -1, until.Add(shunned)
	}
	p.retry(until)
}

// hold lets nothing of it be handed out before a time. keeps: what is prefetched stays for then.
func (p *part) hold(until time.Time, keeps bool) {
	p.heldUntil = until
	p.lists.waits(p)
	if !keeps {
		p.drop()
	}
}

// heldLong is for how long a partition is held before what is prefetched of it is copied out of its answer. A lane is full for
// less, mostly.
const heldLong = 100 * time.Millisecond

// keepHeld has what is prefetched of it lie in memory of its own where it is held for long, and returns when to look for that;
// zero: never.
func (p *part) keepHeld(now time.Time) (next time.Time) {
	switch {
	case p.cur == nil || p.cur.own || p.busy || !p.heldUntil.After(now):
		p.keepAt = time.Time{}
	case p.keepAt.IsZero():
		p.keepAt = now.Add(heldLong)
	case !p.keepAt.After(now):
		p.cur.keep()
		p.keepAt = time.Time{}
	}
	return p.keepAt
}

// moveTo takes a new leader.
func (p *part) moveTo(leader int32) {
	if p.leader != leader {
		p.leader, p.replica, p.sought = leader, -1, false
		p.retryAt = time.Time{}
		p.lists.rests(p)
	}
}

// jump goes on at an offset, for there is nothing more to read from another up to there. It returns how many messages nobody
// handled.
func (p *part) jump(from, to int64) (gone int64) {
	gone = p.tr.jump(from, to)
	p.prefetch.jump(to)
	p.forgetEpoch()
	return gone
}

// forgetEpoch says that it is not known who wrote the last batch that was looked at, or that it is of no use.
func (p *part) forgetEpoch() { p.epoch, p.top = -1, p.scan }

// passedEpoch is what a commit has of it: that of all that the commit knows of, or none.
func (p *part) passedEpoch() int32 {
	if p.top < max(p.tr.inherited, p.tr.passed) {
		return -1
	}
	return p.epoch
}

// rewritten says whether batches at the position are of a later leader than all that was looked at, which reached further. A
// broker sees that only where the log was cut off below the position.
func (p *part) rewritten(raw []byte) bool {
	return p.epoch >= 0 && p.pos < p.top && hasLater(raw, p.top, p.epoch)
}

// lacking says that nothing is prefetched of it and nothing comes for now: its broker is away, or has no more.
func (p *part) lacking(now time.Time) bool {
	return p.cur == nil && (p.calm || p.node() < 0 || now.Before(p.retryAt))
}

// full says whether its window lets nothing more in. What was given back must come, however full it is.
func (p *part) full() bool { return p.scan >= p.tr.passed && p.tr.window() >= 1 }

// thaw says, once, that a stalled part may go on: its window is no longer nearly full.
func (p *part) thaw() bool {
	if !p.stalled || p.tr.window() >= thawPart {
		return false
	}
	p.stalled, p.told = false, false
	return true
}

// lag is the partition's, by the last answer of its broker.
func (p *part) lag() broker.Lag {
	if p.end < 0 {
		return broker.UnknownLag()
	}
	waiting, open := p.tr.waiting(p.end)
	return broker.Lag{Waiting: waiting, Unsettled: waiting + open, At: p.endAt}
}
