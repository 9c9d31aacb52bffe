package consumer

import (
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// retries chooses where a failed message waits for its next attempt: at the broker, in a retry topic, or parked here.
type retries struct {
	cfg     *Config
	tell    *teller
	till    *till
	parked  *parking
	letters *letters
	claims  *claims

	// delayedUntil is when the last of the messages that were given back with a delay may come again, by the clock.
	delayedUntil atomic.Int64
}

// wait has a failed message wait for d.delay.
func (r *retries) wait(x item, f Failed, d decision) {
	r.tell.count.retried.Add(1)
	// In an order it waits here: given back, it would let the next one pass. With an end in time, too: the broker would forget when
	// it began.
	t := &x.k.feed.traits
	if t.NativeDelay > 0 && d.delay <= t.NativeDelay && r.cfg.Retry.GiveUpAfter == 0 && !d.keep && x.lane == nil {
		raise(&r.delayedUntil, r.tell.clock.at(time.Now().Add(d.delay)))
		r.till.nack(x.k, []broker.Back{{Token: x.m.Token, Delay: d.delay, Runs: d.runs}}, nil)
		return
	}
	if r.publish(x, f) {
		return
	}
	if r.parked.hold(x, f) && r.crowded(x) { // it became so when nothing was parked yet
		r.clearHeads(x.k)
	}
}

// raise makes a at least v.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); old < v && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// publish sends a message that failed to a retry topic, where that is its place. It says whether it did.
func (r *retries) publish(x item, f Failed) bool {
	if r.cfg.Retry.Topics == nil {
		return false
	}
	pressure := r.pressure(x.k)
	step, ok := r.cfg.Retry.Topics.step(f.Delay, pressure)
	if ok && (pressure >= retryTopicFrom || !r.tooLate(x, f, step)) {
		r.letters.add(letter{item: x, failed: f, step: step, due: time.Now().Add(f.Delay)})
		return true
	}
	return false
}

// tooLate says whether a message would come from a topic, which may wait for longer than it, when it was to be given up already.
// Here it comes in time. One without a place for dead letters is not given up.
func (r *retries) tooLate(x item, f Failed, step RetryStep) bool {
	most := r.cfg.Retry.GiveUpAfter
	return most > 0 && !f.Exhausted && step.Delay > most-r.tell.clock.lasted(x.first)
}

// pressure is how much of the room for messages that wait here is in use: of its source's part of the budget, or of its window.
func (r *retries) pressure(k *claim) float64 {
	room := r.cfg.mainBudget()
	if k.feed.retries {
		room = r.cfg.retryBudget()
	}
	p := float64(k.feed.parked.Load()) / float64(room.Messages)
	if w, ok := k.feed.source.(broker.Windowed); ok {
		p = max(p, w.Window(k.Claim))
	}
	return p
}

// relieve sends what waits here to the retry topics where it fills a window: what was handled above it counts there, so that one
// message which waits can stop its partition long after it has failed. What could not be sent waits a backoff before it is tried
// again: what fills a window may be thousands, each with an event for each try.
func (r *retries) relieve() {
	if r.cfg.Retry.Topics == nil || r.parked.len() == 0 {
		return
	}
	for _, k := range r.claims.all() {
		if pressure := r.pressure(k); pressure >= retryTopicFrom {
			r.relieveClaim(k, pressure)
		}
	}
}

func (r *retries) relieveClaim(k *claim, pressure float64) {
	now := time.Now()
	steps := map[*Message]RetryStep{}
	for _, p := range r.parked.take(func(p parked) bool {
		if p.k != k || now.Before(p.publish) {
			return false
		}
		step, ok := r.cfg.Retry.Topics.step(p.due.Sub(now), pressure)
		steps[p.m] = step
		return ok
	}) {
		p.m.Attempt-- // it may come back here unpublished, again and again, and is counted each time
		r.letters.add(letter{item: p.item, failed: p.failed, step: steps[p.m], due: p.due})
	}
}

// crowded says whether too many wait in the lane of a message, so that it shall make room.
func (r *retries) crowded(x item) bool {
	return r.cfg.Lane.Full == LaneDeadLetter && len(x.lane) > 0 && x.k.lanes.crowded(x.lane[0])
}

// makeRoom dead-letters what fails in the crowded lanes of a claim, where the policy says so.
func (r *retries) makeRoom(k *claim) {
	if r.cfg.Lane.Full == LaneDeadLetter {
		r.clearHeads(k)
	}
}

// clearHeads dead-letters what waits for its next attempt at the head of a crowded lane.
func (r *retries) clearHeads(k *claim) {
	for _, p := range r.parked.take(func(p parked) bool { return p.k.lanes == k.lanes && r.crowded(p.item) }) {
		p.failed.Verdict = VerdictDeadLetter
		r.letters.add(letter{item: p.item, failed: p.failed})
	}
}
