package kafkabroker

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A producer is who writes batches: an id and its epoch, by which the broker knows a repetition and who was replaced.
type producer struct {
	id    int64
	epoch int16
}

const (
	produceVersion  = 7
	atProducerEpoch = 51
	atSequence      = 53
	// batchLimit is how large a batch is made, unless one record is larger: brokers take a megabyte by default.
	batchLimit = 900 << 10
	// recordOverhead is more than what a record needs beside key, value and headers.
	recordOverhead = 40
)

// A batch is records of one partition on their way to its leader. They are written as they come, behind room for the header.
type outBatch struct {
	partitionID
	leader int32
	buf    []byte
	n      int
	size   int // in bytes, before it was compressed
	codec  uint16
	// keyless: some record of it has no key
	keyless bool
}

// newOutBatch makes one with room for so many bytes of records.
func newOutBatch(p partitionID, leader int32, size int) *outBatch {
	b := &outBatch{partitionID: p, leader: leader}
	if size >= spareLeast && size <= batchLimit {
		if spare, ok := spares.Get().(*[]byte); ok {
			b.buf = (*spare)[:headerSize]
			clear(b.buf)
			return b
		}
		size = batchLimit
	}
	b.buf = make([]byte, headerSize, headerSize+size)
	return b
}

// spares is the memory of large batches that were written: to make it anew, and empty, would cost as much as to fill it.
var spares sync.Pool

// spareLeast is from what size on a batch takes memory that was used before.
const spareLeast = batchLimit / 4

// spare lets others use its memory. Nobody may read it any more: the request that it was sent with is answered.
func (b *outBatch) spare() {
	if buf := b.buf; cap(buf) == headerSize+batchLimit {
		spares.Put(&buf)
	}
	b.buf = nil
}

// add writes a record, whose tail it is.
func (b *outBatch) add(tail []byte) {
	b.buf = appendRecord(b.buf, tail, b.n)
	b.n++
	b.size = len(b.buf)
}

// leastSqueezed is from how many bytes of records on a batch is compressed.
const leastSqueezed = 1 << 10

// squeeze compresses what was added, where that makes it shorter. Nothing can be added any more.
func (b *outBatch) squeeze() {
	records := b.buf[headerSize:]
	if len(records) < leastSqueezed {
		return
	}
	to := newOutBatch(b.partitionID, b.leader, len(records))
	if packed := snap(to.buf, records); packed != nil {
		b.buf, to.buf = packed, b.buf
		b.codec = codecSnappy
	}
	to.spare()
}

// encode completes a batch of format 2, of a transaction.
func (b *outBatch) encode(by producer, sequence int32, now time.Time) []byte {
	seal(b.buf, attrTransactional|b.codec, by, sequence, b.n, now)
	return b.buf
}

// nextSequence is the sequence of the record behind n: the highest is followed by 0.
func nextSequence(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}

// seal writes a batch's header, when its n records stand behind that.
func seal(buf []byte, attrs uint16, by producer, sequence int32, n int, now time.Time) {
	be := binary.BigEndian
	be.PutUint32(buf[atLength:], uint32(len(buf)-atEpoch))
	be.PutUint32(buf[atEpoch:], 0xffffffff) // the leader's epoch is the leader's to write
	buf[atMagic] = 2
	be.PutUint16(buf[atAttrs:], attrs)
	be.PutUint32(buf[atLastDelta:], uint32(n-1))
	be.PutUint64(buf[atFirstTime:], uint64(now.UnixMilli()))
	be.PutUint64(buf[atMaxTime:], uint64(now.UnixMilli()))
	be.PutUint64(buf[atProducer:], uint64(by.id))
	be.PutUint16(buf[atProducerEpoch:], uint16(by.epoch))
	be.PutUint32(buf[atSequence:], uint32(sequence))
	be.PutUint32(buf[atCount:], uint32(n))
	be.PutUint32(buf[atCRC:], crc32.Checksum(buf[atAttrs:], castagnoli))
}

func recordSize(o *broker.Outgoing) int {
	return outgoingSize(o) + recordOverhead + 2*binary.MaxVarintLen32*len(o.Headers)
}

// appendRecord appends record i of a batch.
func appendRecord(b, tail []byte, i int) []byte {
	var delta [binary.MaxVarintLen64]byte
	n := binary.PutVarint(delta[:], int64(i))
	b = binary.AppendVarint(b, int64(2+n+len(tail)))
	b = append(b, 0, 0) // attributes, and how much later it is than the first
	b = append(b, delta[:n]...)
	return append(b, tail...)
}

