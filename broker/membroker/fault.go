package membroker

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An Op is something that can be told to fail.
type Op int

const (
	// OpOpen: the next Source.Open fails, as for a mistake in its configuration.
	OpOpen Op = iota
	// OpReceive: the next Receive fails for good.
	OpReceive
	// OpSettle: the next commit or settle that a source sends fails; the source tries again.
	OpSettle
	// OpPublish: the next message of a Publish fails.
	OpPublish
	ops
)

// A Direction is one way between a source and the broker.
type Direction int

const (
	// ToBroker: what the source sends is lost.
	ToBroker Direction = 1 << iota
	// FromBroker: what the broker answers is lost; it has done what was asked.
	FromBroker
	// Both ways.
	Both = ToBroker | FromBroker
)

// faults is what was told to go wrong. Guarded by Broker.mu.
type faults struct {
	down    bool
	left    [ops]int
	err     [ops]error
	drops   int
	latency time.Duration
	lag     *broker.Lag
}

// fail takes one failure of the operation, if one is left.
func (f *faults) fail(op Op) error {
	if f.left[op] == 0 {
		return nil
	}
	f.left[op]--
	return f.err[op]
}

// drop loses deliveries that were told to be dropped.
func (f *faults) drop(spans []span) []span {
	for f.drops > 0 && len(spans) > 0 {
		sp := &spans[0]
		sp.bytes -= sp.size(sp.from)
		sp.from, sp.n, f.drops = sp.from+1, sp.n-1, f.drops-1
		if sp.n == 0 {
			spans = spans[1:]
		}
	}
	return spans
}

// Fail lets the next n operations of a kind fail with err.
func (b *Broker) Fail(op Op, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.left[op], b.faults.err[op] = n, err
	b.wake()
}

// Drop loses the next n messages on their way to a source. It needs Leased, where they come again after the lease; a partitioned
// source asks again by itself.
func (b *Broker) Drop(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.drops = n
}

// Delay makes each exchange between a source or a publisher and the broker take so much longer.
func (b *Broker) Delay(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.latency = d
}

// ReportLag makes sources report these figures at their next exchange with the broker; nil: the true ones again.
func (b *Broker) ReportLag(l *broker.Lag) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.lag = l
	for _, g := range b.groups {
		for _, m := range g.members {
			m.call.Ring()
		}
	}
}

// Down makes the broker unreachable.
func (b *Broker) Down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.down = true
	for _, g := range b.groups {
		for _, m := range g.members {
			m.call.Ring()
		}
	}
}

// Up ends Down. As a real broker after its restart, it gives every source and every delivered message a fresh lease.
func (b *Broker) Up() {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.down = false
	for _, g := range b.groups {
		for _, m := range g.members {
			m.seen = now
			m.call.Ring()
		}
		if b.stream != nil {
			for _, c := range g.cursors {
				c.leases.refresh(now.Add(b.cfg.Lease).UnixNano())
			}
		}
	}
	b.wake()
}

func (p *leases) refresh(until int64) {
	for o := p.floor; o < p.next; o++ {
		if e := p.at(o); !e.done && e.holder != 0 {
			e.due = max(e.due, until)
		}
	}
}

// ForgetSettles undoes the settles of the last d, as a JetStream server does that is killed before it wrote them down. It returns
// how many there were. It needs Leased, and knows the last 65,536 settles at most.
func (b *Broker) ForgetSettles(group string, d time.Duration) int {
	since := time.Now().Add(-d).UnixNano()
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(group)
	if b.stream == nil || len(g.cursors) == 0 {
		return 0
	}
	n := g.cursors[0].leases.forget(since)
	b.wake()
	return n
}

// Redeliver has the broker deliver a message once more, as after an ack that was lost on its way. The source passes it over if
// it still knows that it is out or settled, as those of all adapters do: then no handler sees it twice, and nil is returned.
// For a second run of the handler Steal the partition while it runs, or Kill the source and have another one. Where Leased the
// partition is -1, and what the broker has down as settled is an error.
func (b *Broker) Redeliver(group, topic string, partition int32, offset int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.groups[group].cursor(topic, partition)
	if err != nil {
		return fmt.Errorf("membroker: redelivering: group %q: %w", group, err)
	}
	if b.stream != nil {
		p := &c.leases
		if offset < p.floor || offset >= p.next || p.at(offset).done {
			return fmt.Errorf("membroker: redelivering: offset %d of group %q is not outstanding", offset, group)
		}
		p.at(offset).due, p.dueAt = 0, 0
		b.wake()
		return nil
	}
	if c.owner == nil {
		return fmt.Errorf("membroker: redelivering: partition %d of %q has no owner in group %q", partition, topic, group)
	}
	c.owner.tell(notice{kind: rewound, cur: c, term: c.term, offset: offset})
	return nil
}

