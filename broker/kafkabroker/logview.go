package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// LogViewConfig says which cluster to read.
type LogViewConfig struct {
	Connection

	// MaxBatchBytes is the largest record batch, decompressed, that is read. Defaults to 64 MiB.
	MaxBatchBytes int `yaml:"-" want:"1..1073741823"`
}

// A LogView reads what is stored in topics, and cuts logs off, without being a member of any group. Safe for concurrent use.
type LogView struct {
	cfg     LogViewConfig
	c       *cluster
	reached atomic.Bool
}

// NewLogView checks cfg. It connects when it is first used.
func NewLogView(cfg LogViewConfig) (*LogView, error) {
	cfg.Connection = cfg.Connection.withDefaults()
	or(&cfg.MaxBatchBytes, 64<<20)
	f := findings()
	cfg.Connection.validate(f)
	conftag.Check(f, cfg)
	if err := f.Err(); err != nil {
		return nil, err
	}
	c, err := cfg.connect()
	if err != nil {
		return nil, err
	}
	return &LogView{cfg: cfg, c: c}, nil
}

// Close closes the connections.
func (v *LogView) Close() { v.c.transport.CloseIdleConnections() }

// Scan calls each for every message of a topic that was stored when Scan began, partition by partition, in the order of their
// offsets, and returns the first error of each. The messages' bytes lie in a fetch buffer: keep a Clone. Messages of aborted
// transactions are left out. It waits for a leader for RequestTimeout. broker.ErrNoTopic where there is no such topic.
func (v *LogView) Scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	done, err := v.scan(ctx, s, each)
	if errors.Is(err, broker.ErrStopScan) {
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("kafkabroker: reading topic %s: %w", s.Topic, err)
	}
	return done, nil
}

func (v *LogView) scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	var done broker.Scanned
	var pieces []piece
	err := v.cfg.persist(ctx, func() (err error) {
		done, pieces, err = v.pieces(ctx, s)
		return err
	})
	for i := 0; i < len(pieces) && err == nil; i++ {
		err = v.read(ctx, &pieces[i], each)
		done.Whole = done.Whole && pieces[i].whole
	}
	return done, err
}

// pieces finds out what is to be read.
func (v *LogView) pieces(ctx context.Context, s broker.Scan) (broker.Scanned, []piece, error) {
	done := broker.Scanned{Whole: true}
	t, err := v.look(ctx, s.Topic)
	if err != nil {
		return done, nil, err
	}
	if t.id != (topicID{}) {
		done.Log = fmt.Sprintf("%x", t.id[:])
	}
	pieces := make([]piece, 0, len(t.leaders))
	for no := range int32(len(t.leaders)) { // all ends first: what comes later is not wanted
		if s.Partitions != nil && !slices.Contains(s.Partitions, no) {
			continue
		}
		p, err := v.piece(ctx, t, no, s)
		if err != nil {
			return done, nil, err
		}
		done.Whole = done.Whole && p.whole
		pieces = append(pieces, p)
	}
	return done, pieces, nil
}

// layout is the topic's, with a leader for each partition. A topic that was just made has none for a moment, and is not known to
// each broker.
func (v *LogView) layout(ctx context.Context, name string) (t topic, err error) {
	err = v.cfg.persist(ctx, func() (err error) {
		t, err = v.look(ctx, name)
		return err
	})
	return t, err
}

// look is layout, as a broker knows it now.
func (v *LogView) look(ctx context.Context, name string) (topic, error) {
	if err := v.reach(ctx); err != nil {
		return topic{}, err
	}
	ts, err := v.c.topics(ctx, []string{name})
	if err != nil {
		v.reached.Store(false)
		return topic{}, err
	}
	t := ts[name]
	switch {
	case codeOf(t.err) == kafka.UnknownTopicOrPartition:
		return t, fmt.Errorf("%w: %w", broker.ErrNoTopic, t.err)
	case t.err != nil:
		return t, t.err
	case len(t.leaders) == 0, slices.Contains(t.leaders, -1):
		return t, errNoLeader
	}
	return t, nil
}

