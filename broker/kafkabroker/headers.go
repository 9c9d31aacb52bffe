package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/longshoremq/longshore/broker"
)

// headerCodec reads the headers of a record (format 2): varint count, then each with varint length and key, varint length and
// value; a length of -1 is a nil value.
type headerCodec struct{}

var _ broker.HeaderCodec = headerCodec{}

// Len counts what is there, and not what the count claims.
func (c headerCodec) Len(raw []byte) (n int) {
	for range c.each(raw) {
		n++
	}
	return n
}

func (c headerCodec) Get(raw []byte, key string) (value []byte, found bool) {
	for k, v := range c.each(raw) {
		if string(k) == key {
			value, found = v, true
		}
	}
	return value, found
}

func (c headerCodec) All(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for k, v := range c.each(raw) {
			if !yield(string(k), v) {
				return
			}
		}
	}
}

func (headerCodec) each(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		r := recordReader{b: raw}
		for n := r.varint(); n > 0; n-- {
			k, v := r.bytes(), r.bytes()
			if r.bad || !yield(k, v) {
				return
			}
		}
	}
}

// A recordReader reads the fields of a record, and sticks to its first failure. It counts up an index rather than cutting the
// slice: this is the hottest code there is, and each write of a slice costs a barrier while the garbage collector works.
type recordReader struct {
	b   []byte
	i   int // where to go on
	bad bool
}

// left is how many bytes there are still.
func (r *recordReader) left() int { return len(r.b) - r.i }

// rest is all that was not read.
func (r *recordReader) rest() []byte { return r.b[r.i:] }

// clone is a reader of what was not read, in memory of its own.
func (r *recordReader) clone() recordReader {
	return recordReader{b: bytes.Clone(r.rest()), bad: r.bad}
}

func (r *recordReader) fail() { r.bad, r.i = true, len(r.b) }

func (r *recordReader) varint() int64 {
	if r.i < len(r.b) && r.b[r.i] < 0x80 { // most are this short
		c := r.b[r.i]
		r.i++
		return int64(c>>1) ^ -int64(c&1)
	}
	return r.longVarint()
}

func (r *recordReader) longVarint() int64 {
	if r.i+1 < len(r.b) && r.b[r.i+1] < 0x80 {
		u := int64(r.b[r.i]&0x7f) | int64(r.b[r.i+1])<<7
		r.i += 2
		return u>>1 ^ -(u & 1)
	}
	v, n := binary.Varint(r.rest())
	if n <= 0 {
		r.fail()
		return 0
	}
	r.i += n
	return v
}

// bytes reads a length and so many bytes; nil for the length -1.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n == -1 && !r.bad {
		return nil
	}
	return r.take(n)
}

func (r *recordReader) take(n int64) []byte {
	if n < 0 || n > int64(r.left()) {
		r.fail()
		return nil
	}
	from := r.i
	r.i += int(n)
	return r.b[from:r.i:r.i]
}
