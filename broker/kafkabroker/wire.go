package kafkabroker

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
)

// A writer builds a request's body. flexible is the encoding of newer versions: compact lengths (one more than the length, as an
// unsigned varint), and a section of tagged fields, always empty here, at the end of each struct.
type writer struct {
	b        []byte
	chunks   []chunk
	flexible bool
}

// A chunk is bytes of a body that are not copied into it: they stand before b[at].
type chunk struct {
	at    int
	bytes []byte
}

func (w *writer) i8(v int8)      { w.b = append(w.b, byte(v)) }
func (w *writer) i16(v int16)    { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) i32(v int32)    { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) i64(v int64)    { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *writer) id(v [16]byte)  { w.b = append(w.b, v[:]...) }
func (w *writer) bool(v bool)    { w.b = append(w.b, map[bool]byte{true: 1}[v]) }
func (w *writer) compact(n int)  { w.b = binary.AppendUvarint(w.b, uint64(n+1)) }
func (w *writer) bytes(v []byte) { w.array(len(v)); w.b = append(w.b, v...) }

// refer is bytes without a copy: v must stay as it is until the request is answered.
func (w *writer) refer(v []byte) {
	w.array(len(v))
	w.chunks = append(w.chunks, chunk{len(w.b), v})
}

// array writes the length of an array or of bytes; -1 is null.
func (w *writer) array(n int) {
	if w.flexible {
		w.compact(n)
		return
	}
	w.i32(int32(n))
}

func (w *writer) str(s string) {
	if w.flexible {
		w.compact(len(s))
	} else {
		w.i16(int16(len(s)))
	}
	w.b = append(w.b, s...)
}

// nullable writes null for the empty string.
func (w *writer) nullable(s string) {
	switch {
	case s != "":
		w.str(s)
	case w.flexible:
		w.compact(-1)
	default:
		w.i16(-1)
	}
}

// partitions writes partitions by their topics, and of each what each writes. Topics come in order, partitions as they are given.
func (w *writer) partitions(ps []partitionID, each func(partitionID)) {
	by := make(map[string][]partitionID)
	for _, p := range ps {
		by[p.topic] = append(by[p.topic], p)
	}
	w.array(len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		w.str(name)
		w.array(len(by[name]))
		for _, p := range by[name] {
			each(p)
		}
		w.tags()
	}
}

// number writes what a partition is within its topic.
func (w *writer) number(p partitionID) { w.i32(p.no) }

func (w *writer) tags() {
	if w.flexible {
		w.b = append(w.b, 0)
	}
}

var errShort = errors.New("response is malformed")

// A reader reads a response's body, which is hostile input, and sticks to its first failure. Bytes are not copied.
type reader struct {
	b        []byte
	flexible bool
	cut      bool // what follows did not come
	bad      bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) i8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) i16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) i32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) i64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// partition reads a partition's number, which is never negative: who has it looks it up by that.
func (r *reader) partition() int32 {
	no := r.i32()
	if no < 0 {
		r.bad, r.b = true, nil
	}
	return no
}

func (r *reader) id() (v [16]byte) {
	copy(v[:], r.take(16))
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// array reads the length of an array whose elements take at least one byte each; null is 0.
func (r *reader) array() int {
	n := r.length()
	if n > int64(len(r.b)) {
		r.bad, r.b = true, nil
	}
	if n < 0 || r.bad {
		return 0
	}
	return int(n)
}

// length reads a length, whatever is there; null is -1.
func (r *reader) length() int64 {
	if r.flexible {
		return int64(min(r.uvarint(), math.MaxInt32)) - 1
	}
	return int64(r.i32())
}

// each reads the elements of an array.
func (r *reader) each(element func()) {
	for n := r.array(); n > 0 && !r.bad; n-- {
		element()
	}
}

// bytes is nil for null.
func (r *reader) bytes() []byte { return r.take(r.array()) }

// records are bytes that end where the answer was cut off.
func (r *reader) records() []byte {
	if !r.cut {
		return r.bytes()
	}
	return r.take(int(min(max(r.length(), 0), int64(len(r.b)))))
}

func (r *reader) str() string {
	if r.flexible {
		return string(r.bytes())
	}
	if n := r.i16(); n > 0 {
		return string(r.take(int(n)))
	}
	return ""
}

// skipStr passes a string, without a copy.
func (r *reader) skipStr() {
	if r.flexible {
		r.bytes()
	} else if n := r.i16(); n > 0 {
		r.take(int(n))
	}
}

// tags skips the tagged fields of a struct.
func (r *reader) tags() { r.tagged(math.MaxUint64) }

// tagged reads one of the tagged fields of a struct, and skips the others; nil: it is not there.
func (r *reader) tagged(which uint64) (field []byte) {
	if !r.flexible {
		return nil
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		tag := r.uvarint()
		if b := r.take(int(min(r.uvarint(), 1<<31))); tag == which {
			field = b
		}
	}
	return field
}

func (r *reader) err() error {
	if r.bad {
		return errShort
	}
	return nil
}
