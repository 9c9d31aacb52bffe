package kafkabroker

import (
	"context"
	"fmt"
)

// Times that ListOffsets takes.
const (
	timeEnd   = -1
	timeStart = -2
)

// isolation is Kafka's word for whether what lies behind open transactions is read: read_uncommitted, or read_committed.
func isolation(uncommitted bool) int8 {
	if uncommitted {
		return 0
	}
	return 1
}

func (c *Config) isolation() int8 { return isolation(c.Uncommitted) }

// A bound is an offset of a partition's log: an end of it, or the first one at or after a time. -1: there is none.
type bound struct {
	offset int64
	err    error
}

// listOffset asks the partition's leader for the first offset at or after a time in ms, or for the log's end or start, as far as
// read, an isolation, lets it. -1: there is none.
func (c *cluster) listOffset(ctx context.Context, leader int32, p partitionID, at int64, read int8) (int64, error) {
	bounds, err := c.listOffsets(ctx, leader, []partitionID{p}, at, read)
	if err != nil {
		return 0, err
	}
	return offsetOf(bounds, p)
}

// offsetOf is the answer for a partition.
func offsetOf(bounds map[partitionID]bound, p partitionID) (int64, error) {
	b, answered := bounds[p]
	if !answered {
		return 0, fmt.Errorf("listing offsets: no answer for %s/%d: %w", p.topic, p.no, errShort)
	}
	if b.err != nil {
		return 0, fmt.Errorf("listing offsets: %s/%d: %w", p.topic, p.no, b.err)
	}
	return b.offset, nil
}

// listOffsets is listOffset for many partitions of one leader.
func (c *cluster) listOffsets(
	ctx context.Context, leader int32, ps []partitionID, at int64, read int8,
) (map[partitionID]bound, error) {
	if _, err := c.pick(ctx, leader, keyListOffsets, 5); err != nil {
		return nil, err
	}
	w := writer{}
	w.i32(-1)
	w.i8(read)
	w.partitions(ps, func(p partitionID) {
		w.i32(p.no)
		w.i32(-1) // leader epoch
		w.i64(at)
	})
	r, err := c.do(ctx, leader, keyListOffsets, 5, w.b)
	if err != nil {
		return nil, err
	}
	bounds, err := readBounds(r)
	for p, b := range bounds {
		if b.err == nil && b.offset < 0 && (at == timeStart || at == timeEnd) { // each log has both
			bounds[p] = bound{b.offset, fmt.Errorf("%s/%d is at offset %d: %w", p.topic, p.no, b.offset, errShort)}
		}
	}
	return bounds, err
}

func readBounds(r *reader) (map[partitionID]bound, error) {
	r.i32()
	at := make(map[partitionID]bound)
	for n := r.array(); n > 0 && !r.bad; n-- {
		name := r.str()
		for m := r.array(); m > 0 && !r.bad; m-- {
			no, code := r.i32(), r.i16()
			r.i64()
			at[partitionID{name, no}] = bound{r.i64(), codeErr(code)}
			r.i32()
		}
	}
	return at, r.err()
}
