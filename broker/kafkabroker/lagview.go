package kafkabroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// LagViewConfig says whose lag to look at.
type LagViewConfig struct {
	Connection

	// Group is the consumer group. Required.
	Group string
	// Topics to look at, or those that Pattern matches, as in Config. Defaults to all of which the group has committed something.
	Topics  []string
	Pattern string
	// Uncommitted counts what lies behind open transactions too. Set it where the consumers read uncommitted. Defaults to false.
	Uncommitted bool
}

// A PartitionLag is how far a group is behind in one partition. Commits are at most as old as Config.CommitInterval.
type PartitionLag struct {
	Topic     string
	Partition int32
	// Committed is the committed offset: all below it is finished. -1: nothing is committed, or only for a topic that was deleted
	// and made again.
	Committed int64
	// Start is the offset of the oldest message that the log has. -1: unknown.
	Start int64
	// End is the offset that the next message gets, or that of the oldest open transaction.
	End int64
	// Lag is how many offsets are from Committed, or from the log's start where that is above it, to End; -1 where nothing is
	// committed. Compacted offsets and transaction markers count, since nobody knows how many there are.
	Lag int64
	// Finished is how many of these are finished already, by the commit's metadata: a longshore process does not handle them again.
	// The metadata of other clients says nothing, which is 0.
	Finished int64
	// Err says why the partition could not be looked at; then only Topic and Partition are known.
	Err error
}

// A LagView reads what a group has committed and where its topics end, without being a member. Safe for concurrent use.
type LagView struct {
	cfg  LagViewConfig
	c    *cluster
	k    *coordinator
	want func(topic string) bool
}

// NewLagView checks cfg. It connects at the first Read.
func NewLagView(cfg LagViewConfig) (*LagView, error) {
	cfg.Connection = cfg.Connection.withDefaults()
	f := findings()
	cfg.Connection.validate(f)
	conftag.Check(f, cfg)
	f.Check(cfg.Group != "", "Group", "is missing")
	checkName(f, "Group", cfg.Group)
	f.Check(len(cfg.Topics) == 0 || cfg.Pattern == "", "Pattern", "is set, and so is %v: set at most one of them",
		broker.Field("Topics"))
	validatePattern(f, cfg.Pattern)
	if err := f.Err(); err != nil {
		return nil, err
	}
	c, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	v := &LagView{cfg: cfg, c: c, k: &coordinator{c: c, group: cfg.Group}}
	v.want = Config{Topics: cfg.Topics, Pattern: cfg.Pattern}.matcher()
	return v, nil
}

// Close closes the connections.
func (v *LagView) Close() { v.c.transport.CloseIdleConnections() }

// Read looks at all partitions, sorted by topic and number. What is wrong with one of them is in its Err. Where a broker is away
// for a moment, it looks again until ctx ends, for RequestTimeout at most.
func (v *LagView) Read(ctx context.Context) ([]PartitionLag, error) {
	var all []PartitionLag
	err := v.cfg.persist(ctx, func() error {
		lags, err := v.read(ctx)
		if err != nil {
			return err
		}
		all = lags
		for _, l := range lags {
			if passing(l.Err) && !errors.Is(l.Err, errNoLeader) { // which may take long, and says enough
				return l.Err
			}
		}
		return nil
	})
	if all != nil {
		return all, nil
	}
	return nil, err
}

// read looks once.
func (v *LagView) read(ctx context.Context) ([]PartitionLag, error) {
	if err := v.cfg.probe(ctx, v.c.transport); err != nil { // the Transport would only say that its time is over
		return nil, fmt.Errorf("kafkabroker: reading lag: %w", err)
	}
	at, err := v.positions(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafkabroker: reading lag of group %s: %w", v.cfg.Group, err)
	}
	layout, err := v.layout(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("kafkabroker: reading lag of group %s: %w", v.cfg.Group, err)
	}
	ends, starts := v.bounds(ctx, layout, timeEnd), v.bounds(ctx, layout, timeStart)
	lags := []PartitionLag{}
	for _, name := range slices.Sorted(maps.Keys(layout)) {
		t := layout[name]
		if t.err != nil {
			lags = append(lags, PartitionLag{Topic: name, Partition: -1, Err: fmt.Errorf("kafkabroker: topic %s: %w", name, t.err)})
			continue
		}
		for no := range t.leaders {
			p := partitionID{name, int32(no)}
			pos, known := at[p]
			if !known {
				pos.offset = -1
			}
			lags = append(lags, lagOf(p, pos, t.id, starts[p], ends[p]))
		}
	}
	return lags, nil
}

