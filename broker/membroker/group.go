package membroker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A group is what shares work and progress. Guarded by Broker.mu.
type group struct {
	b       *Broker
	name    string
	topics  map[string]bool
	members []*member
	cursors []*cursor // by topic and partition; one where Leased

	pulls, heartbeats, delivered int64
}

// A member is a source as the broker knows it. Guarded by Broker.mu.
type member struct {
	id     int32
	g      *group
	topics []string
	seen   time.Time
	// leaving: it has stopped, and takes no new partitions. It is known from the first one on that it declines.
	leaving bool
	notices []notice
	// waiting: tell data when there may be messages.
	waiting bool
	// data wakes Receive, call wakes the source's loop.
	data, call kit.Bell
}

// A cursor is the group's progress on one log, and who owns it. Guarded by Broker.mu.
type cursor struct {
	log   *commitLog
	epoch int // of the log it counts in

	// Partitioned: committed, finished above it, and the failed runs that were told.
	committed int64
	done      []int64
	runs      map[int64]int32
	owner     *member
	// term counts the assignments; who has an older one is fenced.
	term int64
	// to is who gets it once owner has released it; moving: owner was told so.
	to     *member
	moving bool

	emits   emitLog
	leases  leases // where Leased
	history []int64
}

// A notice is what the broker has to say to a member.
type notice struct {
	kind noticeKind
	cur  *cursor
	term int64
	// start is the progress where the assignment begins.
	start  progress
	offset int64 // rewind: from where
	gap    *gap
}

type noticeKind int

const (
	assigned  noticeKind = iota
	revoked              // give it up when what runs is settled
	taken                // it is somebody else's now
	bounced              // revoked, and assigned again at once
	rewound              // deliver again from offset on
	recreated            // the log is a new one
)

type progress struct {
	committed int64
	done      []int64
	runs      map[int64]int32
	epoch     int
}

// A gap is messages that nobody handled and that are gone.
type gap struct{ from, n int64 }

var (
	errDown    = errors.New("membroker: broker is down")
	errCut     = errors.New("membroker: connection is cut")
	errLate    = errors.New("membroker: no answer before the lease ran out")
	errFenced  = errors.New("membroker: fenced: another member has it")
	errUnknown = errors.New("membroker: unknown member")
	errKilled  = errors.New("membroker: source was killed")
)

// historySize bounds a cursor's history; it forgets the oldest half.
const historySize = 4096

func (c *cursor) remember(o int64) {
	if n := len(c.history); n > 0 && c.history[n-1] == o {
		return
	}
	if len(c.history) >= historySize {
		c.history = append(c.history[:0], c.history[historySize/2:]...)
	}
	c.history = append(c.history, o)
}

func (b *Broker) group(name string) *group {
	g := b.groups[name]
	if g == nil {
		g = &group{b: b, name: name, topics: make(map[string]bool)}
		b.groups[name] = g
	}
	return g
}

// subscribe adds the cursors of topics that are new to the group.
func (g *group) subscribe(topics []string) error {
	for _, name := range topics {
		t, err := g.b.topic(name)
		if err != nil {
			return err
		}
		if g.topics[name] {
			continue
		}
		g.topics[name] = true
		if g.b.stream != nil {
			if len(g.cursors) == 0 {
				g.cursors = append(g.cursors, &cursor{log: t.logs[0], epoch: t.logs[0].epoch, leases: newLeases(t.logs[0].first)})
			}
			continue
		}
		for _, l := range t.logs {
			g.cursors = append(g.cursors, &cursor{log: l, epoch: l.epoch, committed: l.first})
		}
	}
	slices.SortFunc(g.cursors, func(x, y *cursor) int {
		if d := strings.Compare(x.log.topic, y.log.topic); d != 0 {
			return d
		}
		return int(x.log.partition - y.log.partition)
	})
	return nil
}

