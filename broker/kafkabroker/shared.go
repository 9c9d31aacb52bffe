package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// What the partitions of a source share: what each of them can use up, and who is told. It has no lock, and neither have the
// parts that decide by it: holdings have all of them under theirs.
type shared struct {
	// What each ack touches comes first.
	gate    kit.Gate
	backlog backlog

	stopped bool  // pull no more
	fatal   error // pull no more, and Receive says why
	ordered bool  // Options.Ordered
	pauses  kit.Pauses
	stale   kit.StaleInFlight[logKey]
	solo    solo
	emitted uint64 // acks with outputs so far

	waits bool // Receive found nothing to hand out when it last looked
	left  bool // a fetch has come, and what is to be fetched next is left to Receive

	cfg    *Config
	bells  *bells
	events *kit.EventQueue
}

// A logKey names a log: a topic that is made anew has another.
type logKey struct {
	partitionID
	log uint64
}

// fail ends pulling for good. The first reason stays.
func (x *shared) fail(err error) {
	if x.fatal == nil {
		x.fatal = err
	}
	signal(x.bells.wake)
}

// ready says whether a partition may be handed out from now, and tells where its window has become full.
func (x *shared) ready(p *part, now time.Time) bool {
	if p.stage != open || x.pauses.Has(p.topic) || now.Before(p.heldUntil) {
		return false
	}
	if !p.full() {
		return true
	}
	p.stalled = true
	switch {
	case p.cur == nil || p.busy:
	case x.gate.Scarce(): // others need the room, and nobody knows when the window opens
		p.drop()
		signal(x.bells.kick)
	default:
		p.cur.keep()
	}
	if !p.told && !p.tr.awaitsOutputs() {
		p.told = true
		x.events.Say(broker.Event{Kind: broker.Stalled, Claim: p.claim, From: p.tr.floor()})
	}
	return false
}

// bars says whether nothing of a partition is to be fetched, for nobody knows how long. It would take budget all that time.
func (x *shared) bars(p *part) bool { return x.pauses.Has(p.topic) || x.behindStale(p) }

// behindStale says whether an order wants that nothing is handed out before what is out under earlier claims was settled: it
// comes again, perhaps, and what comes after it would be ahead of it.
func (x *shared) behindStale(p *part) bool { return x.ordered && x.stale.Any(p.logKey()) }
