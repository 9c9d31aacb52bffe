package kafkabroker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A member is our part in a group that assigns its partitions itself (KIP-848): what the group knows of us, what it wants us to
// have, and what we have. It is a state machine without clock, lock or I/O: events go in; what to tell the group, and what is
// assigned, revoked and lost, come out.
//
//	enlist ──▶ beat ──▶ answered ──▶ beat …
//	            └─────▶ unanswered      the group may have heard us or not: everything is told again
//	            └─────▶ fenced          everything is lost: it joins again
//
// A partition is ours from the answer that assigns it until released, or until everything is lost. One that we are to give up
// drains first, and the group hears with the next beat that we have it no more; then it gives it to another.
type member struct {
	id       string
	instance string
	epoch    int32
	terms    enlistment

	names  map[topicID]string
	wanted map[logPart]int32       // what the group wants us to have, and at which epoch it first said so
	owned  map[partitionID]*tenure // told as assigned and not released or lost

	version  int  // of what we own
	told     int  // the version that the group has heard of
	untold   bool // the group may not know all of terms
	raises   bool // the next answer is what the epochs of partitions count from: see raise
	asked    time.Duration
	normal   time.Duration // between two beats, at most
	due      time.Time
	restless time.Time // until then something is likely to change
}

// A tenure is a partition of ours.
type tenure struct {
	id       topicID
	since    int32 // the epoch at which it was assigned to us: what its commits are made with
	draining bool  // told as revoking
}

const (
	// beatMost is the longest pause between two heartbeats, whatever the broker asks (5 s by default): a partition that moves waits
	// for the heartbeat of who has it, and then for that of who gets it.
	beatMost = time.Second
	// beatQuick is the pause for as long as restlessFor after a change, when more of them are likely.
	beatQuick   = 250 * time.Millisecond
	restlessFor = 5 * time.Second
)

func newMember(id, instance string, normal time.Duration) *member {
	return &member{
		id: id, instance: instance, normal: min(normal, beatMost), untold: true,
		names: make(map[topicID]string), wanted: make(map[logPart]int32), owned: make(map[partitionID]*tenure),
	}
}

// enlist takes what to subscribe to.
func (m *member) enlist(terms enlistment, now time.Time) {
	same := slices.Equal(terms.topics, m.terms.topics) && terms.regex == m.terms.regex
	m.terms = terms
	if !same {
		m.untold, m.due = true, now
	}
}

// A sentBeat is a beat under way, of which answered is told.
type sentBeat struct {
	beat
	version int
}

// beat is what to tell the group now.
func (m *member) beat() sentBeat {
	b := sentBeat{beat: beat{member: m.id, instance: m.instance, epoch: m.epoch}, version: m.version}
	if m.untold {
		terms := m.terms
		b.full = &terms
	}
	if m.untold || m.told != m.version {
		b.owned = m.holds()
	}
	return b
}

// holds are the partitions that we have; never nil, for that would say that they are as told before.
func (m *member) holds() []logPart {
	ps := make([]logPart, 0, len(m.owned))
	for p, t := range m.owned {
		ps = append(ps, logPart{t.id, p.no})
	}
	slices.SortFunc(ps, compareLogParts)
	return ps
}

// answered takes the group's answer to a beat. unnamed: it assigns partitions of topics that we do not know yet.
func (m *member) answered(b sentBeat, a beatAnswer, now time.Time) (changes []change, unnamed bool) {
	m.untold, m.told, m.asked = false, b.version, a.interval
	if a.epoch != m.epoch {
		m.epoch = a.epoch
		m.restless = now.Add(restlessFor)
	}
	if m.raises {
		m.raise()
	}
	if a.told {
		wanted := make(map[logPart]int32, len(a.assigned))
		for _, p := range a.assigned {
			since, was := m.wanted[p]
			if !was {
				since = a.epoch
			}
			wanted[p] = since
			unnamed = unnamed || m.names[p.id] == ""
		}
		if !maps.Equal(wanted, m.wanted) {
			m.restless = now.Add(restlessFor)
		}
		if m.neverHad(wanted) {
			m.version++
		}
		m.wanted = wanted
		changes = m.reconcile()
	}
	m.due = now.Add(m.interval(now))
	if m.told != m.version {
		m.due = now
	}
	return changes, unnamed
}

// raise takes what we have for assigned at the epoch that we are at. So does a broker that is new to epochs of partitions (Kafka
// 4.3, after an upgrade): what it has read of the group has the member's alone. By older ones it would refuse our commits for
// ever.
func (m *member) raise() {
	m.raises = false
	for p := range m.wanted {
		m.wanted[p] = m.epoch
	}
	for _, t := range m.owned {
		t.since = m.epoch
	}
	heard := m.told == m.version
	m.version++
	if heard { // which partitions we have is no news
		m.told = m.version
	}
}

// neverHad says whether the group wants us no more to have what we never had: its topic was deleted before we heard its name. The
// group gives the partition to nobody until we have said what we have, and nothing else has us say it, for nothing is released.
func (m *member) neverHad(wanted map[logPart]int32) bool {
	gone := maps.Clone(m.wanted)
	for p := range wanted {
		delete(gone, p)
	}
	for p, t := range m.owned {
		delete(gone, logPart{t.id, p.no})
	}
	return len(gone) > 0
}

