package kafkabroker

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// heard says whether a bell was rung, and stills it.
func heard(bell chan struct{}) bool {
	select {
	case <-bell:
		return true
	default:
		return false
	}
}

func (x *holder) finished(l *simLog, o int64) {
	if !l.acked[o] {
		x.t.Fatalf("offset %d is committed and was not acked", o)
	}
}

// check says what holds at each moment.
func (x *holder) check() {
	x.t.Helper()
	h := x.h
	if h.gate.Out() != len(x.outs) {
		x.t.Fatalf("%d messages are out, the budget has %d", len(x.outs), h.gate.Out())
	}
	want := int64(0)
	for _, f := range x.flights {
		want += int64(f.req.bytes)
	}
	for _, p := range h.roster.turns {
		want += p.curBytes
	}
	if _, held := h.gate.Held(); held != want {
		x.t.Fatalf("%d bytes are prefetched or on their way, the budget has %d", want, held)
	}
	if p := h.solo.marked; p != nil && p.mark == running && h.gate.Out() != 1 {
		x.t.Fatalf("%v: a message runs alone, and %d are out", p.partitionID, h.gate.Out())
	}
	x.places()
	x.listed()
	x.awake()
}

// listed says that each partition is in the lists in which whoever is woken looks for it.
func (x *holder) listed() {
	r := &x.h.roster
	n := len(r.draining)
	for _, ps := range r.idle {
		n += len(ps)
	}
	for _, p := range r.turns {
		stocked, idle := slices.Contains(r.stock, p), slices.Contains(r.idle[p.node()], p)
		switch waits := p.heldUntil.After(x.now) || p.retryAt.After(x.now); {
		case p.cur != nil && !stocked, idle != (p.cur == nil && !p.flying), waits && !slices.Contains(r.timed, p),
			(p.stage == draining) != slices.Contains(r.draining, p):
			x.t.Fatalf("%v is in the wrong lists: %+v, of %+v", p.partitionID, p.listing, r.lists)
		}
		if idle {
			n--
		}
		if p.stage == draining {
			n--
		}
	}
	if n != 0 || len(r.stock) > len(r.turns) || len(r.timed) > len(r.turns) {
		x.t.Fatalf("lists have what is not there: %+v", r.lists)
	}
}

// awake says that nobody sleeps over what is to be done: what may be fetched, and what is there to be handed out.
func (x *holder) awake() {
	h := x.h
	if h.stopped || h.fatal != nil || h.gate.Starved() {
		return
	}
	woken := len(h.bells.wake) > 0 || !x.asleep
	if h.left && !woken {
		x.t.Fatal("what is to be fetched is left to Receive, which sleeps")
	}
	due := len(h.bells.kick) > 0 || h.left || x.plans || !x.timer.IsZero() && !x.timer.After(x.now)
	alone := h.solo.marked != nil || slices.ContainsFunc(h.roster.turns, func(p *part) bool {
		return p.careful > 0 && p.cur != nil && h.ready(p, x.now)
	})
	for _, p := range h.roster.turns {
		node := p.node()
		mayFly := len(h.flights.to[node]) < flightsPerBroker && !(p.calm && h.flights.joins(node))
		if !due && mayFly && p.wants(x.now, h.bars(p)) == atOnce {
			x.t.Fatalf("%v is to be fetched, and nobody looks", p.partitionID)
		}
		unheld := due && !p.heldUntil.IsZero() // the loop is about to wake Receive
		if !woken && !unheld && !alone && p.careful == 0 && p.cur != nil && h.ready(p, x.now) && !h.behindStale(p) {
			x.t.Fatalf("%v has something to hand out, and Receive sleeps", p.partitionID)
		}
	}
}

// places says that each partition is in one place, and that nothing was forgotten of one that is in none.
func (x *holder) places() {
	r := &x.h.roster
	if len(r.turns) != len(r.parts) {
		x.t.Fatalf("%d parts have turns, %d are there", len(r.turns), len(r.parts))
	}
	places := make(map[*part]int)
	for id, p := range r.parts {
		places[p]++
		if r.beginning[id] != nil {
			x.t.Fatalf("%v is open and beginning", id)
		}
	}
	for _, p := range r.ending {
		places[p]++
	}
	for _, e := range r.toEnd {
		if !slices.Contains(r.ending, e.p) {
			places[e.p]++
		}
	}
	for p, n := range places {
		if n != 1 {
			x.t.Fatalf("%v is in %d places", p.partitionID, n)
		}
	}
	for p, c := range x.claims {
		switch {
		case places[p] > 0 || p.stage != concluded:
		case c.ended != 1:
			x.t.Fatalf("%v: Ended was told %d times", p.partitionID, c.ended)
		case !c.logGone && c.acks > c.confirmed+c.unconfirmed: // less it is where an answer comes after the partition was lost
			x.t.Fatalf("%v: %d acks said nil, %d are committed, %d were told as unconfirmed",
				p.partitionID, c.acks, c.confirmed, c.unconfirmed)
		}
	}
}

func (x *holder) handedOut(p *part, m broker.Message) {
	log := x.logs[p.partitionID]
	if log.id != p.id {
		log = newSimLog(topicID{}) // of a log that is gone
	}
	if log.out[m.Offset]++; log.out[m.Offset] > 1 {
		x.t.Fatalf("%v offset %d is handed out twice at once", p.partitionID, m.Offset)
	}
	if x.claims[p].acked[m.Offset] {
		x.t.Fatalf("%v offset %d was acked under this claim, and is handed out", p.partitionID, m.Offset)
	}
	x.outs = append(x.outs, simOut{p, log, m.Token, m.Offset})
	if p.mark == running {
		x.alone++
	}
}
