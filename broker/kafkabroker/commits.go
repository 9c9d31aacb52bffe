package kafkabroker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// Commits decide what is committed, and take the answers.
type commits struct {
	*shared
	r      *roster
	floors map[logID]broker.Floor // of each log that something was committed of: see broker.FloorReporter
	pace   pace                   // of transactions

	stayed  bool      // a partition may have been refused: without one nobody walks all of them
	retried time.Time // when something that was refused was collected last
}

// A logID names a log, of a topic that has an id.
type logID struct {
	partitionID
	topicID
}

// A due is a snapshot on its way to the broker.
type due struct {
	p *part
	s snapshot
	c *commitment
	// last: it was taken after the claim had ended. That it has ended by the time of the answer says nothing of the snapshot.
	last bool
	es   []*emission // what is stored with it
}

// A backlog is what the next commit would have to tell.
type backlog struct {
	finished int64     // messages handled since the last one
	waited   bool      // somebody waits for it: a claim has begun or ended
	over     bool      // Close waits for the last one, and it was made
	refused  bool      // something was, when it was tried last
	again    time.Time // when the next of that is tried again; zero: now
}

func (x *commits) due(now time.Time) backlog {
	b := x.backlog
	b.over = x.r.leaving && len(x.r.ending) == 0
	b.waited = b.waited || b.over
	for _, p := range x.r.ending {
		b.waited = b.waited || p.stay.until.IsZero()
		x.stays(&b, p, now)
	}
	if x.stayed {
		for _, p := range x.r.turns {
			x.stays(&b, p, now)
		}
		x.stayed = b.refused
	}
	return b
}

// stays takes note of a partition that may have been refused. Of many, each since another moment, several are tried at once.
func (x *commits) stays(b *backlog, p *part, now time.Time) {
	if p.stay.until.IsZero() {
		return
	}
	b.refused = true
	switch pace := x.retried.Add(retryWait); {
	case p.stay.on(now):
		b.again = sooner(b.again, p.stay.until)
	case now.Before(pace):
		b.again = sooner(b.again, pace)
	default:
		b.waited = true
	}
}

// A stay is for how long nothing of a partition is committed, for its commits are refused: the process may not read its topic,
// or the broker does not know that. All other partitions go on, and where commits are transactions, it would take them along.
type stay struct {
	until time.Time // zero: it was not refused
	wait  time.Duration
}

// longestStay is the longest one.
const longestStay = time.Second

func (s *stay) refused(now time.Time) {
	s.wait = min(max(2*s.wait, retryWait), longestStay)
	s.until = now.Add(s.wait)
}

func (s *stay) on(now time.Time) bool { return now.Before(s.until) }

// collect takes snapshots: of open claims where something is new, or of all, and the last ones.
func (x *commits) collect(all bool, blocked func(topic string) bool, now time.Time) (ds []due) {
	x.backlog = backlog{}
	by := sieve{blocked: blocked, upTo: x.upTo(blocked, now)}
	for _, p := range x.r.turns {
		if all {
			p.tr.uncommit()
		}
		if !p.stay.on(now) && (p.tr.dirty() || p.outs.ready(by)) {
			ds = append(ds, p.due(false, by))
		}
	}
	for _, p := range x.r.ending {
		if p.stage != concluded || p.stay.on(now) {
			continue
		}
		if p.lastBy.IsZero() {
			p.lastBy = now.Add(x.cfg.TransactionTimeout)
		}
		d := p.due(true, by)
		d.last = len(p.outs.waiting) == 0 || !now.Before(p.lastBy)
		ds = append(ds, d)
	}
	if slices.ContainsFunc(ds, func(d due) bool { return !d.p.stay.until.IsZero() }) {
		x.retried = now
	}
	if by.upTo > 0 { // what is left waits for this transaction, and for nothing else
		for _, p := range x.r.turns {
			x.backlog.finished += int64(len(p.outs.waiting))
		}
	}
	return ds
}

// upTo is the last emission that the next transaction may have. What cannot go takes no room: else more of that than there is
// room for would hold up all that goes to other topics.
func (x *commits) upTo(blocked func(topic string) bool, now time.Time) uint64 {
	if x.pace.bound == 0 {
		return 0
	}
	var waiting []*emission
	for _, p := range slices.Concat(x.r.turns, x.r.ending) {
		if !p.stay.on(now) {
			waiting = append(waiting, p.outs.takable(sieve{blocked: blocked})...)
		}
	}
	return upTo(x.pace.bound, waiting)
}

// late says that the time of a transaction was over before all of it was written.
func (x *commits) late(ds []due) {
	had := int64(0)
	for _, d := range ds {
		for _, e := range d.es {
			had += e.bytes
		}
	}
	if had > 0 {
		x.pace.late(had)
	}
}

// due takes a snapshot. clean: its claim has ended well.
func (p *part) due(clean bool, by sieve) due {
	es := p.outs.take(by)
	for _, e := range es {
		p.tr.send(e.offsets)
	}
	snap := p.tr.snapshot(clean)
	d := due{p: p, s: snap, last: clean, es: es, c: &commitment{partitionID: p.partitionID, topic: p.id, offset: snap.base,
		after: p.passedEpoch() + 1}}
	if p.room > 0 {
		d.c.metadata = snap.encode(p.room)
	}
	p.sent(d.c.position())
	return d
}

// A commitAnswer is what a commit comes to.
type commitAnswer struct {
	released []partitionID // may be given to the group
	troubles []error       // with brokers
	again    bool          // something of it should be tried again soon: more than what is refused for a while
	changed  bool          // the loop may have something to do about it
}