// interval is the pause between two beats.
func (m *member) interval(now time.Time) time.Duration {
	d := m.normal
	if m.asked > 0 {
		d = min(d, m.asked)
	}
	if now.Before(m.restless) {
		d = min(d, beatQuick)
	}
	return d
}

// unanswered says that a beat got no answer, or one that another try cures. The group may have heard it: it may be an epoch ahead
// of us, and have assigned what we do not know of. So the next one tells everything.
func (m *member) unanswered(again time.Time) {
	m.untold = true
	m.due = again
}

// lose gives everything up at once. It joins again as new, by that name: the same one where the group may have us still, for our
// old self would keep the partitions until its session is over; another one where it does not know us. The sequence: a commit of
// ours is held up on its way; the group takes our partitions away, and gives them to another; we join again; then the commit
// comes, with an epoch that we have had, and only its name tells that it is not ours any more.
func (m *member) lose(again time.Time, name string) (lost []partitionID) {
	lost = slices.SortedFunc(maps.Keys(m.owned), comparePartitions)
	clear(m.owned)
	clear(m.wanted)
	m.version++
	m.id, m.epoch, m.untold, m.due = name, joinEpoch, true, again
	return lost
}

// named learns the names of topics by their ids. A topic that was made again has another id, and its old one no name any more.
func (m *member) named(names map[topicID]string) []change {
	m.forget(names)
	news := false
	for id, name := range names {
		if m.names[id] == name {
			continue
		}
		maps.DeleteFunc(m.names, func(_ topicID, other string) bool { return other == name })
		m.names[id], news = name, true
	}
	if !news {
		return nil
	}
	return m.reconcile()
}

// forget forgets the names of topics that are not there any more, but for those of which we have something, or are to.
func (m *member) forget(names map[topicID]string) {
	if names == nil { // nobody has looked
		return
	}
	used := make(map[topicID]bool)
	for _, t := range m.owned {
		used[t.id] = true
	}
	for w := range m.wanted {
		used[w.id] = true
	}
	maps.DeleteFunc(m.names, func(id topicID, _ string) bool { return names[id] == "" && !used[id] })
}

// released says that partitions are drained and committed. What the group wants us to have by now is assigned anew.
func (m *member) released(parts []partitionID, now time.Time) []change {
	version := m.version
	for _, p := range parts {
		if t := m.owned[p]; t != nil && t.draining {
			delete(m.owned, p)
			m.version++
		}
	}
	if m.version == version { // not asked for: Close releases what it had
		return nil
	}
	m.due, m.restless = now, now.Add(restlessFor)
	return m.reconcile()
}

// errMadeAgain is why what we have of a log that is gone is lost.
var errMadeAgain = fmt.Errorf("%w: %w", broker.ErrLost, errRecreated)

// reconcile takes up what is wanted and not owned, and gives up what is owned and not wanted.
func (m *member) reconcile() (changes []change) {
	if gone := m.outlived(); len(gone) > 0 {
		changes = append(changes, change{kind: lost, parts: gone, err: errMadeAgain})
	}
	var add, drop []partitionID
	for w, since := range m.wanted {
		name := m.names[w.id]
		if name == "" {
			continue
		}
		p := partitionID{name, w.no}
		t := m.owned[p]
		switch {
		case t == nil:
			m.owned[p] = &tenure{id: w.id, since: since}
			add = append(add, p)
			m.version++
		case t.id != w.id && !t.draining: // the topic was made again: the claim waits for this to begin anew
			t.id, t.since = w.id, since
			m.version++
		}
	}
	for p, t := range m.owned {
		if _, wanted := m.wanted[logPart{t.id, p.no}]; !wanted && !t.draining {
			t.draining = true
			drop = append(drop, p)
		}
	}
	slices.SortFunc(add, comparePartitions)
	slices.SortFunc(drop, comparePartitions)
	if len(drop) > 0 {
		changes = append(changes, change{kind: revoking, parts: drop})
	}
	if len(add) > 0 {
		changes = append(changes, change{kind: assigned, parts: add})
	}
	return changes
}

// outlived gives up at once what is of a topic that was made again, unless we are to have that partition of the new one, too, and
// go on. Nobody waits for the old one, and a last commit would be one of the new, for commits name topics: as soon as another
// member has that, it is refused, again and again, and the group never hears that we have the old one no more. It would get
// nothing assigned that we are to have instead until it expels us, RebalanceTimeout later.
func (m *member) outlived() (gone []partitionID) {
	for p, t := range m.owned {
		_, kept := m.wanted[logPart{t.id, p.no}] // the group does not know yet
		if m.names[t.id] == "" && !kept && (t.draining || !m.wants(p)) {
			delete(m.owned, p)
			gone = append(gone, p)
			m.version++
		}
	}
	slices.SortFunc(gone, comparePartitions)
	return gone
}

// wants says whether the group wants us to have a partition of the topic that has its name now.
func (m *member) wants(p partitionID) bool {
	for w := range m.wanted {
		if w.no == p.no && m.names[w.id] == p.topic {
			return true
		}
	}
	return false
}

// has is what we have by now.
func (m *member) has() map[partitionID]tenure {
	all := make(map[partitionID]tenure, len(m.owned))
	for p, t := range m.owned {
		all[p] = *t
	}
	return all
}
