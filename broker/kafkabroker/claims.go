package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// changed is told by the membership. What is lost is fenced at once, so that nothing of it can be committed under a later
// generation.
func (s *Source) changed(c change) {
	s.mu.Lock()
	if c.kind == lost {
		for _, id := range c.parts {
			s.cancel(id, false)
			if p := s.parts[id]; p != nil {
				p.fence()
				s.gone = append(s.gone, goner{p, c.err})
				s.keepBook(p)
			}
			s.abandon(id, c.err)
			for i := range s.changes { // told before, and not looked at yet
				s.changes[i].parts = slices.DeleteFunc(s.changes[i].parts, func(x partitionID) bool { return x == id })
			}
		}
		signal(s.flush)
	} else {
		s.changes = append(s.changes, c)
	}
	s.mu.Unlock()
	signal(s.kick)
	signal(s.wake)
}

// A goner is a part that is fenced and whose claim is still to be ended.
type goner struct {
	p   *part
	err error
}

// abandon gives up the last commits of a partition that is not ours any more; it needs s.mu.
func (s *Source) abandon(id partitionID, err error) {
	rest := s.ending[:0]
	for _, p := range s.ending {
		if p.partitionID == id {
			s.keepBook(p)
			s.unconfirmed(p, err)
			continue
		}
		rest = append(rest, p)
	}
	s.ending = rest
}

// unconfirmed says how many acks no commit has; it needs s.mu.
func (s *Source) unconfirmed(p *part, err error) {
	if n := p.tr.promised(); n > 0 {
		p.tr.confirmed = p.tr.acked
		s.say(broker.Event{Kind: broker.Unconfirmed, Claim: p.claim, N: n, Err: err})
	}
}

// loop lets claims begin and end. It alone calls Observe.
func (s *Source) loop() {
	defer close(s.loopDone)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := s.step(time.Now())
		next = sooner(next, s.events.Tell())
		wait := time.Hour
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-s.kick:
		case <-s.events.Ready():
		case <-timer.C:
		case <-s.loopEnd:
			return
		}
	}
}

// step does what is due, and returns when to look again.
func (s *Source) step(now time.Time) (next time.Time) {
	s.buryGone()
	for s.nextChange(now) {
	}
	s.mu.Lock()
	begun := s.begun
	s.begun = nil
	s.mu.Unlock()
	for _, b := range begun {
		s.open(b)
	}
	next = s.finishRevoked(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	wake, refill := s.gate.Refill(now)
	if wake {
		signal(s.wake)
	}
	next = sooner(next, refill)
	for _, p := range s.parts {
		for _, at := range [...]time.Time{p.heldUntil, p.retryAt} {
			if at.After(now) {
				next = sooner(next, at)
			}
		}
		if p.cur != nil && !p.heldUntil.IsZero() && !p.heldUntil.After(now) {
			signal(s.wake)
		}
	}
	s.schedule()
	return next
}

// sooner is the earlier time of two, of which either may be zero for never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// buryGone ends the claims of what was lost.
func (s *Source) buryGone() {
	s.mu.Lock()
	gone := s.gone
	s.gone = nil
	s.mu.Unlock()
	for _, g := range gone {
		g.p.keeper.End(g.err)
		s.mu.Lock()
		s.unconfirmed(g.p, g.err)
		s.say(broker.Event{Kind: broker.Ended, Claim: g.p.claim, Err: g.err})
		s.mu.Unlock()
	}
}

// nextChange follows the next change of one partition, and says whether there was one. It takes it out and follows it under one
// lock: between the two the partition could be lost, and a claim would begin that is not ours.
func (s *Source) nextChange(now time.Time) bool {
	s.mu.Lock()
	for len(s.changes) > 0 && len(s.changes[0].parts) == 0 {
		s.changes = s.changes[1:]
	}
	if len(s.changes) == 0 {
		s.changes = nil
		s.mu.Unlock()
		return false
	}
	c := &s.changes[0]
	id := c.parts[0]
	c.parts = c.parts[1:]
	if c.kind == assigned {
		s.begin(id, nil)
		s.mu.Unlock()
		return true
	}
	p, release := s.revoke(id, now)
	s.mu.Unlock()
	if p != nil {
		p.keeper.Revoke(p.by)
		signal(s.wake)
	}
	if release {
		s.m.release([]partitionID{id})
	}
	return true
}

// revoke begins a claim's end, which the caller announces, or stops one from beginning, which the caller releases then. It needs
// s.mu.
func (s *Source) revoke(id partitionID, now time.Time) (p *part, release bool) {
	p = s.parts[id]
	switch {
	case p == nil:
		return nil, s.cancel(id, true)
	case p.shut:
		return nil, false
	}
	p.shut, p.by = true, now.Add(s.cfg.RevokeWait)
	p.drop()
	return p, false
}

// cancel stops what is beginning. It says whether the caller has to release it: nobody else will. It needs s.mu.
func (s *Source) cancel(id partitionID, revoked bool) (release bool) {
	b := s.beginning[id]
	if b != nil {
		b.cancel()
		delete(s.beginning, id)
		return true
	}
	for _, p := range s.ending {
		if p.partitionID == id {
			return false // it is released after its last commit
		}
	}
	return revoked
}

// finishRevoked ends the claims that have nothing out any more, or whose time is over. It returns when to look again.
func (s *Source) finishRevoked(now time.Time) (next time.Time) {
	over, next := s.fenceRevoked(now)
	for _, p := range over {
		s.conclude(p, fmt.Errorf("kafkabroker: %s/%d was revoked: %w", p.topic, p.no, broker.ErrLost))
		signal(s.flush)
	}
	return next
}

func (s *Source) fenceRevoked(now time.Time) (over []*part, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		switch {
		case !p.shut:
		case p.tr.outN == 0 && !p.busy || !now.Before(p.by):
			over = append(over, p)
		case next.IsZero() || p.by.Before(next):
			next = p.by
		}
	}
	s.fenceAll(over)
	return over, next
}

