package kafkabroker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/longshoremq/longshore/broker"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The layout of a record batch of format 2, the only one since Kafka 0.11: offsets into its header.
const (
	atLength    = 8
	atEpoch     = 12
	atMagic     = 16
	atCRC       = 17
	atAttrs     = 21
	atLastDelta = 23
	atFirstTime = 27
	atMaxTime   = 35
	atProducer  = 43
	atCount     = 57
	headerSize  = 61
	minRecord   = 7 // length, attributes, time, offset, key, value, headers: a byte each
)

const (
	attrCodec         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

// An aborted is a transaction that was aborted: the records of a producer from an offset to its abort marker.
type aborted struct{ producer, first int64 }

// A batchError says that a batch cannot be decoded, and where to go on behind it.
type batchError struct {
	offset int64 // where decoding stopped
	next   int64 // what may be fetched next by who skips it
	err    error
}

func (e *batchError) Error() string {
	return fmt.Sprintf("record batch at offset %d: %v", e.offset, e.err)
}
func (e *batchError) Unwrap() error { return e.err }

// A record is one message of a batch. Its bytes lie in the batch.
type record struct {
	offset  int64
	nanos   int64
	key     []byte
	value   []byte
	headers []byte // for headerCodec; nil where there are none
}

func (r *record) size() int64 { return int64(len(r.key) + len(r.value) + len(r.headers)) }

// A decoder reads the records of a partition's part of a fetch response, which is hostile input: each length is checked against
// what is there, nothing is allocated by a claimed count, and a failure says the position.
type decoder struct {
	raw       []byte // batches not begun
	from      int64  // the offset that was fetched
	at        int64  // the offset to go on from: records below it are not wanted
	high      int64  // records at or above this offset cannot be (high watermark)
	committed bool   // read_committed: drop what was aborted
	aborted   []aborted
	limit     int // of a decompressed batch

	aborting map[int64]bool
	// The batch under way.
	body      recordReader
	left      int
	base      int64
	last      int64 // its last offset
	prev      int64
	firstTime int64
	logTime   int64 // or -1
	any       bool  // a whole batch was seen
	own       bool  // what is left lies in memory of its own
	epoch     int32 // the leader's that wrote it; the highest so far
}

func newDecoder(raw []byte, from, high int64, readCommitted bool, ab []aborted, limit int) *decoder {
	if len(ab) > 1 {
		ab = slices.Clone(ab)
		slices.SortFunc(ab, func(a, b aborted) int { return cmp.Compare(a.first, b.first) })
	}
	return &decoder{raw: raw, from: from, at: from, high: high, committed: readCommitted, aborted: ab, limit: limit, epoch: -1}
}

// keep has what is left lie in memory of its own, for it is not read soon: other partitions came in the same answer, and all of
// that stays in memory as long as any of it.
func (d *decoder) keep() {
	if !d.own {
		d.own, d.raw, d.body = true, bytes.Clone(d.raw), d.body.clone()
	}
}

// next reads one record. false without an error: there are no more, and d.at is what to fetch next.
func (d *decoder) next(r *record) (bool, error) {
	for {
		for d.left > 0 {
			if err := d.record(r); err != nil {
				return false, d.failed(max(d.prev+1, d.at), err)
			}
			if r.offset >= d.at {
				d.at = r.offset + 1
				return true, nil
			}
		}
		if d.body.b != nil {
			if d.body.left() > 0 {
				return false, d.failed(d.at, errors.New("bytes are left behind the last record"))
			}
			d.finish()
		}
		if more, err := d.begin(); !more || err != nil {
			return false, err
		}
	}
}

// finish passes the batch's end, whatever records compaction has left in it.
func (d *decoder) finish() {
	d.body = recordReader{}
	d.at = max(d.at, d.last+1)
}

func (d *decoder) failed(offset int64, err error) error {
	d.left, d.body, d.raw = 0, recordReader{}, nil
	return &batchError{offset: offset, next: max(d.at, d.last) + 1, err: err}
}

// begin starts the next batch. It skips those that have nothing for us; false: there are no more.
func (d *decoder) begin() (bool, error) {
	for {
		b, err := d.cut()
		if b == nil && err == nil && d.any && d.at == d.from { // the same would be asked for again, for ever
			err = d.lied(errors.New("the response ends below the offset that was asked for"))
		}
		if b == nil || err != nil {
			return false, err
		}
		if d.last < d.base || d.last > maxOffset {
			return false, d.lied(fmt.Errorf("batch from offset %d to %d", d.base, d.last))
		}
		if d.last < d.at {
			continue
		}
		if err := d.check(b); err != nil {
			if errors.Is(err, errAhead) && d.at > d.from { // it comes again, as the first one of an answer that is newer
				return false, nil
			}
			return false, err
		}
		attrs := binary.BigEndian.Uint16(b[atAttrs:])
		d.epoch = max(d.epoch, int32(binary.BigEndian.Uint32(b[atEpoch:])))
		if d.drops(b, attrs) || attrs&attrControl != 0 {
			d.at = max(d.at, d.last+1)
			continue
		}
		if err := d.open(b, attrs); err != nil {
			return false, err
		}
		if d.left > 0 || d.body.left() > 0 {
			return true, nil
		}
		d.finish()
	}
}

// hasLater says whether one of the batches that begin below an offset was written by a leader of a later epoch.
func hasLater(raw []byte, below int64, epoch int32) bool {
	for len(raw) >= headerSize && int64(binary.BigEndian.Uint64(raw)) < below {
		if int32(binary.BigEndian.Uint32(raw[atEpoch:])) > epoch {
			return true
		}
		size := 12 + int64(int32(binary.BigEndian.Uint32(raw[atLength:])))
		if size < headerSize || size > int64(len(raw)) {
			break
		}
		raw = raw[size:]
	}
	return false
}

// cut takes the next whole batch off the response. The last one may be cut short by the broker; it comes again with the next
// fetch.
func (d *decoder) cut() ([]byte, error) {
	b := d.raw
	if len(b) < atMagic+1 {
		return nil, d.short(len(b) > 0)
	}
	size := int64(int32(binary.BigEndian.Uint32(b[atLength:])))
	base := int64(binary.BigEndian.Uint64(b))
	if b[atMagic] != 2 {
		return nil, d.lied(fmt.Errorf("record format %d, want 2", b[atMagic]))
	}
	if size < headerSize-12 || base < 0 || base > maxOffset {
		return nil, d.lied(fmt.Errorf("batch of %d bytes with base offset %d", size, base))
	}
	if 12+size > int64(len(b)) {
		if !d.any && size > int64(d.limit) {
			return nil, d.tooLong(b, base, size)
		}
		return nil, d.short(true)
	}
	d.any, d.raw = true, b[12+size:]
	d.base, d.last = base, base+int64(int32(binary.BigEndian.Uint32(b[atLastDelta:])))
	return b[: 12+size : 12+size], nil
}

// tooLong fails at a batch that is longer than any may be: it is not here as a whole, and never will be. Its header has no more
// than itself to be held against.
func (d *decoder) tooLong(b []byte, base, size int64) error {
	err := fmt.Errorf("batch of %d bytes: %w of %d bytes", 12+size, errTooLarge, d.limit)
	if len(b) < headerSize {
		return d.lied(err)
	}
	delta, count := int64(int32(binary.BigEndian.Uint32(b[atLastDelta:]))), int64(int32(binary.BigEndian.Uint32(b[atCount:])))
	if last := base + delta; delta+1 != count || last < d.at || last >= d.high {
		return d.lied(err)
	}
	d.last = base + delta
	return d.failed(d.at, err)
}

// short ends the response. Where not even one batch was whole it would never go on: the broker sends the first one whole.
func (d *decoder) short(rest bool) error {
	d.raw = nil
	if !rest || d.any {
		return nil
	}
	return d.lied(errors.New("the response ends within its first batch"))
}

// lied fails where the header itself cannot be trusted: the next offset is tried next.
func (d *decoder) lied(err error) error {
	d.last = d.at
	return d.failed(d.at, err)
}

// errAhead: a batch is beyond the end that the answer tells. Kafka looks at the high watermark, and then reads up to what it is
// by then (Partition.readRecords, UnifiedLog.read), so what came in between is in the answer, and the next answer's end is behind
// it. One that is beyond that, too, is a lie.
var errAhead = errors.New("the batch is beyond the end of the log")

// check holds the batch's header against itself and the checksum.
func (d *decoder) check(b []byte) error {
	delta, count := d.last-d.base, int64(int32(binary.BigEndian.Uint32(b[atCount:])))
	whole := delta+1 == count // both fields agree, so a skip may trust them
	if got, want := crc32.Checksum(b[atAttrs:], castagnoli), binary.BigEndian.Uint32(b[atCRC:]); got != want {
		err := fmt.Errorf("checksum is %08x, want %08x", got, want)
		if whole && d.last < d.high {
			return d.failed(d.at, err)
		}
		return d.lied(err)
	}
	switch {
	case d.last >= d.high:
		return d.lied(fmt.Errorf("%w: batch from offset %d to %d, the log ends at %d", errAhead, d.base, d.last, d.high))
	case count < 0 || count > delta+1:
		return d.failed(d.at, fmt.Errorf("%d records in a batch of %d offsets", count, delta+1))
	}
	return nil
}

// drops says whether the batch is of an aborted transaction. The broker lists these by their first offset; an abort marker ends
// one.
func (d *decoder) drops(b []byte, attrs uint16) bool {
	if !d.committed || attrs&attrTransactional == 0 {
		return false
	}
	producer := int64(binary.BigEndian.Uint64(b[atProducer:]))
	for len(d.aborted) > 0 && d.aborted[0].first <= d.last {
		if d.aborting == nil {
			d.aborting = make(map[int64]bool)
		}
		d.aborting[d.aborted[0].producer] = true
		d.aborted = d.aborted[1:]
	}
	if attrs&attrControl == 0 {
		return d.aborting[producer]
	}
	r := recordReader{b: b[headerSize:]}
	r.varint()
	r.take(1)
	r.varint()
	r.varint()
	if key := r.bytes(); len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == 0 {
		delete(d.aborting, producer)
	}
	return true
}

// open decompresses the batch and begins its records.
func (d *decoder) open(b []byte, attrs uint16) error {
	body, err := decompress(int(attrs&attrCodec), b[headerSize:], d.limit)
	if err != nil {
		return d.failed(d.at, err)
	}
	count := int(int32(binary.BigEndian.Uint32(b[atCount:])))
	if count > len(body)/minRecord {
		return d.failed(d.at, fmt.Errorf("%d records in %d bytes", count, len(body)))
	}
	if body == nil {
		body = []byte{}
	}
	d.body, d.left, d.prev = recordReader{b: body}, count, d.base-1
	d.firstTime, d.logTime = int64(binary.BigEndian.Uint64(b[atFirstTime:])), -1
	if attrs&attrAppendTime != 0 {
		d.logTime = int64(binary.BigEndian.Uint64(b[atMaxTime:]))
	}
	return nil
}

var (
	errRecord  = errors.New("record is cut short")
	errHeaders = errors.New("record headers are malformed")
)

func (d *decoder) record(r *record) error {
	d.left--
	e := recordReader{b: d.body.bytes()}
	if d.body.bad {
		return errRecord
	}
	e.take(1)
	ms := d.firstTime + e.varint()
	delta := e.varint()
	r.offset = d.base + delta
	r.key, r.value = e.bytes(), e.bytes()
	if e.bad {
		return errRecord
	}
	if delta < 0 || r.offset <= d.prev || r.offset > d.last {
		return fmt.Errorf("record offset %d in a batch from %d to %d, after %d", r.offset, d.base, d.last, d.prev)
	}
	if d.logTime >= 0 {
		ms = d.logTime
	}
	r.nanos = nanosOf(ms)
	if r.headers = e.rest(); len(r.headers) == 1 && r.headers[0] == 0 {
		r.headers = nil
	} else if !wellFormed(r.headers) {
		return errHeaders
	}
	d.prev = r.offset
	return nil
}

// wellFormed checks the headers' count against what is there, so that no count can make a reader allocate.
func wellFormed(raw []byte) bool {
	r := recordReader{b: raw}
	n := r.varint()
	if n < 0 || n > int64(r.left()/2) {
		return false
	}
	for ; n > 0 && !r.bad; n-- {
		if r.bytes() == nil && !r.bad { // a key cannot be nil
			return false
		}
		r.bytes()
	}
	return !r.bad && r.left() == 0
}

// nanosOf clamps what a producer may write: years 1677 to 2262 fit.
func nanosOf(ms int64) int64 {
	return min(max(ms, math.MinInt64/1_000_000), math.MaxInt64/1_000_000) * 1_000_000
}

// fill writes a record into a message, but for what the tracker and the claim know. Field by field: assigning the whole struct
// costs a barrier for each of its pointers, twice, while the garbage collector works.
func (r *record) fill(m *broker.Message, topic string, partition int32) {
	m.Topic, m.Partition, m.Offset, m.Name = topic, partition, r.offset, ""
	m.Key, m.Value, m.Nanos = r.key, r.value, r.nanos
	m.Attempt, m.Runs, m.Crashes, m.Token = 1, 0, 0, 0
	m.Headers.Raw, m.Headers.Codec = r.headers, nil
	if r.headers != nil {
		m.Headers.Codec = headerCodec{}
	}
}
