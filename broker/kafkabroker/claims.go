package kafkabroker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// Claims decide how claims begin and end.
type claims struct {
	*shared
	r     *roster
	books *books
}

// changed takes what the membership tells. What is lost is fenced at once, so that nothing of it can be committed under a later
// generation.
func (x *claims) changed(c change) {
	if c.kind != lost {
		x.r.told(c)
		return
	}
	for _, id := range c.parts {
		x.lose(id, c.err)
	}
	signal(x.bells.flush)
}

func (x *claims) lose(id partitionID, err error) {
	if errors.Is(err, errRecreated) {
		x.r.renew(id, err)
	}
	x.r.cancel(id)
	x.r.forget(id)
	if p := x.r.parts[id]; p != nil {
		x.fence(p)
		x.r.lose(p, err)
		x.remember(p, err)
	}
	for _, p := range x.r.takeEnding(func(p *part) bool { return p.partitionID == id }) { // not ours to commit any more
		x.remember(p, err)
		x.unconfirmed(p, err)
	}
}

// remember keeps what is finished of a part that was lost, in case it comes back. What is of a log that is gone does not.
func (x *claims) remember(p *part, why error) {
	if errors.Is(why, errRecreated) {
		p.tr.buried()
		return
	}
	x.books.keep(p)
}

// fence makes settles of a part say ErrLost from here on, and remembers what is out.
func (x *claims) fence(p *part) {
	for _, o := range p.tr.fence() {
		x.stale.Add(p.logKey(), o)
	}
	x.stale.Forget(p.logKey())
	p.drop()
	x.solo.forget(p)
}

// unconfirmed says how many acks no commit has.
func (x *claims) unconfirmed(p *part, err error) {
	x.gate.Hold(0, -p.outs.drop())
	if n := p.tr.unconfirmed(); n > 0 {
		p.tr.confirmed = p.tr.acked
		x.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: p.claim, N: n, Err: err})
	}
}

// A todo is what the loop has to do about what the membership told.
type todo struct {
	revoke  []*part       // to announce
	release []partitionID // to give to the group: nothing of them began
	lookUp  []*start
	open    []*start
}

// follow takes what was told since. It takes a change out and follows it in one step: between the two the partition could be
// lost, and a claim would begin that is not ours.
func (x *claims) follow(now time.Time) (t todo) {
	for _, c := range x.r.changes {
		for _, id := range c.parts {
			if c.kind == assigned {
				x.begin(id, nil)
			} else {
				x.revoke(id, now, &t)
			}
		}
	}
	t.lookUp, t.open = x.r.asked, x.r.found
	x.r.changes, x.r.asked, x.r.found = nil, nil, nil
	return t
}

func (x *claims) begin(id partitionID, reset error) {
	if !x.stopped {
		x.r.begin(id, reset)
	}
}

// revoke lets nothing more of a partition be handed out, or stops it from beginning.
func (x *claims) revoke(id partitionID, now time.Time, t *todo) {
	p := x.r.parts[id]
	switch {
	case p == nil:
		if x.r.cancel(id) || !x.r.ends(id) { // nobody else releases it
			t.release = append(t.release, id)
		}
	case p.stage == open:
		x.r.drain(p, now.Add(x.cfg.RevokeWait))
		t.revoke = append(t.revoke, p)
		// It may be because its topic was made anew, and then the new one may be another member's by now. A commit of the old one
		// would set that back, and who does not know names the topic by what both have in common.
		signal(x.bells.find)
	}
}

