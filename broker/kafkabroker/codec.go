package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var errTooLarge = errors.New("decompressed batch is over the limit")

// decompress undoes the compression of a batch, with a bound on what comes out: a batch of 7 KB can inflate to gigabytes.
func decompress(codec int, src []byte, limit int) ([]byte, error) {
	switch codec {
	case 0:
		return src, nil
	case 1:
		return inflate("gzip", src, limit, gunzip)
	case 2:
		return unsnap(src, limit)
	case 3:
		return inflate("lz4", src, limit, unlz4)
	case 4:
		return unzstd(src, limit)
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

const (
	// usual is the size up to which a batch is decompressed at once. A larger one is measured first, and decompressed again into
	// just the memory that it needs: one over the limit costs time, but no memory.
	usual = 4 << 20
	// roomy is where memory to decompress into begins.
	roomy = 256 << 10
)

// rooms is memory to decompress into. What came out is copied, as its messages keep it: so it takes no more than it needs, which
// nobody knows before.
var rooms = sync.Pool{New: func() any { b := make([]byte, roomy); return &b }}

// widen makes a room twice as large.
func widen(room *[]byte) { *room = append(*room, make([]byte, len(*room))...) }

// inflate decompresses by a reader, which open makes and its second result frees.
func inflate(name string, src []byte, limit int, open func([]byte) (io.Reader, func(), error)) ([]byte, error) {
	r, free, err := open(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer free()
	room := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	n := 0
	for {
		k, over, err := readFull(r, (*room)[n:])
		n += k
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case n > limit:
			return nil, fmt.Errorf("%s: %w of %d bytes", name, errTooLarge, limit)
		case over:
			return append([]byte{}, (*room)[:n]...), nil
		case n >= usual:
			return inflateAgain(name, src, r, n, limit, open)
		}
		widen(room)
	}
}

// inflateAgain decompresses a large batch, of which n bytes came out of r so far.
func inflateAgain(
	name string, src []byte, r io.Reader, n, limit int, open func([]byte) (io.Reader, func(), error),
) ([]byte, error) {
	rest, err := io.Copy(io.Discard, io.LimitReader(r, int64(limit-n)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(n)+rest > int64(limit) {
		return nil, fmt.Errorf("%s: %w of %d bytes", name, errTooLarge, limit)
	}
	again, free, err := open(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer free()
	b := make([]byte, n+int(rest))
	if _, _, err := readFull(again, b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// readFull reads until b is full. over: the reader has no more. Any other end is an error, a codec's own io.ErrUnexpectedEOF too:
// the data is cut short.
func readFull(r io.Reader, b []byte) (n int, over bool, err error) {
	for n < len(b) {
		k, err := r.Read(b[n:])
		n += k
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// xerial is how snappy's blocks are framed by Java clients: this header with two versions, then blocks with their lengths.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	codecSnappy = 2
	// snappyBlock is how much Java clients compress at once: brokers read one block at a time.
	snappyBlock = 32 << 10
)

// snap appends src to b as Java clients compress it, and returns nil where that does not make it shorter by an eighth. It gives
// up at the first block up to which it does not, so that contents which are compressed already cost little.
func snap(b, src []byte) []byte {
	from := len(b)
	b = append(b, xerial...)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1)
	for done := 0; done < len(src); {
		block := src[done:min(done+snappyBlock, len(src))]
		b = slices.Grow(b, 4+s2.MaxEncodedLen(len(block)))
		at := len(b) + 4
		packed := s2.EncodeSnappy(b[at:cap(b)], block)
		b = binary.BigEndian.AppendUint32(b, uint32(len(packed)))
		b = append(b, packed...) // where they are already
		if done += len(block); len(b)-from > done-done/8 {
			return nil
		}
	}
	return b
}

func unsnap(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerial) {
		n, err := snapped(src, limit)
		if err != nil {
			return nil, err
		}
		return unsnapInto(make([]byte, n), src)
	}
	if len(src) < 16 {
		return nil, errors.New("snappy: short header")
	}
	size := 0
	for b := src[16:]; len(b) > 0; {
		block, rest, err := cutBlock(b)
		if err != nil {
			return nil, err
		}
		n, err := snapped(block, limit-size)
		if err != nil {
			return nil, err
		}
		size, b = size+n, rest
	}
	dst := make([]byte, size)
	at := 0
	for b := src[16:]; len(b) > 0; {
		block, rest, err := cutBlock(b)
		if err != nil {
			return nil, err
		}
		n, err := s2.DecodedLen(block)
		if err != nil {
			return nil, fmt.Errorf("snappy: %w", err)
		}
		if _, err := unsnapInto(dst[at:at+n:at+n], block); err != nil {
			return nil, err
		}
		at, b = at+n, rest
	}
	return dst, nil
}

// cutBlock takes the next block off.
func cutBlock(b []byte) (block, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errors.New("snappy: short block")
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	return b[4:n], b[n:], nil
}

// snapped is how long a block claims to be.
func snapped(block []byte, limit int) (int, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return 0, fmt.Errorf("snappy: %w", err)
	}
	if n > limit {
		return 0, fmt.Errorf("snappy: %w of %d bytes", errTooLarge, limit)
	}
	if n > 32*len(block) { // copies make at most 64 bytes of 3: more is a lie, and not worth the memory
		return 0, errors.New("snappy: the length is impossible")
	}
	return n, nil
}

func unsnapInto(dst, block []byte) ([]byte, error) {
	b, err := s2.Decode(dst, block)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	return b, nil
}

// Readers are used again: each has tables and buffers of many KB.
var gzips, lz4s, zstds, zstdsAtOnce sync.Pool

// A gzipReader reads from what it lets go of when it is free.
type gzipReader struct {
	gzip.Reader
	src bytes.Reader
}

func gunzip(src []byte) (io.Reader, func(), error) {
	z, _ := gzips.Get().(*gzipReader)
	if z == nil {
		z = new(gzipReader)
	}
	z.src.Reset(src)
	err := z.Reset(&z.src)
	return z, func() { z.src.Reset(nil); gzips.Put(z) }, err
}

func unlz4(src []byte) (io.Reader, func(), error) {
	z, _ := lz4s.Get().(*lz4.Reader)
	if z == nil {
		z = lz4.NewReader(nil)
	}
	z.Reset(bytes.NewReader(src))
	return z, func() { z.Reset(nil); lz4s.Put(z) }, nil
}

// zstdWindow is the most that a frame may want to look back: what the strongest ordinary levels use, four times over.
const zstdWindow = 32 << 20

// unzstd decompresses what is of the usual size at once: a reader would keep what it may look back to, and copy it. What that
// cannot do is left to a reader, which knows the limit, and says what is wrong.
func unzstd(src []byte, limit int) ([]byte, error) {
	if b, err := unzstdAtOnce(src); err == nil && len(b) <= limit {
		return b, nil
	}
	return inflate("zstd", src, limit, zstdReader)
}

func unzstdAtOnce(src []byte) ([]byte, error) {
	z, err := newZstd(&zstdsAtOnce, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	defer zstdsAtOnce.Put(z)
	room := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	for {
		b, err := z.DecodeAll(src, (*room)[:0])
		switch {
		case err == nil:
			return append([]byte{}, b...), nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(*room) >= usual:
			return nil, err
		}
		widen(room)
	}
}

func zstdReader(src []byte) (io.Reader, func(), error) {
	z, err := newZstd(&zstds)
	if err != nil {
		return nil, nil, err
	}
	err = z.Reset(bytes.NewReader(src))
	return z, func() { _ = z.Reset(nil); zstds.Put(z) }, err
}

// newZstd is one that nobody uses.
func newZstd(of *sync.Pool, os ...zstd.DOption) (*zstd.Decoder, error) {
	if z, ok := of.Get().(*zstd.Decoder); ok {
		return z, nil
	}
	return zstd.NewReader(nil, append(os, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow))...)
}