// fenceAll begins the end of claims: no settle counts any more. It needs s.mu.
func (s *Source) fenceAll(over []*part) {
	for _, p := range over {
		p.fence()
		s.ending = append(s.ending, p)
	}
}

// conclude ends a claim that is fenced. Its last commit may be made now, where it was not lost meanwhile.
func (s *Source) conclude(p *part, err error) {
	p.keeper.End(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(broker.Event{Kind: broker.Ended, Claim: p.claim, Err: err})
	p.over = true
}

// A start is a partition on its way from its assignment to its claim.
type start struct {
	partitionID
	ctx    context.Context
	cancel context.CancelFunc
	// reset says why what is committed is of no use, when that is known.
	reset error

	// What came of it.
	id       topicID
	at       position // what is committed
	progress progress
	book     *book // what the progress was taken from, where it was none that is committed
	gap      error // why messages may be missing before position
	warning  error
}

// begin looks up where a partition begins, in a goroutine of its own; open takes it from there. It needs s.mu.
func (s *Source) begin(id partitionID, reset error) {
	if s.stopped || s.beginning[id] != nil || s.parts[id] != nil {
		return
	}
	b := &start{partitionID: id, reset: reset}
	b.ctx, b.cancel = context.WithCancel(s.life)
	s.beginning[id] = b
	s.work.Go(func() {
		defer b.cancel()
		for {
			err := s.lookUp(b)
			if b.ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
			s.note(time.Time{}, err)
			signal(s.find)
			pause(b.ctx, retryWait)
		}
		s.mu.Lock()
		s.begun = append(s.begun, b)
		s.mu.Unlock()
		signal(s.kick)
	})
}

// lookUp reads what is committed, and finds out where to begin where that is of no use. A position that was found so is committed
// at once: else what comes before the first commit would be skipped after a crash (start latest).
func (s *Source) lookUp(b *start) error {
	s.mu.Lock()
	t, known := s.layout[b.topic]
	s.mu.Unlock()
	if !known || t.err != nil || int(b.no) >= len(t.leaders) || t.leaders[b.no] < 0 {
		return fmt.Errorf("%s/%d: %w", b.topic, b.no, kafka.LeaderNotAvailable)
	}
	b.id = t.id
	at, err := s.k.positions(b.ctx, []partitionID{b.partitionID})
	if err == nil {
		err = at[b.partitionID].err
	}
	if err != nil {
		return err
	}
	pos := at[b.partitionID]
	b.at, b.book = pos, nil
	b.progress = progress{base: pos.offset, log: b.id.log()}
	if pos.offset >= 0 {
		b.progress, b.warning = decodeMetadata(pos.offset, pos.metadata)
	}
	switch was := b.progress.log; {
	case b.reset == nil && pos.offset >= 0 && was != 0 && b.id.log() != 0 && was != b.id.log():
		b.reset = errRecreated
	case b.reset == nil && pos.offset >= 0:
		b.progress.log = b.id.log()
		if k := s.bookOf(b, pos); k != nil {
			return s.goOn(b, k, t.leaders[b.no])
		}
		return nil
	}
	return s.reset(b, t.leaders[b.no])
}

var errRecreated = errors.New("the topic was deleted and made again")

// reset finds the first offset by policy, and commits it.
func (s *Source) reset(b *start, leader int32) error {
	at := s.cfg.resetTime(b.reset)
	offset, err := s.c.listOffset(b.ctx, leader, b.partitionID, at, s.isolation())
	if err == nil && offset < 0 { // nothing is as late as that
		offset, err = s.c.listOffset(b.ctx, leader, b.partitionID, timeEnd, s.isolation())
	}
	if err != nil {
		return err
	}
	b.progress = progress{base: offset, log: b.id.log()}
	b.gap = b.reset
	c := &commitment{partitionID: b.partitionID, offset: offset, metadata: b.progress.encode(metadataLimit)}
	if err := s.k.commit(b.ctx, s.m.seat(b.partitionID), []*commitment{c}); err != nil {
		return err
	}
	b.at = position{offset: c.offset, metadata: c.metadata}
	return c.err
}

func (s *Source) isolation() int8 {
	if s.cfg.Uncommitted {
		return 0
	}
	return 1
}

// killer is how many processes must have died above the same offset for a warning.
const killer = 3

// open makes the claim and lets Receive see it.
func (s *Source) open(b *start) {
	s.mu.Lock()
	if s.beginning[b.partitionID] != b || b.ctx.Err() != nil && s.life.Err() != nil || s.stopped {
		s.mu.Unlock()
		return
	}
	p := &part{s: s, partitionID: b.partitionID, id: b.id, replica: -1, end: -1, leader: -1}
	p.claim, p.keeper = broker.NewClaim(b.topic, b.no, p)
	p.tr = newTracker(b.progress, s.stale.Of(p.logKey()), s.cfg.Window)
	p.takeUp(b)
	s.inspect(p, b.progress)
	p.pos, p.scan = b.progress.base, b.progress.base
	if t := s.layout[b.topic]; int(b.no) < len(t.leaders) {
		p.leader = t.leaders[b.no]
	}
	s.say(broker.Event{Kind: broker.Assigned, Claim: p.claim})
	if b.gap != nil {
		s.say(broker.Event{Kind: broker.Gap, Claim: p.claim, From: p.pos, N: -1, Err: b.gap})
	}
	if b.warning != nil {
		s.say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: fmt.Errorf("%s/%d at offset %d: %w: finished messages above it come again", b.topic, b.no, p.pos, b.warning)})
	}
	if n := b.progress.starts; n >= killer {
		s.say(broker.Event{Kind: broker.Warning, Claim: p.claim, Err: fmt.Errorf("%s/%d: %d processes in a row ended without a goodbye while offset %d was unfinished; a message may be killing them", b.topic, b.no, n, p.pos)})
	}
	s.mu.Unlock()
	s.events.Tell() // Assigned comes before anything is handed out
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beginning[b.partitionID] != b { // lost meanwhile
		p.shut = true
		p.tr.fence()
		p.unsuspect()
		s.keepBook(p)
		s.gone = append(s.gone, goner{p, broker.ErrLost})
		signal(s.kick)
		return
	}
	delete(s.beginning, b.partitionID)
	s.parts[b.partitionID] = p
	s.turns = append(s.turns, p)
	s.hurry = true // that we have begun is what tells the next process that we died
	signal(s.flush)
}

// restart ends a claim whose log is not what it was, and begins the partition anew; it needs s.mu.
func (s *Source) restart(p *part, why error) {
	p.fence()
	err := fmt.Errorf("kafkabroker: %w: %w", why, broker.ErrLost)
	p.tr.confirmed = p.tr.acked // what was acked is gone with its log
	s.gone = append(s.gone, goner{p, err})
	s.begin(p.partitionID, why)
	signal(s.kick)
}