// introduce makes the claim and says so; nil: it is not wanted any more. Nothing of it is handed out before admit.
func (x *claims) introduce(of *holdings, b *start, leader int32) *part {
	if !x.r.begins(b) || x.stopped {
		if b.gap != nil { // where it begins is committed, so that whoever has it next meets no gap
			err := fmt.Errorf("%s/%d is to begin at offset %d: %w", b.topic, b.no, b.progress.base, b.gap)
			x.events.Say(broker.Event{Kind: broker.Gap, From: b.progress.base, N: -1, Err: err})
		}
		return nil
	}
	p := newPart(of, b, leader)
	x.books.end(p.partitionID)
	x.solo.inspect(p, b.progress, x.gate.Budget().Messages)
	say := func(e broker.Event) { e.Claim = p.claim; x.events.Say(e) }
	say(broker.Event{Kind: broker.Assigned})
	if b.gap != nil {
		say(broker.Event{Kind: broker.Gap, From: p.pos, N: -1, Err: b.gap})
	}
	if b.warning != nil {
		err := fmt.Errorf("%s/%d at offset %d: %w: finished messages above it come again", b.topic, b.no, p.pos, b.warning)
		say(broker.Event{Kind: broker.Warning, Err: err})
	}
	if n := b.progress.starts; n >= killer {
		err := fmt.Errorf("%s/%d: %d processes in a row crashed or were killed while offset %d was unfinished; "+
			"a message may be killing them", b.topic, b.no, n, p.pos)
		say(broker.Event{Kind: broker.Warning, Err: err})
	}
	return p
}

// killer is how many processes must have died above the same offset for a warning.
const killer = 3

// admit lets Receive see it.
func (x *claims) admit(b *start, p *part) {
	if !x.r.begins(b) { // lost meanwhile
		x.fence(p)
		x.books.keep(p)
		x.r.lose(p, broker.ErrLost)
		signal(x.bells.kick)
		return
	}
	x.r.add(b, p)
	signal(x.bells.stir)
	x.backlog.waited = true // that we have begun is what tells the next process that we died
	signal(x.bells.flush)
}

// over fences the drained parts, and returns the claims that are to be ended now, which ended is told.
func (x *claims) over(now time.Time) []endingClaim {
	for _, p := range x.r.drained(now) {
		x.fence(p)
		x.r.last(p, fmt.Errorf("kafkabroker: %s/%d: %w", p.topic, p.no, broker.ErrRevoked))
	}
	return x.r.endClaims()
}

// ended says that a claim was ended. Its last commit may be made now, where it was not lost meanwhile.
func (x *claims) ended(e endingClaim) {
	if !e.last {
		x.unconfirmed(e.p, e.err)
	}
	e.p.stage = concluded
	x.events.Say(broker.Event{Kind: broker.Ended, Claim: e.p.claim, Err: e.err})
	if e.last {
		signal(x.bells.flush)
	}
}

// leave fences all, and lets nothing begin any more.
func (x *claims) leave(err error) {
	for _, p := range slices.Clone(x.r.turns) {
		x.fence(p)
		x.r.last(p, err)
	}
	for id := range x.r.beginning {
		x.r.cancel(id)
	}
	x.r.leaving = true
	signal(x.bells.flush)
}

// giveUp gives up the last commits that were not made.
func (x *claims) giveUp(err error) {
	for _, p := range x.r.takeEnding(func(*part) bool { return true }) {
		x.unconfirmed(p, err)
	}
}

// restart ends a claim whose log is not what it was, and begins the partition anew.
func (x *claims) restart(p *part, why error) {
	x.fence(p)
	p.tr.buried()
	x.r.lose(p, fmt.Errorf("kafkabroker: %w: %w", why, broker.ErrLost))
	x.begin(p.partitionID, why)
	signal(x.bells.kick)
}

// surveyed takes the leaders of partitions, and begins those anew whose topic is another one by now. Of those that are gone
// nothing is kept.
func (x *claims) surveyed(topics map[string]topic, isGone func(partitionID, topicID) bool) {
	x.books.forget(isGone)
	x.r.outlive(isGone)
	for _, p := range slices.Clone(x.r.turns) {
		t := topics[p.topic]
		if t.err != nil || int(p.no) >= len(t.leaders) {
			continue
		}
		if p.moveTo(t.leaders[p.no]); p.leader < 0 {
			x.unserved(p, kafka.LeaderNotAvailable)
			x.solo.away()
		}
		if t.id != p.id && t.id != (topicID{}) && p.id != (topicID{}) && p.stage == open {
			x.restart(p, fmt.Errorf("%s/%d: %w", p.topic, p.no, errRecreated))
		}
	}
}