// reach finds out whether the brokers can be used, until they could be once. The Transport would only say that its time is over.
func (v *LogView) reach(ctx context.Context) error {
	if v.reached.Load() {
		return nil
	}
	err := v.cfg.probe(ctx, v.c.transport)
	v.reached.Store(err == nil)
	return err
}

// A piece is what is to be read of a partition: from, from+1, …, to-1.
type piece struct {
	partitionID
	id       topicID
	leader   int32
	from, to int64
	whole    bool
}

func (v *LogView) piece(ctx context.Context, t topic, no int32, s broker.Scan) (piece, error) {
	p := piece{partitionID: partitionID{t.name, no}, id: t.id, leader: t.leaders[no]}
	start, err := v.c.listOffset(ctx, p.leader, p.partitionID, timeStart, 0)
	var end int64
	if err == nil {
		end, err = v.c.listOffset(ctx, p.leader, p.partitionID, timeEnd, 0)
	}
	if err == nil {
		p.to, err = v.c.listOffset(ctx, p.leader, p.partitionID, timeEnd, 1)
	}
	p.from = s.Offset
	if err == nil && !s.Since.IsZero() {
		at := max(0, s.Since.UnixMilli()) // what is negative has other meanings
		p.from, err = v.c.listOffset(ctx, p.leader, p.partitionID, at, 0)
		if err == nil && p.from < 0 { // none is so young
			p.from = p.to
		}
		// Where the first that is left is young enough, others before it may have been, too.
		p.whole = p.from > start || start == 0
	} else {
		p.whole = start <= s.Offset
	}
	p.whole = p.whole && p.to >= end // an open transaction hides what comes after its begin
	p.from = max(p.from, start)
	if err != nil {
		return p, fmt.Errorf("partition %d: %w", no, err)
	}
	return p, nil
}

// scanBytes is how much one fetch asks for.
const scanBytes = 4 << 20

