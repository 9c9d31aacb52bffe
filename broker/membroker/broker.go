package membroker

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Broker holds topics, groups and what was told to go wrong. It has no goroutine of its own: what is due happens when somebody
// asks, so it needs no Close, and in a synctest bubble it is idle when everybody else is. All methods are safe for concurrent
// use.
type Broker struct {
	cfg  Config
	seed maphash.Seed

	mu     sync.Mutex
	topics map[string]*topic
	stream *commitLog // where Leased; otherwise nil
	groups map[string]*group
	joined int // members ever, to name them
	faults faults
}

type topic struct {
	name string
	logs []*commitLog
	next int // the partition for the next message without a key
}

// New makes a broker. It panics with all findings when c is wrong, for that is a mistake in the program.
func New(c Config) *Broker {
	if err := c.validate(); err != nil {
		panic(err)
	}
	b := &Broker{
		cfg:    c.withDefaults(),
		seed:   maphash.MakeSeed(),
		topics: make(map[string]*topic),
		groups: make(map[string]*group),
	}
	if c.Leased {
		b.stream = &commitLog{partition: -1, first: 1, end: 1}
	}
	for name, n := range c.Topics {
		b.addTopic(name, max(1, n))
	}
	return b
}

// addTopic needs b.mu, or a broker that nobody else knows yet.
func (b *Broker) addTopic(name string, partitions int) *topic {
	t := &topic{name: name}
	if b.stream != nil {
		t.logs = []*commitLog{b.stream}
	} else {
		for i := range partitions {
			t.logs = append(t.logs, &commitLog{topic: name, partition: int32(i)})
		}
	}
	b.topics[name] = t
	return t
}

// Create makes a topic with so many partitions, at least one, as an administrator does: for a test of what is missing at first
// (Config.Strict). One that is there stays as it is. It fails only for a topic without a name.
func (b *Broker) Create(topic string, partitions int) error {
	if topic == "" {
		return errors.New("membroker: making a topic: it has no name")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[topic] == nil {
		b.addTopic(topic, max(1, partitions))
	}
	return nil
}

// topic finds or makes it; it needs b.mu.
func (b *Broker) topic(name string) (*topic, error) {
	if t := b.topics[name]; t != nil {
		return t, nil
	}
	if name == "" || b.cfg.Strict {
		return nil, broker.NoTopic(fmt.Errorf("topic %q does not exist", name))
	}
	return b.addTopic(name, b.cfg.Partitions), nil
}

// Produce stores messages as another program would: no fault concerns it. The partition is chosen by the key, or in turn where
// there is none. It fails only for a topic that a Strict broker does not have; then nothing is stored from that message on.
func (b *Broker) Produce(ms ...broker.Outgoing) error { return b.ProduceTo(-1, ms...) }

// ProduceTo is Produce into a partition of your choice.
func (b *Broker) ProduceTo(partition int, ms ...broker.Outgoing) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range ms {
		if err := b.store(m, partition, now); err != nil {
			return err
		}
	}
	return nil
}

// Fill stores n messages that repeat ms, in the memory of ms: a long log for a benchmark. All are of the topic of the first.
func (b *Broker) Fill(partition int, n int64, ms ...broker.Outgoing) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(ms) == 0 || n <= 0 {
		return nil
	}
	t, err := b.topic(ms[0].Topic)
	if err != nil {
		return err
	}
	l := t.logs[max(0, partition)%len(t.logs)]
	stored := make([]broker.Message, len(ms))
	for i, m := range ms {
		stored[i] = message(m, l, now)
		stored[i].Topic = t.name
	}
	l.append(t.name, stored, n)
	b.wake()
	return nil
}

// store needs b.mu.
func (b *Broker) store(m broker.Outgoing, partition int, now time.Time) error {
	t, err := b.topic(m.Topic)
	if err != nil {
		return err
	}
	if p := m.Partition; partition < 0 && p != nil && *p >= 0 && int(*p) < len(t.logs) {
		partition = int(*p)
	}
	if partition < 0 {
		partition = t.choose(b.seed, m.Key)
	}
	l := t.logs[partition%len(t.logs)]
	if m.ID != "" {
		if _, repeated := l.ids[m.ID]; repeated {
			return nil
		}
		if l.ids == nil {
			l.ids = make(map[string]struct{})
		}
		l.ids[m.ID] = struct{}{}
	}
	l.append(t.name, []broker.Message{message(m, l, now)}, 1)
	b.wake()
	return nil
}

// choose is by the key, or in turn where there is none.
func (t *topic) choose(seed maphash.Seed, key []byte) int {
	if key == nil {
		t.next++
		return t.next - 1
	}
	return int(maphash.Bytes(seed, key) % uint64(len(t.logs)))
}

// message copies what the caller may change later.
func message(m broker.Outgoing, l *commitLog, now time.Time) broker.Message {
	stored := broker.Message{Topic: m.Topic, Partition: l.partition, Key: slices.Clone(m.Key), Nanos: now.UnixNano()}
	if m.Value != nil {
		stored.Value = append(make([]byte, 0, len(m.Value)), m.Value...)
	}
	if m.Key != nil && stored.Key == nil {
		stored.Key = []byte{}
	}
	hs := m.Headers
	if m.ID != "" {
		hs = append(slices.Clone(hs), broker.Header{Key: broker.HeaderID, Value: []byte(m.ID)})
	}
	stored.Headers = broker.NewHeaders(hs...)
	return stored
}

// wake tells sources that wait for messages to look again; it needs b.mu.
func (b *Broker) wake() {
	for _, g := range b.groups {
		for _, m := range g.members {
			if m.waiting {
				m.waiting = false
				m.data.Ring()
			}
		}
	}
}