// join makes a member; its assignments come as notices.
func (g *group) join(topics []string, data, call kit.Bell) (*member, error) {
	g.expire(time.Now())
	if err := g.subscribe(topics); err != nil {
		return nil, fmt.Errorf("membroker: subscribing: %w", err)
	}
	g.b.joined++
	m := &member{id: int32(g.b.joined), g: g, topics: topics, seen: time.Now(), data: data, call: call}
	g.members = append(g.members, m)
	if g.b.stream != nil {
		c := g.cursors[0]
		m.tell(notice{kind: assigned, cur: c, start: progress{epoch: c.epoch}})
		return m, nil
	}
	g.balance()
	return m, nil
}

func (m *member) tell(n notice) {
	m.notices = append(m.notices, n)
	m.call.Ring()
}

func (m *member) known() bool { return slices.Contains(m.g.members, m) }

// leave forgets the member; what it has goes to the others.
func (m *member) leave() {
	m.g.members = slices.DeleteFunc(m.g.members, func(o *member) bool { return o == m })
	if m.g.b.stream != nil {
		m.g.b.wake()
		return
	}
	for _, c := range m.g.cursors {
		if c.owner == m {
			c.owner, c.moving, c.to = nil, false, nil
		}
	}
	m.g.balance()
}

// expire takes the partitions of members that are silent too long. A leased stream needs no such thing: its messages have their
// own leases.
func (g *group) expire(now time.Time) {
	if g.b.stream != nil || g.b.faults.down {
		return
	}
	for _, m := range slices.Clone(g.members) {
		if now.Sub(m.seen) > g.b.cfg.Lease {
			m.leave()
		}
	}
}

// heartbeat says that m lives, and extends what it has (offsets, where leased). It returns what the broker has to say; it says so
// again until it was followed, for the answer may get lost.
func (m *member) heartbeat(has []int64, now time.Time) ([]notice, error) {
	m.g.expire(now)
	if !m.known() {
		return nil, errUnknown
	}
	m.g.heartbeats++
	m.seen = now
	if m.g.b.stream != nil {
		m.g.cursors[0].leases.extend(m.id, has, now.UnixNano(), now.Add(m.g.b.cfg.Lease).UnixNano())
	}
	return slices.Clone(m.notices), nil
}

func (c *cursor) progress() progress {
	p := progress{committed: max(c.committed, c.log.first), epoch: c.epoch, runs: make(map[int64]int32, len(c.runs))}
	for _, o := range c.done { // ascending
		switch {
		case o == p.committed:
			p.committed++
		case o > p.committed:
			p.done = append(p.done, o)
		}
	}
	for o, n := range c.runs {
		p.runs[o] = n
	}
	return p
}

// assign gives the partition to m; it says so by a notice.
func (c *cursor) assign(m *member, kind noticeKind) {
	c.owner, c.to, c.moving = m, nil, false
	c.term++
	n := notice{kind: kind, cur: c, term: c.term}
	if lost := c.log.first - c.committed; lost > 0 {
		for _, o := range c.done {
			if o < c.log.first {
				lost--
			}
		}
		// Told again, until somebody who has heard of it commits: m may be frozen, and lose the partition before it hears anything.
		n.gap = &gap{from: c.committed, n: lost}
	}
	n.start = c.progress()
	m.tell(n)
}

// commit writes progress down. done are finished offsets above committed, ascending.
func (c *cursor) commit(committed int64, done []int64, runs map[int64]int32) {
	c.committed, c.done, c.runs = committed, done, runs
	c.remember(committed)
}

// release ends m's ownership after it has committed.
func (m *member) release(c *cursor, term int64) {
	if c.owner != m || c.term != term {
		return
	}
	to := c.to
	c.owner, c.to, c.moving = nil, nil, false
	c.term++ // whatever it sends afterwards is fenced
	if to != nil && to.known() && !to.leaving {
		c.assign(to, assigned)
		return
	}
	m.g.balance()
}

