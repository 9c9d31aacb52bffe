package kafkabroker

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"strings"
)

// metadataLimit is the broker's offset.metadata.max.bytes by default: a commit with a longer string is refused as a whole.
const metadataLimit = 4096

// maxOffset bounds offsets, so that a token can carry one beside a generation. At a million messages a second it is reached after
// 8 years.
const maxOffset = 1<<48 - 1

// metadataPrefix tells our strings from those of other clients; its last digit is the version of the format.
const metadataPrefix = "ls1."

// suspectPrefix is that of strings with a suspect. A release that does not know it takes them for another client's.
const suspectPrefix = "ls2."

// A span is the offsets from, from+1, …, to-1.
type span struct{ from, to int64 }

// A failedRuns says how often the message at an offset was run and failed.
type failedRuns struct {
	offset int64
	runs   int32
}

// A suspect is a message that is run alone, for processes ended above it, and the process that does so.
type suspect struct {
	offset int64
	by     uint64
}

// A progress is what is committed of a partition: an offset, and in its metadata string what is known above it.
type progress struct {
	// base is the committed offset: all below it is finished.
	base int64
	// log names the log, by the first half of the topic's id; 0: unknown. What is finished in one log says nothing of another.
	log uint64
	// starts is how many processes began to work at base and have not told that they ended well.
	starts int
	// suspect is what the owner ran alone when it wrote this down; nil: nothing.
	suspect *suspect
	// first is how many partitions the topic had when the group began with it, and one; 0: unknown. One with a higher number was
	// added later: all of it is the group's, whatever Config.Start says.
	first int
	// done are the finished offsets above base, sorted and disjoint.
	done []span
	// runs is sorted by offset. It is kept as far as there is room.
	runs []failedRuns
}

// The kinds of a map of finished offsets. The smaller one is written.
const (
	mapNone    = 0
	mapBits    = 1 // bit i of byte j: offset base+8j+i is finished
	mapLengths = 2 // uvarints: how many are unfinished, how many finished, and so on

	withFirst = 0x80 // a bit beside the kind
)

// mostFirst bounds progress.first.
const mostFirst = 1 << 24

// encode writes the metadata string, at most limit bytes long. What does not fit is left out: finished offsets from the highest
// down, then runs. It is done again after a crash, and never lost.
//
// The layout before base64: 8 bytes log, uvarint starts, 1 byte kind, uvarint length and the map, pairs of uvarints (offset above
// the one before, runs), 4 bytes of sumAt. With a suspect its offset above base, an uvarint, and 8 bytes of its process come
// behind starts. With first, an uvarint, it comes behind kind; where there is room for no more than must be there it is left out.
func (p progress) encode(limit int) string {
	room := (limit-len(metadataPrefix))*3/4 - 4
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 256), p.log)
	b = binary.AppendUvarint(b, uint64(p.starts))
	prefix := metadataPrefix
	if p.suspect != nil {
		prefix = suspectPrefix
		b = binary.AppendUvarint(b, uint64(p.suspect.offset-p.base))
		b = binary.BigEndian.AppendUint64(b, p.suspect.by)
	}
	var first []byte
	if p.first > 0 && limit > leastMetadata {
		first = binary.AppendUvarint(nil, uint64(p.first))
	}
	kind, m := p.encodeMap(room - len(b) - 4 - len(first))
	if first != nil {
		kind |= withFirst
	}
	b = append(append(b, kind), first...)
	b = binary.AppendUvarint(b, uint64(len(m)))
	b = append(b, m...)
	last := p.base
	for _, r := range p.runs {
		if r.offset < last || r.runs <= 0 {
			continue
		}
		next := binary.AppendUvarint(b, uint64(r.offset-last))
		next = binary.AppendUvarint(next, uint64(r.runs))
		if len(next) > room {
			break
		}
		b, last = next, r.offset
	}
	b = binary.BigEndian.AppendUint32(b, sumAt(p.base, b))
	return prefix + base64.RawStdEncoding.EncodeToString(b)
}

// sumAt is the checksum, a CRC-32C, of what stands beside an offset. The offset is in it: a tool that reads commits, changes
// their offsets and writes them again hands on our string as well, in which all is relative to the offset before. What is
// finished above that one says nothing of what stands as far above another.
func sumAt(base int64, b []byte) uint32 {
	at := binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(base))
	return crc32.Update(crc32.Checksum(at, castagnoli), castagnoli, b)
}

// mostEncoded is what no metadata string exceeds whose finished offsets lie within width offsets of base.
func mostEncoded(width int64, runs int) int {
	const fixed, perRun = 8 + 3 + 1 + 4 + 5 + 4, binary.MaxVarintLen64 + binary.MaxVarintLen32
	return len(metadataPrefix) + int((fixed+width/8+1+int64(runs)*perRun)*4/3+1)
}

// encodeMap returns the map that knows most, or the shorter one of two that know all.
func (p progress) encodeMap(room int) (kind byte, m []byte) {
	if len(p.done) == 0 {
		return mapNone, nil
	}
	lengths, byLength := p.lengths(room)
	set, bySet := p.bitset(room)
	if bySet > byLength || bySet == byLength && len(set) < len(lengths) {
		return mapBits, set
	}
	return mapLengths, lengths
}

