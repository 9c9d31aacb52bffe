package membroker

import (
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Unsettled is how many messages of the group's topics are not settled, as the broker knows it: were all sources gone now, so
// many would be delivered. It is seen from outside: what a source has not sent yet does not count. A group has its topics as soon
// as a source was made for it, opened or not, so a test may wait until this is 0. -1: no source was made for a group of that
// name.
func (b *Broker) Unsettled(group string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[group]
	if g == nil || len(g.topics) == 0 {
		return -1
	}
	n := int64(0)
	for _, c := range g.cursors {
		_, unsettled := c.behind(g.filter())
		n += unsettled
	}
	return n
}

// Settled says whether the broker has the message down as settled.
func (b *Broker) Settled(group, topic string, partition int32, offset int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.groups[group].cursor(topic, partition)
	if err != nil {
		return false
	}
	if b.stream != nil {
		p := &c.leases
		return offset < p.floor || offset < p.next && p.at(offset).done
	}
	return offset < c.committed || slices.Contains(c.done, offset)
}

// Committed is the lowest offset that is not settled, as the broker knows it; -1 for a partition that the group does not read.
func (b *Broker) Committed(group, topic string, partition int32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.groups[group].cursor(topic, partition)
	switch {
	case err != nil:
		return -1
	case b.stream != nil:
		return c.leases.floor
	}
	return c.committed
}

// History is what Committed was, oldest first, without repetitions: the last 4,096 at most.
func (b *Broker) History(group, topic string, partition int32) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.groups[group].cursor(topic, partition)
	if err != nil {
		return nil
	}
	return slices.Clone(c.history)
}

// A Nack is a message that was given back to the broker, by whomever, and when.
type Nack struct {
	Offset int64
	At     time.Time
}

// Nacks are the messages of a stream that members of the group gave back before they were settled, oldest first: the last 32,768
// at least. Where the broker is not Leased there are none.
func (b *Broker) Nacks(group string) (ns []Nack) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[group]
	if g == nil {
		return nil
	}
	for _, c := range g.cursors {
		for _, n := range c.leases.nacks {
			ns = append(ns, Nack{n.offset, time.Unix(0, n.at)})
		}
	}
	return ns
}

// Messages returns what the topic has now, by partition and offset: to look at dead letters, for example.
func (b *Broker) Messages(topic string) []broker.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topic]
	if t == nil {
		return nil
	}
	var ms []broker.Message
	for _, l := range t.logs {
		for _, sg := range l.segs {
			for o := max(sg.base, l.first); o < sg.base+sg.n && sg.topic == topic; o++ {
				m := sg.ms[(o-sg.base)%int64(len(sg.ms))]
				m.Offset = o
				ms = append(ms, m)
			}
		}
	}
	return ms
}

// Stats is what a group has asked of the broker so far.
type Stats struct {
	// Pulls for messages, Heartbeats (and extensions), and messages that were Delivered (counted where Leased).
	Pulls, Heartbeats, Delivered int64
	// Dropped messages had reached MaxDeliveries.
	Dropped int64
	// Members that are there now.
	Members int
}

// Stats of a group.
func (b *Broker) Stats(group string) Stats {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[group]
	if g == nil {
		return Stats{}
	}
	g.expire(now)
	s := Stats{Pulls: g.pulls, Heartbeats: g.heartbeats, Delivered: g.delivered, Members: len(g.members)}
	for _, c := range g.cursors {
		s.Dropped += c.leases.dropped
	}
	return s
}
