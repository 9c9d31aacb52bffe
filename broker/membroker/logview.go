package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// A LogView reads what is stored in topics without a group. Safe for concurrent use.
type LogView struct{ b *Broker }

// LogView makes one.
func (b *Broker) LogView() *LogView { return &LogView{b: b} }

// Scan calls each for every message of a topic that was stored when Scan began, partition by partition, and returns the first
// error of each. broker.ErrNoTopic where there is no such topic.
func (v *LogView) Scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (done broker.Scanned, err error) {
	ms, done, err := v.stored(s)
	if err != nil {
		return done, err
	}
	for i := range ms {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if err := each(&ms[i]); errors.Is(err, broker.ErrStopScan) {
			return done, nil
		} else if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (v *LogView) stored(s broker.Scan) (ms []broker.Message, done broker.Scanned, err error) {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	t := v.b.topics[s.Topic]
	if t == nil {
		return nil, done, fmt.Errorf("membroker: reading topic %q: %w", s.Topic, broker.ErrNoTopic)
	}
	done.Whole = true
	for _, l := range t.logs {
		done.Log = fmt.Sprintf("%s-%d", s.Topic, l.epoch)
		if s.Partitions != nil && !slices.Contains(s.Partitions, l.partition) {
			continue
		}
		done.Whole = done.Whole && l.first <= l.origin() && len(l.removed) == 0
		for o := max(s.Offset, l.first); o < l.end; {
			sp, name := l.read(o, 1, 1<<62)
			o = sp.from + sp.n
			m := *sp.at(sp.from)
			m.Topic, m.Partition, m.Offset, m.Attempt = name, l.partition, sp.from, 1
			if name == s.Topic && !m.Time().Before(s.Since) && !l.removed[sp.from] {
				ms = append(ms, m)
			}
		}
	}
	return ms, done, nil
}

// CreateLog makes a topic of one partition; nil where it is there already, an error where it has more. like is not used.
func (v *LogView) CreateLog(_ context.Context, name, _ string) error {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	switch t := v.b.topics[name]; {
	case t == nil:
		v.b.addTopic(name, 1)
	case len(t.logs) > 1:
		return fmt.Errorf("membroker: creating topic %q: it is there with %d partitions, and is to have one", name, len(t.logs))
	}
	return nil
}

// Remove hides single messages from scans; consumers have them still.
func (v *LogView) Remove(_ context.Context, name string, places []broker.Place) error {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	t := v.b.topics[name]
	if t == nil {
		return fmt.Errorf("membroker: removing messages of topic %q: %w", name, broker.ErrNoTopic)
	}
	for _, p := range places {
		if int(p.Partition) >= len(t.logs) {
			return fmt.Errorf("membroker: removing messages of topic %q: it has no partition %d", name, p.Partition)
		}
		l := t.logs[max(0, p.Partition)]
		if l.removed == nil {
			l.removed = make(map[int64]bool)
		}
		l.removed[p.Offset] = true
	}
	return nil
}