// decline gives back a partition that m did not begin with, since it has stopped. It gets no other: else the one that nobody
// takes would be assigned to it again in the same moment, and so for ever.
func (m *member) decline(c *cursor, term int64) {
	m.leaving = true
	m.release(c, term)
}

// fetch leases messages of the stream to m: first what comes again, then fresh ones.
func (m *member) fetch(limit int, maxBytes int64, now time.Time) (out []span, g *gap, due time.Time) {
	c := m.g.cursors[0]
	p, l, cfg := &c.leases, c.log, &m.g.b.cfg
	m.g.pulls++
	m.seen = now
	out, g = p.again(l, cfg, m.id, limit, now)
	limit -= len(out)
	for limit > 0 && p.next < l.end {
		if p.next < l.first {
			if g == nil {
				g = &gap{from: p.next}
			}
			g.n += l.first - p.next
			p.skip(l.first)
			continue
		}
		sp, topic := l.read(p.next, limit, maxBytes)
		if !m.g.topics[topic] {
			sg := l.segs[l.find(p.next)]
			p.skip(sg.base + sg.n)
			continue
		}
		if len(out) > 0 && sp.bytes > maxBytes {
			break
		}
		p.deliver(m.id, sp.n, now.Add(cfg.Lease).UnixNano())
		out = append(out, sp)
		limit -= int(sp.n)
		maxBytes -= sp.bytes
		if maxBytes <= 0 {
			break
		}
	}
	out = m.g.b.faults.drop(out)
	for _, sp := range out {
		m.g.delivered += sp.n
		for o := sp.from; cfg.AtMostOnce && o < sp.from+sp.n; o++ {
			p.finish(o, 0)
		}
	}
	if len(out) == 0 {
		m.waiting = true
		if p.dueAt != math.MaxInt64 {
			due = time.Unix(0, p.dueAt)
		}
	}
	c.remember(p.floor)
	return out, g, due
}

// pull gets messages of the holding's log into its prefetch: up to n where they are leased, and so many bytes. lost: the answer
// does not get there, so what was leased comes again after its lease. due is when something comes again.
func (m *member) pull(h *holding, n int, bytes int64, now time.Time, lost error) (due time.Time) {
	if m.g.b.stream == nil {
		if lost == nil {
			m.g.pulls++
			h.read(bytes)
		}
		return due
	}
	spans, g, due := m.fetch(min(h.sh.prefetch, n), bytes, now)
	if lost == nil {
		h.sh.sayGap(h.claim().claim, g)
		h.enter(spans)
	}
	return due
}

// lag counts what is behind, for the group where leased, else for what m owns.
func (m *member) lag(now time.Time) broker.Lag {
	lag := broker.Lag{At: now, Group: m.g.b.stream != nil}
	if lag.Group {
		lag.Waiting, lag.Unsettled = m.g.cursors[0].behind(m.g.filter())
		return lag
	}
	for _, c := range m.owned() {
		_, unsettled := c.behind(nil)
		lag.Unsettled += unsettled
	}
	return lag
}

// owned are the partitions that are m's.
func (m *member) owned() (cs []*cursor) {
	for _, c := range m.g.cursors {
		if c.owner == m {
			cs = append(cs, c)
		}
	}
	return cs
}

// filter is nil where the group reads all there is, which is quicker to count.
func (g *group) filter() map[string]bool {
	if len(g.topics) == len(g.b.topics) {
		return nil
	}
	return g.topics
}

// behind counts the messages that were never delivered (where leased), and those that are not settled.
func (c *cursor) behind(topics map[string]bool) (waiting, unsettled int64) {
	if c.log.partition < 0 {
		p := &c.leases
		waiting = c.log.matching(p.next, topics)
		return waiting, waiting + p.next - p.floor - p.doneAbove
	}
	unsettled = max(0, c.log.end-max(c.committed, c.log.first))
	for _, o := range c.done {
		if o >= c.log.first {
			unsettled--
		}
	}
	return 0, unsettled
}