// lengths also says how many finished offsets it has.
func (p progress) lengths(room int) (m []byte, knows int64) {
	at := p.base
	for _, s := range p.done {
		next := binary.AppendUvarint(m, uint64(s.from-at))
		next = binary.AppendUvarint(next, uint64(s.to-s.from))
		if len(next) > room {
			break
		}
		m, at = next, s.to
		knows += s.to - s.from
	}
	return m, knows
}

func (p progress) bitset(room int) (m []byte, knows int64) {
	width := min(p.done[len(p.done)-1].to-p.base, 8*int64(room))
	m = make([]byte, (width+7)/8)
	for _, s := range p.done {
		for o := s.from - p.base; o < min(s.to-p.base, width); o++ {
			m[o/8] |= 1 << (o % 8)
			knows++
		}
	}
	return m, knows
}

var errMetadata = errors.New("commit metadata is malformed")

// decodeMetadata reads a metadata string. A string of another client gives base alone and no error. A malformed one of ours gives
// base alone and an error: what was finished above base is done again.
func decodeMetadata(base int64, s string) (progress, error) {
	plain := progress{base: base}
	text, ours := strings.CutPrefix(s, metadataPrefix)
	suspects := false
	if !ours {
		text, ours = strings.CutPrefix(s, suspectPrefix)
		suspects = ours
	}
	if !ours {
		return plain, nil
	}
	if len(s) > 4*metadataLimit {
		return plain, fmt.Errorf("%w: %d bytes", errMetadata, len(s))
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return plain, fmt.Errorf("%w: %w", errMetadata, err)
	}
	if len(b) < 4 || sumAt(base, b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return plain, fmt.Errorf("%w, or of another offset: checksum", errMetadata)
	}
	p, ok := parseMetadata(base, b[:len(b)-4], suspects)
	if !ok {
		return plain, errMetadata
	}
	return p, nil
}

func parseMetadata(base int64, b []byte, suspects bool) (p progress, ok bool) {
	p.base = base
	r := varints{b: b}
	p.log = r.fixed64()
	p.starts = int(r.uint(1 << 20))
	if suspects {
		p.suspect = &suspect{offset: base + int64(r.uint(maxOffset)), by: r.fixed64()}
		r.bad = r.bad || p.suspect.offset > maxOffset
	}
	kind := r.byte()
	if kind&withFirst != 0 {
		kind &^= withFirst
		p.first = int(r.uint(mostFirst))
		r.bad = r.bad || p.first == 0
	}
	m := r.bytes(int(r.uint(uint64(len(b)))))
	switch {
	case r.bad:
		return p, false
	case kind == mapBits:
		p.done = spansOf(base, m)
	case kind == mapLengths:
		if p.done, ok = spansOfLengths(base, m); !ok {
			return p, false
		}
	case kind != mapNone || len(m) > 0:
		return p, false
	}
	at := base
	for len(r.b) > 0 {
		at += int64(r.uint(maxOffset))
		n := int32(r.uint(1<<31 - 1))
		if r.bad || at > maxOffset || n == 0 || len(p.runs) > 0 && p.runs[len(p.runs)-1].offset == at {
			return p, false
		}
		p.runs = append(p.runs, failedRuns{at, n})
	}
	return p, (len(p.done) == 0 || p.done[len(p.done)-1].to <= maxOffset) && p.base >= 0
}

func spansOf(base int64, set []byte) (done []span) {
	for j, b := range set {
		for b != 0 {
			i := bits.TrailingZeros8(b)
			n := bits.TrailingZeros8(^(b >> i))
			b &^= byte((1<<n - 1) << i)
			done = appendSpan(done, span{base + int64(8*j+i), base + int64(8*j+i+n)})
		}
	}
	return done
}

func spansOfLengths(base int64, m []byte) (done []span, ok bool) {
	r := varints{b: m}
	for at := base; len(r.b) > 0; {
		from := at + int64(r.uint(maxOffset))
		to := from + int64(r.uint(maxOffset))
		if r.bad || to > maxOffset || to == from || from == at && at > base {
			return nil, false
		}
		done = append(done, span{from, to})
		at = to
	}
	return done, true
}

// appendSpan adds a span behind the others, joining it with the last where they touch.
func appendSpan(spans []span, s span) []span {
	if n := len(spans); n > 0 && spans[n-1].to >= s.from {
		spans[n-1].to = max(spans[n-1].to, s.to)
		return spans
	}
	return append(spans, s)
}

// within says whether an offset is in one of the sorted spans.
func within(spans []span, o int64) bool {
	i, found := slices.BinarySearchFunc(spans, o, func(s span, o int64) int {
		switch {
		case s.to <= o:
			return -1
		case s.from > o:
			return 1
		}
		return 0
	})
	return found && i >= 0
}

// varints reads unsigned varints, each with a bound, and sticks to its first failure.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) fail() { r.bad, r.b = true, nil }

func (r *varints) uint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *varints) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *varints) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *varints) fixed64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}
