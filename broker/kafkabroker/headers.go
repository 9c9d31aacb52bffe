package kafkabroker

import (
	"encoding/binary"
	"iter"

	"github.com/longshoremq/longshore/broker"
)

// headerCodec reads the headers of a record (format 2): varint count, then each with varint length and key, varint length and value; a
// length of -1 is a nil value.
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

// A recordReader reads the fields of a record, and sticks to its first failure.
type recordReader struct {
	b   []byte
	bad bool
}

func (r *recordReader) varint() int64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most are this short
		v := int64(r.b[0]>>1) ^ -int64(r.b[0]&1)
		r.b = r.b[1:]
		return v
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a length and so many bytes; nil for the length -1.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n < 0 && n == -1 && !r.bad {
		return nil
	}
	return r.take(n)
}

func (r *recordReader) take(n int64) []byte {
	if n < 0 || n > int64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
