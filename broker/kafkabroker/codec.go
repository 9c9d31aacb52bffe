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
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return readBounded("gzip", z, len(src), limit)
	case 2:
		return unsnap(src, limit)
	case 3:
		return readBounded("lz4", lz4.NewReader(bytes.NewReader(src)), len(src), limit)
	case 4:
		return unzstd(src, limit)
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

func readBounded(name string, r io.Reader, hint, limit int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(min(4*hint, limit) + bytes.MinRead)
	n, err := b.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("%s: %w of %d bytes", name, errTooLarge, limit)
	}
	return b.Bytes(), nil
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

// zstds are decoders by limit; one keeps its tables between batches.
var zstds sync.Map

func unzstd(src []byte, limit int) ([]byte, error) {
	pool, _ := zstds.LoadOrStore(limit, &sync.Pool{})
	z, _ := pool.(*sync.Pool).Get().(*zstd.Decoder)
	if z == nil {
		var err error
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
	}
	defer pool.(*sync.Pool).Put(z)
	b, err := z.DecodeAll(src, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, fmt.Errorf("zstd: %w of %d bytes", errTooLarge, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return b, nil
}
