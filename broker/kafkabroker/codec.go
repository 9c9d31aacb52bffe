package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
		return inflate("gzip", src, limit, func() (io.Reader, func(), error) {
			z, err := gzip.NewReader(bytes.NewReader(src))
			return z, func() {}, err
		})
	case 2:
		return unsnap(src, limit)
	case 3:
		return inflate("lz4", src, limit, func() (io.Reader, func(), error) { return lz4.NewReader(bytes.NewReader(src)), func() {}, nil })
	case 4:
		return inflate("zstd", src, limit, func() (io.Reader, func(), error) { return unzstd(src) })
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

// usual is the size up to which a batch is decompressed at once. A larger one is measured first, and decompressed again into just
// the memory that it needs: one over the limit costs time, but no memory.
const usual = 4 << 20

func inflate(name string, src []byte, limit int, open func() (io.Reader, func(), error)) ([]byte, error) {
	read := func(b []byte) (n int, more bool, rest int64, err error) {
		r, done, err := open()
		if err != nil {
			return 0, false, 0, err
		}
		defer done()
		for n < len(b) {
			k, err := r.Read(b[n:])
			n += k
			if err == io.EOF {
				return n, false, 0, nil
			}
			if err != nil { // a codec's own io.ErrUnexpectedEOF too: the data is cut short
				return n, false, 0, err
			}
		}
		rest, err = io.Copy(io.Discard, io.LimitReader(r, int64(limit-n)+1))
		return n, rest > 0, rest, err
	}
	for size := min(max(4*len(src), 4<<10), usual, limit); ; {
		b := make([]byte, size)
		n, more, rest, err := read(b)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case int64(n)+rest > int64(limit):
			return nil, fmt.Errorf("%s: %w of %d bytes", name, errTooLarge, limit)
		case !more:
			return b[:n], nil
		}
		size = n + int(rest)
	}
}

// xerial is how snappy's blocks are framed by Java clients: this header with two versions, then blocks with their lengths.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func unsnap(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerial) {
		return unsnapBlock(nil, src, limit)
	}
	if len(src) < 16 {
		return nil, errors.New("snappy: short header")
	}
	var dst []byte
	for b := src[16:]; len(b) > 0; {
		if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errors.New("snappy: short block")
		}
		n := int(binary.BigEndian.Uint32(b))
		var err error
		if dst, err = unsnapBlock(dst, b[4:4+n], limit); err != nil {
			return nil, err
		}
		b = b[4+n:]
	}
	return dst, nil
}

func unsnapBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	if n > limit-len(dst) {
		return nil, fmt.Errorf("snappy: %w of %d bytes", errTooLarge, limit)
	}
	if n > 32*len(block) { // copies make at most 64 bytes of 3: more is a lie, and not worth the memory
		return nil, errors.New("snappy: the length is impossible")
	}
	b, err := s2.Decode(make([]byte, n), block)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	if dst == nil {
		return b, nil
	}
	return append(dst, b...), nil
}

// zstds keep their tables between batches.
var zstds sync.Pool

// zstdWindow is the most that a frame may want to look back: what the strongest ordinary levels use, four times over.
const zstdWindow = 32 << 20

func unzstd(src []byte) (io.Reader, func(), error) {
	z, _ := zstds.Get().(*zstd.Decoder)
	if z == nil {
		var err error
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, err
		}
	}
	err := z.Reset(bytes.NewReader(src))
	return z, func() { _ = z.Reset(nil); zstds.Put(z) }, err
}