// read reads a piece. A partition that is led elsewhere by now is followed, for RequestTimeout without progress.
func (v *LogView) read(ctx context.Context, p *piece, each func(*broker.Message) error) error {
	patience := time.Now().Add(v.cfg.RequestTimeout)
	for p.from < p.to {
		req := &fetchRequest{node: p.leader, maxWait: 500 * time.Millisecond, bytes: scanBytes, committed: true,
			wishes: []wish{{partitionID: p.partitionID, id: p.id, offset: p.from, epoch: -1, bytes: scanBytes}}}
		got, err := v.c.fetch(ctx, req, v.cfg.MaxBatchBytes)
		if err == nil && len(got) == 1 {
			err = got[0].err
		}
		if err == nil && len(got) == 1 {
			before := p.from
			p.from, err = v.decode(*p, before, &got[0], each)
			if err != nil && !errors.Is(err, errAhead) { // else the next answer knows a later end
				return err
			}
			if p.from > before {
				patience = time.Now().Add(v.cfg.RequestTimeout)
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case codeOf(err) == kafka.OffsetOutOfRange: // cut off meanwhile
			start, serr := v.c.listOffset(ctx, p.leader, p.partitionID, timeStart, 0)
			if serr != nil || start <= p.from {
				return fmt.Errorf("partition %d: offset %d: %w", p.no, p.from, errors.Join(err, serr))
			}
			p.from, p.whole = start, false
		case err != nil && !moved(err) && !passing(err) && codeOf(err) != 0, time.Now().After(patience):
			return fmt.Errorf("partition %d: offset %d: %w", p.no, p.from, errors.Join(err, errNoProgress))
		}
		pause(ctx, retryWait)
		if t, lerr := v.look(ctx, p.topic); lerr == nil && int(p.no) < len(t.leaders) {
			p.leader = t.leaders[p.no]
		}
	}
	return nil
}

var errNoProgress = errors.New("nothing can be read")

// decode hands out the messages of an answer, and returns where to go on.
func (v *LogView) decode(p piece, from int64, a *fetched, each func(*broker.Message) error) (int64, error) {
	d := newDecoder(a.records, from, max(a.high, p.to), true, a.aborted, v.cfg.MaxBatchBytes)
	for {
		var r record
		more, err := d.next(&r)
		if !more && d.at >= p.to { // whatever is behind it
			return p.to, nil
		}
		if err != nil {
			return d.at, fmt.Errorf("partition %d: %w", p.no, err)
		}
		if !more {
			return d.at, nil
		}
		if r.offset >= p.to {
			return p.to, nil
		}
		m := broker.Message{}
		r.fill(&m, p.topic, p.no)
		if err := each(&m); err != nil {
			return d.at, err
		}
	}
}

// CreateLog makes a topic of one partition that keeps its messages for ever, with the broker's own replication factor. nil where
// it is there already; an error where it is there with more partitions, for these have no order. It waits until a broker knows
// the topic, for RequestTimeout. like is not used: what a topic needs to be as safe as another one is the broker's default.
func (v *LogView) CreateLog(ctx context.Context, name, _ string) error {
	err := v.cfg.persist(ctx, func() error {
		if err := v.reach(ctx); err != nil {
			return err
		}
		return v.c.createLog(ctx, name)
	})
	var t topic
	if err == nil {
		t, err = v.layout(ctx, name)
	}
	if err == nil && len(t.leaders) > 1 {
		err = fmt.Errorf("it is there with %d partitions, and is to have one", len(t.leaders))
	}
	if err != nil {
		return fmt.Errorf("kafkabroker: creating topic %s: %w", name, err)
	}
	return nil
}

// keyDeleteRecords is the request that cuts logs off at their beginning. kafka-go does not have it.
const keyDeleteRecords = 21

// Trim deletes what is stored below an offset, by partition. It cannot be undone. A log is cut at its beginning only: Kafka
// deletes no single messages.
func (v *LogView) Trim(ctx context.Context, name string, before map[int32]int64) error {
	t, err := v.layout(ctx, name)
	if err != nil {
		return fmt.Errorf("kafkabroker: trimming topic %s: %w", name, err)
	}
	var errs []error
	for _, no := range slices.Sorted(maps.Keys(before)) {
		if no < 0 || int(no) >= len(t.leaders) {
			errs = append(errs, fmt.Errorf("kafkabroker: trimming topic %s: there is no partition %d", name, no))
			continue
		}
		if before[no] < 0 { // Kafka takes -1 for the log's end
			errs = append(errs, fmt.Errorf("kafkabroker: trimming topic %s, partition %d: there is no offset %d", name, no, before[no]))
			continue
		}
		if err := v.trim(ctx, t, no, before[no]); err != nil {
			errs = append(errs, fmt.Errorf("kafkabroker: trimming topic %s, partition %d, up to offset %d: %w", name, no, before[no], err))
		}
	}
	return errors.Join(errs...)
}

// trim does it in one partition, and asks who leads it after a try that failed. The topic may have been made anew by then: the
// offset is of the one before.
func (v *LogView) trim(ctx context.Context, t topic, no int32, before int64) error {
	return v.cfg.persist(ctx, func() error {
		err := v.c.deleteRecords(ctx, t.leaders[no], partitionID{t.name, no}, before)
		if !passing(err) {
			return err
		}
		switch now, lerr := v.look(ctx, t.name); {
		case lerr != nil:
		case now.id != t.id || int(no) >= len(now.leaders):
			return errRecreated
		default:
			t = now
		}
		return err
	})
}

// deleteRecords is DeleteRecords, version 1 (Apache Kafka's protocol guide).
func (c *cluster) deleteRecords(ctx context.Context, leader int32, p partitionID, before int64) error {
	if _, err := c.pick(ctx, leader, keyDeleteRecords, 1); err != nil {
		return err
	}
	w := writer{}
	w.array(1)
	w.str(p.topic)
	w.array(1)
	w.i32(p.no)
	w.i64(before)
	w.i32(int32(c.timeout.Milliseconds()))
	r, err := c.do(ctx, leader, keyDeleteRecords, 1, w.b)
	if err != nil {
		return err
	}
	return readDeleted(r, p)
}

func readDeleted(r *reader, p partitionID) error {
	r.i32()
	if r.array() != 1 || r.str() != p.topic || r.array() != 1 || r.i32() != p.no {
		return errShort
	}
	r.i64() // where the log begins now
	if err := codeErr(r.i16()); err != nil {
		return err
	}
	return r.err()
}
