package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

func init() {
	noNodes := "a broker in memory has no nodes"
	both := map[What]string{
		CutNode: noNodes, LoseAnswers: "there are no connections; CutFrom for a moment is the same",
		Leader: noNodes, Restart: noNodes + ", and Down is a broker that is away with its data",
		Reset: "there are no connections; CutBoth for a moment is the same",
		Grow:  "the number of partitions is fixed when a topic is made",
		Edit:  "the broker has no settings of a group",
	}
	partitioned, leased := map[What]string{Forget: "a commit is kept at once"}, map[What]string{}
	for w, why := range both {
		partitioned[w], leased[w] = why, why
	}
	for _, w := range []What{Revoke, Steal, Bounce} {
		leased[w] = "a leased stream has no partitions that belong to somebody"
	}
	leased[Recreate] = "all topics are one stream: the dead letters would be gone, too"
	kinds = append(kinds,
		Kind{Name: "membroker", Cannot: partitioned, Heavy: 1, Bridges: true, Shares: true, Asked: time.Second,
			New: func(_ testing.TB, s Schedule) World { return newMemWorld(s, false) }},
		Kind{Name: "membroker-leased", Cannot: leased, Heavy: 1, Shared: true, Bridges: true, NoSpill: true, Asked: time.Second,
			EmitsNot: "acks of leases are no part of a commit: outputs are published before them, at least once",
			New:      func(_ testing.TB, s Schedule) World { return newMemWorld(s, true) }},
	)
}

// A memWorld is a membroker.
type memWorld struct {
	s      Schedule
	b      *membroker.Broker
	leased bool
	groups map[string][]string // the topics of each
	gone   []int
	away   int // how many faults keep the broker away
}

func newMemWorld(s Schedule, leased bool) *memWorld {
	w := &memWorld{s: s, leased: leased, groups: map[string][]string{}}
	c := membroker.Config{Leased: leased, Lease: time.Duration(s.Settings.Lease), Topics: map[string]int{}, Strict: true,
		Atomic: s.Settings.Emits > 0 && !s.Settings.Bridge}
	for _, topic := range s.Inputs() {
		c.Topics[topic] = s.Settings.Partitions
	}
	for _, topic := range s.there() {
		c.Topics[topic] = s.partitionsOf(topic)
	}
	w.b = membroker.New(c)
	return w
}

// Join implements World.
func (w *memWorld) Join(string) Process { return &memProcess{w: w, died: make(chan struct{})} }

// Produce implements World.
func (w *memWorld) Produce(topic string, partition int, key, value []byte) (int64, error) {
	if err := w.b.ProduceTo(partition, broker.Outgoing{Topic: topic, Key: key, Value: value}); err != nil {
		return -1, err
	}
	if w.leased { // Nacks needs it
		for _, m := range slices.Backward(w.b.Messages(topic)) {
			if bytes.Equal(m.Value, value) {
				return m.Offset, nil
			}
		}
	}
	return -1, nil
}

// Nacks implements nackHearer.
func (w *memWorld) Nacks() (nacks []nack) {
	for group, topics := range w.groups {
		for _, n := range w.b.Nacks(group) {
			for _, topic := range topics { // one stream has them all: an offset is one topic's
				nacks = append(nacks, nack{topic, n.Offset, n.At})
			}
		}
	}
	return nacks
}

// errTold is what a broker says that was told to fail.
var errToldBroker = errors.New("the broker was told to fail")

