package kafkabroker

import (
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

var errForeign = fmt.Errorf("kafkabroker: settling: %w", broker.ErrForeign)

// Settles take settles: each frees the budget, whatever its claim has become.
type settles struct {
	*shared
	r *roster
}

// An outcome is what became of the settles of one call.
type outcome struct{ lost, twice bool }

func (x *settles) ack(p *part, tokens []uint64) error {
	var o outcome
	before := p.tr.acked
	for _, t := range tokens {
		how, size := p.tr.ack(t)
		x.settled(p, t, how, size, &o)
		if how == settledNow && p.mark == running {
			x.solo.cleared(p, true)
		}
	}
	x.count(p.tr.acked - before)
	return x.done(p, o)
}

// count adds finished messages, and wakes the committer when they are enough for a commit of their own.
func (x *settles) count(n int64) {
	enough := int64(x.cfg.CommitMessages)
	if x.backlog.finished < enough && x.backlog.finished+n >= enough {
		signal(x.bells.flush)
	}
	x.backlog.finished += n
}

func (x *settles) nack(p *part, backs []broker.Back) error {
	var o outcome
	lowest := int64(-1)
	for _, b := range backs {
		how, size := p.tr.giveBack(b.Token, b.Runs)
		x.settled(p, b.Token, how, size, &o)
		if how == settledNow && p.mark == running {
			x.solo.cleared(p, false)
		}
		if at, _ := splitToken(b.Token); how == settledNow && (lowest < 0 || at < lowest) {
			lowest = at
		}
	}
	if lowest >= 0 {
		p.rewind(lowest)
		signal(x.bells.kick)
		x.solo.away()
	}
	return x.done(p, o)
}

func (x *settles) settled(p *part, tok uint64, how settling, size uint32, o *outcome) {
	switch how {
	case settledNow:
		x.gate.Free(1, int64(size))
	case settledLate:
		o.lost = true
		x.gate.Free(1, int64(size))
		at, _ := splitToken(tok)
		x.settleStale(p, at)
	case settledLost:
		o.lost = true
	case settledBefore:
		o.twice = true
	}
}

// settleStale lets a message be handed out again that was out under an ended claim.
func (x *settles) settleStale(p *part, o int64) {
	free, last := x.stale.Settle(p.logKey(), o)
	if !free {
		return
	}
	if last {
		x.stale.Forget(p.logKey()) // a claim of it that is open adds nothing before it ends itself
		x.bells.look()             // for what stands behind them
	}
	if now := x.r.parts[p.partitionID]; now != nil && now.id == p.id && now.tr.settleStale(o) {
		now.rewind(o)
		signal(x.bells.kick)
		x.solo.away()
	}
}

// done is what each settle ends with.
func (x *settles) done(p *part, o outcome) error {
	wake, soon := x.gate.Feed()
	if wake {
		signal(x.bells.wake)
	}
	if wake || soon {
		signal(x.bells.kick)
	}
	if x.gate.Out() == 0 && x.solo.wary > 0 {
		signal(x.bells.wake)
	}
	if p.stage != open && p.tr.outN == 0 {
		signal(x.bells.kick)
	}
	if p.thaw() {
		x.bells.look()
	}
	switch {
	case o.lost:
		return broker.ErrLost
	case o.twice:
		return broker.ErrSettled
	}
	return nil
}