// answered takes note of the broker's answers. isGone says whether the log of a partition is gone.
func (x *commits) answered(ds []due, isGone func(partitionID, topicID) bool, now time.Time) (a commitAnswer) {
	for _, d := range ds {
		code := codeOf(d.c.err)
		a.changed = a.changed || d.c.err != nil || d.p.stage != open || d.p.stalled || len(d.es) > 0
		switch {
		case d.c.err == nil:
			x.stored(d.p, d.es)
			d.p.tr.commit(d.s)
			d.p.stay = stay{}
			d.p.taken(d.c.position())
			x.solo.written(d.p, d.s.suspect)
			x.rise(d)
			x.committed(d, &a)
			continue
		case code == kafka.UnknownTopicOrPartition && isGone(d.p.partitionID, d.p.id):
			if d.last = d.last || x.r.concluded(d.p); d.last { // outputs that wait do so in vain
				d.p.tr.buried()
			}
			d.p.tr.commit(snapshot{version: d.s.version}) // nothing new before something is
			d.p.stay = stay{}
			x.solo.refused(d.p)
			x.committed(d, &a)
			continue
		case code == kafka.OffsetMetadataTooLarge && x.cfg.Transactional:
			x.fail(fmt.Errorf("%s/%d: the broker takes no metadata of %d bytes, and transactions need it: set its "+
				"offset.metadata.max.bytes to %d: %w", d.p.topic, d.p.no, len(d.c.metadata), metadataLimit, d.c.err))
		case errors.Is(d.c.err, errAborted):
		case code == kafka.OffsetMetadataTooLarge && d.p.room > 0:
			x.shorten(d)
		case replaced(code), code == kafka.RebalanceInProgress:
			// The group goes to its next generation, and we may be part of that: then it is sent again under it. Otherwise the membership
			// hears the same with its next heartbeat and says that all is lost.
		default:
			a.troubles = append(a.troubles, ofTopic(d.p.partitionID, d.c.err))
			if refused(d.c.err) {
				x.solo.refused(d.p)
			}
			if code == kafka.UnknownTopicOrPartition { // it may have been deleted, and perhaps nothing is fetched of it
				signal(x.bells.find)
			}
			if code == kafka.UnknownTopicOrPartition || !code.Temporary() {
				d.p.stay.refused(now)
				x.stayed = true
				continue
			}
		}
		a.again = true
	}
	return a
}

// ofTopic names the partition in an answer that is about its topic, and not about the group.
func ofTopic(p partitionID, err error) error {
	switch codeOf(err) {
	case kafka.TopicAuthorizationFailed, kafka.UnknownTopicOrPartition:
		return fmt.Errorf("%s/%d: %w", p.topic, p.no, err)
	}
	return err
}

// rise notes the floor that was committed. It is kept when the claim has ended, for who asks then, and never falls: a position
// that somebody moved back says nothing of what was finished.
func (x *commits) rise(d due) {
	if d.p.log != "" {
		id := d.p.logID()
		x.floors[id] = broker.Floor{Log: d.p.log, Offset: max(x.floors[id].Offset, d.c.offset)}
	}
}

// forget forgets the floors of logs that are gone, for topics may come and go for ever.
func (x *commits) forget(isGone func(partitionID, topicID) bool) {
	maps.DeleteFunc(x.floors, func(id logID, _ broker.Floor) bool { return isGone(id.partitionID, id.topicID) })
}

// floorsNow are those of all logs.
func (x *commits) floorsNow() []broker.Floor {
	return slices.AppendSeq(make([]broker.Floor, 0, len(x.floors)), maps.Values(x.floors))
}

// errOutputsWait is why acks of a claim that ended do not hold.
var errOutputsWait = errors.New("kafkabroker: their outputs could not be stored before the claim's end")

// leastMetadata is from what length on a metadata string has room for all that it must have: of which log the offset is, and what
// runs alone.
const leastMetadata = 64

// shorten makes the metadata of a partition's commits shorter, for the broker takes none as long as that. As long as it takes any
// the log is named in it. Else a last commit that comes when the topic was made anew would pass for one of the new topic, and
// what is below it there would be in nobody's hands.
func (x *commits) shorten(d due) {
	was := len(d.c.metadata)
	if d.p.room == metadataLimit {
		err := fmt.Errorf("%s/%d: the broker takes no metadata of %d bytes (offset.metadata.max.bytes): finished messages above the "+
			"committed offset come again after a restart, but for those that have room", d.p.topic, d.p.no, was)
		x.events.Say(broker.Event{Kind: broker.Warning, Claim: d.p.claim, Err: err})
	}
	switch {
	case was/2 >= leastMetadata:
		d.p.room = was / 2
	case d.p.room > leastMetadata:
		d.p.room = leastMetadata
	default:
		d.p.room = 0
		x.solo.forget(d.p) // no commit can say what runs alone
	}
}

// committed says that a commit need not be made again. The last one releases its partition, where it was still to be made: it was
// not if the partition was lost meanwhile. Whoever has it now has a claim of its own, and perhaps that is we.
func (x *commits) committed(d due, a *commitAnswer) {
	if d.last && len(x.r.takeEnding(func(p *part) bool { return p == d.p })) > 0 {
		if n := d.p.tr.unconfirmed(); len(d.p.outs.waiting) > 0 {
			x.gate.Hold(0, -d.p.outs.drop())
			x.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: d.p.claim, N: n, Err: errOutputsWait})
		}
		a.released = append(a.released, d.p.partitionID)
	}
}

// replaced says that the group has others in our place. The membership hears it with its next heartbeat.
func replaced(code kafka.Error) bool {
	switch code {
	case kafka.IllegalGeneration, kafka.UnknownMemberId, kafka.FencedInstanceID, staleMemberEpoch, fencedMemberEpoch:
		return true
	}
	return false
}