// Do implements World.
func (w *memWorld) Do(f Fault, p Process) (undo func(), err error) {
	if p != nil {
		return p.(*memProcess).do(f)
	}
	b := w.b
	switch f.What {
	case Down:
		w.away++
		b.Down()
		return func() {
			if w.away--; w.away == 0 {
				b.Up()
			}
		}, nil
	case Delay:
		b.Delay(time.Duration(f.N) * time.Millisecond)
		return func() { b.Delay(0) }, nil
	case FailSettles:
		b.Fail(membroker.OpSettle, f.N, errToldBroker)
		return func() { b.Fail(membroker.OpSettle, 0, nil) }, nil
	case FailPublishes:
		b.Fail(membroker.OpPublish, f.N, errToldBroker)
		return func() { b.Fail(membroker.OpPublish, 0, nil) }, nil
	case Forget:
		for group := range w.groups {
			b.ForgetSettles(group, time.Duration(f.N)*time.Millisecond)
		}
	case Again:
		w.again(f.N)
	case Revoke, Steal, Bounce:
		w.move(f)
	case Make:
		topic := w.s.made(f)
		return nil, b.Create(topic, w.s.partitionsOf(topic))
	case Trim:
		return nil, w.drop(func() error { return w.trim(f.N) })
	case Recreate:
		topic, _ := w.s.place(f.N)
		return nil, w.drop(func() error { return b.Recreate(topic) })
	default:
		return nil, fmt.Errorf("a broker in memory does not know how to do %q", f.What)
	}
	return nil, nil
}

// again delivers a message again; it may be nobody's at the moment, or settled.
func (w *memWorld) again(n int) {
	for group, topics := range w.groups {
		for _, topic := range topics {
			for _, m := range w.b.Messages(topic) {
				if numberOf(m.Value) == n {
					_ = w.b.Redeliver(group, m.Topic, m.Partition, m.Offset)
				}
			}
		}
	}
}

// move takes a partition; it may be nobody's at the moment.
func (w *memWorld) move(f Fault) {
	topic, partition := w.s.place(f.N)
	do := map[What]func(group, topic string, partition int32) error{
		Revoke: w.b.Revoke, Steal: w.b.Steal, Bounce: w.b.Bounce,
	}[f.What]
	for group := range w.groups {
		_ = do(group, topic, partition) // not all groups read it
	}
}

// trim drops all but the newest messages of a partition, or of the stream.
func (w *memWorld) trim(n int) error {
	topic, partition := w.s.place(n)
	var offsets []int64
	for _, m := range w.b.Messages(topic) {
		if w.leased || m.Partition == partition {
			offsets = append(offsets, m.Offset)
		}
	}
	if len(offsets) <= newest(n) {
		return nil
	}
	return w.b.Trim(topic, partition, append(offsets, offsets[len(offsets)-1]+1)[len(offsets)-newest(n)])
}

// drop enters what is not there any more afterwards.
func (w *memWorld) drop(do func() error) error {
	before := w.inputs()
	if err := do(); err != nil {
		return err
	}
	after := w.inputs()
	for _, n := range before {
		if !slices.Contains(after, n) {
			w.gone = append(w.gone, n)
		}
	}
	return nil
}

// inputs are the messages that the inputs have, by number.
func (w *memWorld) inputs() (numbers []int) {
	for _, topic := range w.s.Inputs() {
		for _, m := range w.b.Messages(topic) {
			numbers = append(numbers, numberOf(m.Value))
		}
	}
	return numbers
}

// Gone implements World.
func (w *memWorld) Gone() []int { return w.gone }

// Messages implements World.
func (w *memWorld) Messages(topic string) ([]broker.Message, error) { return w.b.Messages(topic), nil }

// Unsettled implements World.
func (w *memWorld) Unsettled() (n int64, where string, err error) {
	var parts []string
	for group, topics := range w.groups {
		here := w.b.Unsettled(group)
		if here == 0 {
			continue
		}
		n += here
		for _, topic := range topics {
			for _, m := range w.b.Messages(topic) {
				if !w.b.Settled(group, m.Topic, m.Partition, m.Offset) {
					parts = append(parts, fmt.Sprintf("%s (%s/%d at %d)", m.Value, m.Topic, m.Partition, m.Offset))
				}
			}
		}
	}
	return n, strings.Join(parts[:min(8, len(parts))], ", "), nil
}

