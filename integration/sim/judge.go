package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// judge looks for what must not be, when all processes have ended.
func (r *run) judge() {
	for _, p := range r.processes {
		p.judge()
	}
	r.hearNacks()
	r.judgeRepeats()
	r.judgeAttempts()
	r.judgeLeft()
	r.judgeOrder()
	r.judgeFloors()
	r.judgeOutputs()
}

// judgeGoodbyes: who has ended, and was in no trouble since it was told to, is no member any more: others need not wait for the
// end of its session.
func (r *run) judgeGoodbyes() {
	world, ok := r.world.(roster)
	if !ok {
		return
	}
	members := world.Members()
	for _, p := range r.processes {
		if p.hasEnded() && p.err == nil && !p.isDead() && slices.Contains(members, p.name) &&
			!r.book.troubledAt(p, -1, p.stopped, time.Now(), r.lease()) {
			r.book.find("%s has ended, and the broker counts it as a member", p.name)
		}
	}
}

// judge looks at what a process has told, and what it has left.
func (p *process) judge() {
	if !p.hasEnded() {
		return
	}
	b := p.run.book
	dead, stuck := p.isDead(), errors.Is(p.err, consumer.ErrStuck)
	if p.err != nil && !dead && !stuck && !b.troubledAt(p, -1, p.stopped, time.Now(), 0) {
		b.find("%s has ended with %v", p.name, p.err)
	}
	e := p.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != consumer.Stopped {
		b.find("%s has ended and its last state is %v", p.name, e.state)
	}
	if dead || stuck {
		return
	}
	for _, s := range p.spies {
		if n, open := s.left(); n > 0 || open > 0 {
			b.find("%s has ended and left %d messages that were not settled, and %d claims that have not ended", p.name, n, open)
		}
	}
	if has := p.c.Stats(); has.InFlight != 0 || has.Parked != 0 || has.Lanes != 0 || has.Waiting != 0 {
		b.find("%s has ended and has in flight %d, parked %d, lanes %d, waiting %d", p.name,
			has.InFlight, has.Parked, has.Lanes, has.Waiting)
	}
	if e.drained > 1 || e.drained == 0 && len(p.spies) > 0 && e.handled > 0 {
		b.find("%s has told %d times that it is drained", p.name, e.drained)
	}
	p.judgeCounts()
	if e.replaced == 0 {
		p.hooks.judge()
	}
}

// judgeCounts: each nil and each Skip is told once. Where a handler was given up its late result is void, or not, by a hair's
// breadth.
func (p *process) judgeCounts() {
	e, s := p.events, p.run.schedule.Settings
	if s.Batch > 0 && s.ByKey && s.Order != consumer.OrderNone {
		return // what of a batch is void, the engine knows alone
	}
	if s.Bridge && p.run.schedule.isMissing(outputTopic) {
		return // what has lost its claim and has nowhere to publish to is told to nobody
	}
	var nils, skips int64
	for _, run := range p.run.book.entries {
		switch {
		case run.process != p || run.outcome != ledger.Done:
		case run.act == Skip:
			skips++
		default:
			nils++
		}
	}
	skips += p.repeats.Load()
	void := int64(e.replaced * max(1, s.Batch))
	if e.handled > nils || e.handled < nils-void {
		p.run.book.find("%s: handlers returned nil %d times, and it told of %d", p.name, nils, e.handled)
	}
	if e.skipped > skips || e.skipped < skips-void {
		p.run.book.find("%s: handlers returned Skip %d times, and it told of %d", p.name, skips, e.skipped)
	}
}

// tries are the runs of a message that failed.
type tries struct {
	failed  int
	never   bool // one was Permanent
	attempt int  // the highest count of the broker's
	// first and last end of a failed run.
	first, last time.Time
}

// judgeAttempts: nothing is given up before its attempts are used up, or its time, unless it shall make room for others. Where
// the broker counts deliveries, three times as many are enough, whether a handler saw them or not; but one run has failed.
func (r *run) judgeAttempts() {
	schedule, s := r.schedule, r.schedule.Settings
	for n, t := range r.tries() {
		enough := t.failed >= s.Attempts || s.MakeRoom || r.kind.Shared && t.attempt >= 3*s.Attempts ||
			s.GiveUp > 0 && t.last.Sub(t.first)+r.longestWait() > time.Duration(s.GiveUp)
		if r.book.letters[n] > 0 && !t.never && !schedule.isOversize(n) && !r.book.crashed[n] && (t.failed == 0 || !enough) {
			r.book.find("m%d has a dead letter after %d failed runs, of %d", n, t.failed, s.Attempts)
		}
	}
}

