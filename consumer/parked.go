package consumer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// parked is a message that waits here for its next attempt, because the broker cannot keep the delay, or because its handler
// deferred it. It stays claimed and in the budget, copied, so that it pins no fetch buffer.
type parked struct {
	item
	failed Failed // why it waits; without a Message: it was deferred
	due    time.Time
	woken  bool // it was deferred until something wakes it, as a limit does
}

// deferred says whether it did not fail, but was deferred.
func (p *parked) deferred() bool { return p.failed.Message == nil }

// rest gives it back with the rest of its delay; where it has a lane with none, or those behind it would come first.
func (p *parked) rest(now time.Time) broker.Back {
	b := broker.Back{Token: p.m.Token, Runs: p.m.Runs}
	if len(p.lane) == 0 || p.lane[0] == 0 {
		b.Delay = max(0, p.due.Sub(now))
	}
	return b
}

// A parking has what is parked, until it is due or its claim is over.
type parking struct {
	till *till
	tell *teller
	due  *schedule[parked]

	deferred atomic.Int64 // of what is held
	limited  atomic.Int64 // of these
}

func newParking(tell *teller, t *till) *parking {
	return &parking{tell: tell, till: t, due: newSchedule[parked]()}
}

// run queues what is due, until ctx ends.
func (p *parking) run(ctx context.Context) { p.due.run(ctx, p.leave) }

// leave queues a message whose delay has passed, unless another process may have it by now: this one stood still, or was cut off,
// for longer than the lease. Else all that waited here, for its backoff or a limit, would be handled here too, one by one.
func (p *parking) leave(x parked) {
	p.left(x)
	if x.k.feed.lapsed(x.k.Claim, x.m.Token) {
		p.till.giveBackLapsed(x.k, []broker.Message{*x.m}, x.lane)
		return
	}
	p.till.again(x.k, []broker.Message{*x.m}, x.lane, x.past)
}

// left counts what is held no more.
func (p *parking) left(x parked) {
	x.k.feed.parked.Add(-1)
	if x.deferred() {
		p.deferred.Add(-1)
	}
	if x.woken {
		p.limited.Add(-1)
	}
}

// hold holds a copy of a message that failed until its delay has passed. It says whether it does: where nothing of the claim may
// start any more, it gives the message back.
func (p *parking) hold(x item, f Failed) bool {
	one := parked{item: x.keep(), failed: f, due: time.Now().Add(f.Delay)}
	one.failed.Message = one.m
	one.m.Runs = f.Runs
	one.m.Attempt++
	x.k.feed.parked.Add(1) // before it can leave
	held := x.k.whileOpen(func() { p.due.add(one.due, one) })
	if !held {
		x.k.feed.parked.Add(-1)
		p.till.nack(x.k, []broker.Back{one.rest(time.Now())}, x.lane)
	} else if f.Delay > scanEvery {
		x.k.detain(x.lane)
	}
	return held
}

// putOff holds a copy of a message that its handler deferred.
func (p *parking) putOff(x item, e *deferError) {
	one := parked{item: x.keep(), due: time.Now().Add(e.wait), woken: e.until != nil}
	var held *due[parked]
	p.deferred.Add(1) // before it can leave
	if one.woken {
		p.limited.Add(1)
	}
	x.k.feed.parked.Add(1)
	if !x.k.whileOpen(func() { held = p.due.add(one.due, one) }) {
		p.left(one)
		p.till.giveBack(x.k, x.back(x.m.Runs), x.lane, x.k.why())
		return
	}
	if e != withOthers {
		p.tell.count.deferred.Add(1)
	}
	if e.wait > scanEvery {
		x.k.detain(x.lane)
	}
	if e.until == nil {
		return
	}
	p.tell.count.limited.Add(1)
	wake := func() bool { // which may be kept for long, and keeps no message
		one, waits := p.due.remove(held)
		if waits {
			p.leave(one)
		}
		return waits
	}
	p.tell.survive("Defer", func() { e.until(wake) })
}

// take takes out what failed, did not only ask to wait, and matches.
func (p *parking) take(match func(parked) bool) []parked {
	all := p.due.take(func(x parked) bool { return !x.deferred() && match(x) })
	for _, x := range all {
		p.left(x)
	}
	return all
}

// takeOf takes out all of a claim.
func (p *parking) takeOf(k *claim) []parked {
	all := p.due.take(func(x parked) bool { return x.k == k })
	for _, x := range all {
		p.left(x)
	}
	return all
}

// len is how many are parked.
func (p *parking) len() int { return p.due.len() }

// putOffs is how many of these are deferred.
func (p *parking) putOffs() int { return int(p.deferred.Load()) }

// atLimit is how many of these wait for something to wake them.
func (p *parking) atLimit() int { return int(p.limited.Load()) }

// each calls do with each of their messages, under the lock.
func (p *parking) each(do func(*Message)) { p.due.each(func(x parked) { do(x.m) }) }