// Floors implements World.
func (w *memWorld) Floors() map[string][]int64 {
	floors := map[string][]int64{}
	for group, topics := range w.groups {
		for _, topic := range topics {
			for p := range max(1, w.s.Settings.Partitions) {
				floors[fmt.Sprintf("%s/%d for %s", topic, p, group)] = w.b.History(group, topic, int32(p))
			}
		}
	}
	return floors
}

// Close implements World.
func (w *memWorld) Close() {}

// A memProcess is a process's sources and publishers on a membroker.
type memProcess struct {
	w       *memWorld
	sources []*membroker.Source
	cuts    int // how many are under way

	mu      sync.Mutex
	died    chan struct{}
	to      int           // how many faults let nothing through to the broker
	from    int           // or from it
	changed chan struct{} // closed when a fault is over; nil: nobody waits
}

// Source implements Process.
func (p *memProcess) Source(s Subscription) (broker.Source, error) {
	p.w.groups[s.Group] = s.Topics
	src := p.w.b.Source(membroker.SourceConfig{
		Group: s.Group, Topics: s.Topics, Prefetch: p.w.s.Settings.Prefetch, RevokeWait: time.Duration(p.w.s.Settings.RevokeWait),
	})
	p.sources = append(p.sources, src)
	return src, nil
}

// Publisher implements Process.
func (p *memProcess) Publisher() (broker.Publisher, error) {
	return &memPublisher{p.w.b.Publisher(), p}, nil
}

// Close implements Process.
func (p *memProcess) Close() {}

func (p *memProcess) do(f Fault) (undo func(), err error) {
	switch f.What {
	case Kill:
		p.mu.Lock()
		close(p.died)
		p.mu.Unlock()
		for _, s := range p.sources {
			s.Kill()
		}
		return nil, nil
	case Freeze:
		p.block(1, 0)
		for _, s := range p.sources {
			s.Freeze()
		}
		return func() {
			for _, s := range p.sources {
				s.Thaw()
			}
			p.block(-1, 0)
		}, nil
	case CutTo:
		return p.cut(membroker.ToBroker, 1, 0), nil
	case CutFrom:
		return p.cut(membroker.FromBroker, 0, 1), nil
	case CutBoth:
		return p.cut(membroker.Both, 1, 1), nil
	}
	return nil, fmt.Errorf("a process on a broker in memory does not know how to do %q", f.What)
}

func (p *memProcess) cut(d membroker.Direction, to, from int) (undo func()) {
	p.block(to, from)
	p.cuts++
	for _, s := range p.sources {
		s.Cut(d)
	}
	return func() {
		p.block(-to, -from)
		if p.cuts--; p.cuts > 0 {
			return
		}
		for _, s := range p.sources {
			s.Heal()
		}
	}
}

// block begins or ends faults of the publishers' way.
func (p *memProcess) block(to, from int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to, p.from = p.to+to, p.from+from
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// pass waits until nothing is in the way to the broker, or from it.
func (p *memProcess) pass(ctx context.Context, to bool) error {
	for {
		p.mu.Lock()
		free := p.to == 0 && to || p.from == 0 && !to
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-p.died:
			return errDied
		default:
		}
		if free {
			return nil
		}
		select {
		case <-changed:
			if !to { // what was cut is lost
				<-ctx.Done()
				return ctx.Err()
			}
		case <-p.died:
			return errDied
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A memPublisher is a publisher of one process.
type memPublisher struct {
	*membroker.Publisher
	p *memProcess
}

// Unwrap implements broker.Wrapper.
func (p *memPublisher) Unwrap() broker.Publisher { return p.Publisher }

// Prepare implements broker.Wrapper.
func (p *memPublisher) Prepare(_ context.Context, ms []broker.Outgoing) []broker.Outgoing { return ms }

// Publish is the broker's, where the process has a way to it and back.
func (p *memPublisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if err := p.p.pass(ctx, true); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	if err := p.Publisher.Publish(ctx, ms); err != nil {
		return err
	}
	if err := p.p.pass(ctx, false); err != nil {
		return fmt.Errorf("publishing, perhaps stored: %w", err)
	}
	return nil
}