// judgeBatch: a batch has its size at most, and goes over its bytes by one message at most.
func (p *process) judgeBatch(ms []*consumer.Message) {
	s, bytes := p.run.schedule.Settings, 0
	for i, m := range ms {
		if s.BatchBytes > 0 && i > 0 && bytes >= s.BatchBytes {
			p.run.book.find("%s: a batch of %d messages goes on behind %d bytes, and is complete at %d", p.name, len(ms), bytes,
				s.BatchBytes)
			return
		}
		bytes += len(m.Key) + len(m.Value)
	}
	if len(ms) > s.Batch {
		p.run.book.find("%s: a batch has %d messages, at most %d", p.name, len(ms), s.Batch)
	}
}

// judgeAlone: what its process has just given up did so in a batch of its own, or others may have been at fault. It needs b.mu.
func (b *book) judgeAlone(p *process, n int) {
	s := p.run.schedule.Settings
	var last *entry
	if p.isBehind() {
		return // it may have been called alone, and given that up, while the handler stood still and had not begun
	}
	for _, e := range b.entries {
		if e.message != n || e.process != p {
			continue
		}
		// It alone is meant, whoever else was there; or it was given up alone as stuck, and has returned since.
		if e.act == Never || e.ended.IsZero() || p.run.gaveUp(e) || s.GiveUp > 0 && (e.act == Later || e.act == Overload || e.nowhere) {
			return
		}
		if e.failed && !e.void {
			last = e
		}
	}
	if last != nil && last.batch != nil && last.batch.size > 1 && !s.MakeRoom {
		b.findHere("%s gives m%d up after run %d, which was in a batch of %d", p.name, n, last.nth, last.batch.size)
	}
}

// judgeSuspect: what its process has just given up, for others ended with it, was given to one that was in trouble, or that ended
// without it. It needs b.mu.
func (b *book) judgeSuspect(p *process, n int) {
	for x, times := range b.had {
		of := x.process
		ended := of.isDead() || of.hasEnded() && errors.Is(of.err, consumer.ErrStuck)
		if x.message == n && (ended || of.isBehind() || of.unheard() > 0 || b.troubledHere(of, times[0], time.Now())) {
			return
		}
	}
	if s := b.stored[n]; p.run.diedWith(s.topic, s.at) {
		return // it may have said already that the message is to run alone next
	}
	b.findHere("%s gives m%d up, as if it had killed a process, and no process was in trouble with it", p.name, n)
}

// diedWith says whether a process was killed after a time that had had some of a topic.
func (r *run) diedWith(topic string, since time.Time) bool {
	r.ownersMu.Lock()
	defer r.ownersMu.Unlock()
	return slices.ContainsFunc(r.had[topic], func(p *process) bool { return p.isDead() && !p.stopped.Before(since) })
}

// longestWait is the longest delay that is asked for: by a handler, or by who looks for a topic that is missing. Backoffs and the
// steps of retry topics are shorter.
func (r *run) longestWait() time.Duration {
	if r.schedule.Settings.Emits > 0 && r.schedule.isMissing(outputTopic) {
		return 10 * time.Second
	}
	return 600 * time.Millisecond
}

func (r *run) tries() map[int]*tries {
	all := map[int]*tries{}
	for n := range r.book.letters {
		all[n] = &tries{}
	}
	for _, e := range r.book.entries {
		t := all[e.message]
		if t == nil {
			continue
		}
		t.never = t.never || e.act == Never
		t.attempt = max(t.attempt, int(e.attempt))
		// A handler returns an error in the instant of its process's death; the engine may still have told the broker of it.
		if !e.failed && !e.stood && !r.gaveUp(e) && (e.outcome != ledger.Running || !e.process.isDead()) {
			continue
		}
		t.failed++
		at := e.ended
		if r.gaveUp(e) { // it returned later than that
			at = e.called.Add(time.Duration(r.schedule.Settings.Timeout))
		}
		last := e.ended
		if last.IsZero() { // it was killed
			at, last = e.began, e.process.stopped
		}
		if t.first.IsZero() || at.Before(t.first) {
			t.first = at
		}
		if last.After(t.last) {
			t.last = last
		}
	}
	return all
}

// lease is the schedule's.
func (r *run) lease() time.Duration { return time.Duration(r.schedule.Settings.Lease) }

// judgeFloors: what is committed never goes back, while the log is the same and the broker forgets nothing.
func (r *run) judgeFloors() {
	if r.schedule.has(Forget, Recreate) {
		return
	}
	for where, floors := range r.floors {
		for i := 1; i < len(floors); i++ {
			if floors[i] < floors[i-1] {
				r.book.find("the committed offset of %s went back: %v", where, floors)
				break
			}
		}
	}
}