// Protocol is how the group's members share its partitions out, "classic" or "consumer", as Config.Membership has it. It is empty
// while the group has no members.
func (v *LagView) Protocol(ctx context.Context) (string, error) {
	var s spoken
	err := v.cfg.persist(ctx, func() (err error) {
		s, err = v.k.spoken(ctx)
		return err
	})
	if err != nil && codeOf(err) != kafka.GroupIdNotFound {
		return "", fmt.Errorf("kafkabroker: reading the protocol of group %s: %w", v.cfg.Group, err)
	}
	return s.name(), nil
}

func (v *LagView) positions(ctx context.Context) (map[partitionID]position, error) {
	at, err := v.k.positions(ctx, memberID{}, nil)
	if codeOf(err) == kafka.GroupIdNotFound { // nobody has committed yet
		return nil, nil
	}
	return at, err
}

// layout is that of the topics that are wanted, or of those that have a position.
func (v *LagView) layout(ctx context.Context, at map[partitionID]position) (map[string]topic, error) {
	if v.cfg.Pattern != "" {
		layout, err := v.c.topics(ctx, nil)
		maps.DeleteFunc(layout, func(name string, _ topic) bool { return !v.want(name) })
		return layout, err
	}
	names := slices.Clone(v.cfg.Topics)
	if len(names) == 0 {
		for p := range at {
			names = append(names, p.topic)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return nil, nil
	}
	layout, err := v.c.topics(ctx, names)
	for _, name := range names {
		if _, answered := layout[name]; err == nil && !answered {
			layout[name] = topic{name: name, err: errShort}
		}
	}
	return layout, err
}

// bounds asks each leader for the start or the end of its partitions.
func (v *LagView) bounds(ctx context.Context, layout map[string]topic, which int64) map[partitionID]bound {
	led := make(map[int32][]partitionID)
	at := make(map[partitionID]bound)
	for name, t := range layout {
		for no, leader := range t.leaders {
			p := partitionID{name, int32(no)}
			if leader < 0 {
				at[p] = bound{err: errNoLeader}
				continue
			}
			led[leader] = append(led[leader], p)
		}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for leader, ps := range led { // one that does not answer keeps us from no other
		all.Go(func() {
			answered, err := v.c.listOffsets(ctx, leader, ps, which, isolation(v.cfg.Uncommitted))
			mu.Lock()
			defer mu.Unlock()
			for _, p := range ps {
				b, ok := answered[p]
				if !ok {
					b.err = cmp.Or(err, error(errShort))
				}
				at[p] = b
			}
		})
	}
	all.Wait()
	return at
}

var errNoLeader = errors.New("it has no leader at the moment")

// lagOf puts together what is known of a partition.
func lagOf(p partitionID, pos position, id topicID, start, end bound) PartitionLag {
	l := PartitionLag{Topic: p.topic, Partition: p.no, Committed: -1, Lag: -1, Start: start.offset, End: end.offset}
	err := cmp.Or(pos.err, start.err, end.err)
	if err == nil && (start.offset < 0 || end.offset < 0) {
		err = errShort
	}
	if err != nil {
		return PartitionLag{Topic: p.topic, Partition: p.no, Committed: -1, Start: -1, End: -1, Lag: -1,
			Err: fmt.Errorf("kafkabroker: %s/%d: %w", p.topic, p.no, err)}
	}
	if pos.offset < 0 {
		return l
	}
	known, err := decodeMetadata(pos.offset, pos.metadata)
	if err != nil { // the same as none: what is finished is done again
		known = progress{base: pos.offset}
	}
	if known.log != 0 && id.log() != 0 && known.log != id.log() {
		return l // of a topic that was deleted and made again
	}
	from := max(pos.offset, start.offset)
	l.Committed, l.Lag = pos.offset, max(0, end.offset-from)
	for _, s := range known.done {
		l.Finished += max(0, min(s.to, end.offset)-max(s.from, from))
	}
	return l
}