// appendTail appends what a record has that does not depend on its place in a batch.
func appendTail(b []byte, o *broker.Outgoing) []byte {
	b = appendBytes(b, o.Key)
	b = appendBytes(b, o.Value)
	n := len(o.Headers)
	if o.ID != "" {
		n++
	}
	b = binary.AppendVarint(b, int64(n))
	for _, h := range o.Headers {
		b = appendBytes(append(binary.AppendVarint(b, int64(len(h.Key))), h.Key...), h.Value)
	}
	if o.ID != "" {
		b = append(binary.AppendVarint(b, int64(len(broker.HeaderID))), broker.HeaderID...)
		b = append(binary.AppendVarint(b, int64(len(o.ID))), o.ID...)
	}
	return b
}

// appendBytes writes nil as null.
func appendBytes(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

// batchesOf spreads messages over the partitions of their topics, and cuts what goes to each into batches. What goes to a
// partition keeps its order. rounds[i] has the i-th batch of each: a request takes one of a partition. limit is how large those
// of a topic may be, with more than one message.
func batchesOf(outs []*broker.Outgoing, layouts map[string]topic, limit func(topic string) int,
	by partitioner) (rounds [][]*outBatch) {
	type last struct { // of a partition
		b     *outBatch
		round int
		left  int // bytes of records that are in no batch yet
		limit int
	}
	type goal struct { // a topic
		parts   []last
		keyless keyless
	}
	var (
		topics = make(map[string]*goal)
		to     = make([]int32, len(outs)) // the number of each one's partition
		now    *goal                      // of the message before
		name   string
		tail   []byte
	)
	topicOf := func(o *broker.Outgoing) *goal {
		if now == nil || o.Topic != name {
			if name = o.Topic; topics[name] == nil {
				all := make([]last, len(layouts[name].leaders))
				for i, most := 0, limit(name); i < len(all); i++ {
					all[i].limit = most
				}
				topics[name] = &goal{parts: all}
			}
			now = topics[name]
		}
		return now
	}
	for i, o := range outs {
		of := topicOf(o)
		to[i] = by.partition(o, len(of.parts), &of.keyless)
		of.parts[to[i]].left += recordSize(o)
	}
	for i, o := range outs {
		at, size := &topicOf(o).parts[to[i]], recordSize(o)
		if at.b == nil || len(at.b.buf)+size > at.limit {
			if at.b != nil {
				at.round++
			}
			at.b = newOutBatch(partitionID{o.Topic, to[i]}, layouts[o.Topic].leaders[to[i]], max(size, min(at.left, at.limit)))
			for len(rounds) <= at.round {
				rounds = append(rounds, nil)
			}
			rounds[at.round] = append(rounds[at.round], at.b)
		}
		at.left -= size
		tail = appendTail(tail[:0], o)
		at.b.add(tail)
		at.b.keyless = at.b.keyless || o.Key == nil
	}
	return rounds
}

// produceBody is Produce, in a transaction or "" in none. The batches are not copied.
func produceBody(version int16, transaction string, timeout time.Duration, batches map[partitionID][]byte) (body []byte,
	chunks []chunk) {
	w := writer{flexible: version >= flexibleSince[keyProduce]}
	w.nullable(transaction)
	w.i16(-1) // all replicas in sync
	w.i32(int32(timeout.Milliseconds()))
	w.partitions(slices.Collect(maps.Keys(batches)), func(p partitionID) {
		w.i32(p.no)
		w.refer(batches[p])
		w.tags()
	})
	w.tags()
	return w.b, w.chunks
}

// A produced is what the leader says of a batch: a code, the offset of its first record, and why it did not write it, where it
// says more than the code.
type produced struct {
	code    int16
	base    int64
	message string
}

// readProduced reads what is said of each partition's batch.
func readProduced(r *reader) (map[partitionID]produced, error) {
	answered := make(map[partitionID]produced)
	r.each(func() {
		name := r.str()
		r.each(func() {
			no := r.i32()
			of := produced{code: r.i16(), base: r.i64()}
			of.message = r.restOfBatch()
			answered[partitionID{name, no}] = of
		})
		r.tags()
	})
	return answered, r.err()
}

// skipProduced goes behind what is said of all partitions.
func skipProduced(r *reader) {
	r.each(func() {
		r.skipStr()
		r.each(func() {
			r.take(4 + 2 + 8)
			r.restOfBatch()
		})
		r.tags()
	})
}

// restOfBatch passes the rest of what is said of one, and returns its message.
func (r *reader) restOfBatch() (message string) {
	r.i64() // time
	r.i64() // the log's start
	if r.flexible {
		r.each(func() { r.i32(); r.str(); r.tags() }) // which records are wrong, and why
		message = r.str()
		r.tags()
	}
	return message
}