// Trim drops all messages of the partition below the offset, as retention does.
func (b *Broker) Trim(topic string, partition int32, below int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.topic(topic)
	if err != nil {
		return err
	}
	t.log(partition).trim(below)
	b.wake()
	return nil
}

// Recreate deletes the topic (the whole stream, where Leased) and makes it again, empty, with the same offsets to come.
func (b *Broker) Recreate(topic string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, err := b.topic(topic)
	if err != nil {
		return err
	}
	for _, l := range t.logs {
		l.empty(b.groups)
	}
	b.wake()
	return nil
}

// empty makes the log anew.
func (l *commitLog) empty(groups map[string]*group) {
	old := l.epoch
	for _, g := range groups {
		for _, c := range g.cursors {
			if c.log == l && c.epoch == old {
				c.restart(g)
			}
		}
	}
	l.epoch++
	l.first, l.end, l.segs, l.ids, l.removed = l.origin(), l.origin(), nil, nil, nil
}

// restart begins the cursor anew for the log's next epoch. It is called before the log changes.
func (c *cursor) restart(g *group) {
	_, n := c.behind(g.filter())
	lost := &gap{from: c.committed, n: n}
	c.epoch++
	c.term++
	c.committed, c.done, c.runs, c.history = 0, nil, nil, nil
	if c.log.partition < 0 {
		lost.from = c.leases.floor
		c.leases = newLeases(1)
		for i, m := range g.members {
			told := notice{kind: recreated, cur: c, term: c.term, start: progress{epoch: c.epoch}}
			if i == 0 {
				told.gap = lost
			}
			m.tell(told)
		}
		return
	}
	if c.owner != nil {
		c.owner.tell(notice{kind: recreated, cur: c, term: c.term, start: progress{epoch: c.epoch}, gap: lost})
	}
}

// Revoke takes the partition from its owner gently: who has it is told, settles what runs, commits and releases. Another member
// of the group gets it then, or without one the same again. It needs a partitioned broker.
func (b *Broker) Revoke(groupName, topic string, partition int32) error {
	return b.move(groupName, topic, partition, func(g *group, c *cursor) {
		c.to, c.moving = g.other(c.owner), true
		c.owner.tell(notice{kind: revoked, cur: c, term: c.term})
	})
}

// Steal takes the partition from its owner at once, as after a session timeout, and gives it to another member as Revoke does.
func (b *Broker) Steal(groupName, topic string, partition int32) error {
	return b.move(groupName, topic, partition, func(g *group, c *cursor) {
		c.owner.tell(notice{kind: taken, cur: c, term: c.term})
		c.assign(g.other(c.owner), assigned)
	})
}

// Bounce takes the partition from its owner and gives it back in the same moment, as an eager rebalance does: the next claim
// begins while the old one is still revoking.
func (b *Broker) Bounce(groupName, topic string, partition int32) error {
	return b.move(groupName, topic, partition, func(_ *group, c *cursor) { c.assign(c.owner, bounced) })
}

func (b *Broker) move(groupName, topic string, partition int32, f func(*group, *cursor)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != nil {
		return fmt.Errorf("membroker: moving %q: a leased stream has no partitions to move", topic)
	}
	c, err := b.groups[groupName].cursor(topic, partition)
	if err != nil {
		return fmt.Errorf("membroker: moving: group %q: %w", groupName, err)
	}
	if c.owner == nil {
		return fmt.Errorf("membroker: moving: partition %d of %q has no owner in group %q", partition, topic, groupName)
	}
	f(b.groups[groupName], c)
	return nil
}

// other is the member with the fewest partitions, except one unless there is nobody else.
func (g *group) other(than *member) *member {
	has := make(map[*member]int)
	var takers []*member
	for _, c := range g.cursors {
		has[c.owner]++
	}
	for _, m := range g.members {
		if m != than && !m.leaving {
			takers = append(takers, m)
		}
	}
	if len(takers) == 0 {
		return than
	}
	return fewest(takers, has)
}

// cursor finds the group's progress on a partition, or on the stream. No group is one that reads nothing.
func (g *group) cursor(topic string, partition int32) (*cursor, error) {
	if g == nil || !g.topics[topic] {
		return nil, fmt.Errorf("it does not read %q", topic)
	}
	if g.b.stream != nil {
		return g.cursors[0], nil
	}
	for _, c := range g.cursors {
		if c.log.topic == topic && c.log.partition == partition {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%q has no partition %d", topic, partition)
}

// log is the partition's; a stream has one for all.
func (t *topic) log(partition int32) *commitLog {
	return t.logs[max(0, int(partition))%len(t.logs)]
}
