package kafkabroker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// packed is what a codec makes of bytes.
func packed(t testing.TB, codec int, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch codec {
	case 1:
		z := gzip.NewWriter(&b)
		_, err = z.Write(plain)
		err = errors.Join(err, z.Close())
	case 2:
		return s2.EncodeSnappy(nil, plain)
	case 3:
		z := lz4.NewWriter(&b)
		_, err = z.Write(plain)
		err = errors.Join(err, z.Close())
	case 4:
		z, e := zstd.NewWriter(nil)
		if e != nil {
			t.Fatal(e)
		}
		return z.EncodeAll(plain, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repeated is n bytes that compress well, as records do.
func repeated(n int) (b []byte) {
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"order":%d,"state":"shipped"}`, i)
	}
	return b[:n]
}

// TestDecompressMemory: what a batch is decompressed into is as large as what comes out, and readers are used again with
// their buffers.
func TestDecompressMemory(t *testing.T) {
	const batches = 20
	for codec := 1; codec <= 4; codec++ {
		for _, size := range []int{20 << 10, 300 << 10, 3 << 20} {
			t.Run(fmt.Sprint("codec ", codec, ", ", size, " bytes"), func(t *testing.T) {
				plain := repeated(size)
				src := packed(t, codec, plain)
				got, err := decompress(codec, src, 64<<20)
				if err != nil || !bytes.Equal(got, plain) {
					t.Fatalf("%d bytes came out of %d, %v", len(got), size, err)
				}
				if slack := cap(got) - len(got); slack > size/4+1024 {
					t.Errorf("%d bytes are kept for nothing", slack)
				}
				n := allocated(func() {
					for range batches {
						if _, err := decompress(codec, src, 64<<20); err != nil {
							t.Error(err)
						}
					}
				})
				// A garbage collection may empty the pools once or twice on the way.
				if most := uint64(batches*(size+size/4+2048) + 4*(usual+1<<20)); n > most && !raceDetector() { // which has pools lose some
					t.Errorf("%d batches took %d bytes, want at most %d", batches, n, most)
				}
			})
		}
	}
}

// TestDecompressLimit: what comes out is bounded, below and above the size from which a batch is measured first.
func TestDecompressLimit(t *testing.T) {
	for _, size := range []int{1000, 300 << 10, usual, usual + 1} {
		plain := repeated(size)
		for codec := 1; codec <= 4; codec++ {
			src := packed(t, codec, plain)
			for limit, ok := range map[int]bool{size: true, size - 1: false, size / 2: false} {
				got, err := decompress(codec, src, limit)
				if (err == nil) != ok || ok && !bytes.Equal(got, plain) {
					t.Errorf("codec %d, %d bytes with a limit of %d: %d bytes, %v", codec, size, limit, len(got), err)
				}
			}
		}
	}
}

// TestDecompressForms: clients write one codec in several forms. Each is decompressed, and bounded.
func TestDecompressForms(t *testing.T) {
	for name, tc := range map[string]struct {
		codec int
		pack  func(t *testing.T, plain []byte) []byte
	}{
		"gzip in two members": {1, func(t *testing.T, plain []byte) []byte { return inTwo(t, 1, plain) }},
		"lz4 in two frames":   {3, func(t *testing.T, plain []byte) []byte { return inTwo(t, 3, plain) }},
		"lz4 in small blocks": {3, func(t *testing.T, plain []byte) []byte { // as Java clients do
			return streamed(t, plain, func(w io.Writer) (io.WriteCloser, error) {
				z := lz4.NewWriter(w)
				return z, z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))
			})
		}},
		"zstd in two frames": {4, func(t *testing.T, plain []byte) []byte { return inTwo(t, 4, plain) }},
		"zstd without its size": {4, func(t *testing.T, plain []byte) []byte { // as Java clients do
			return streamed(t, plain, func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) })
		}},
		"zstd that looks far back": {4, func(t *testing.T, plain []byte) []byte {
			return streamed(t, plain, func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithWindowSize(16<<20)) })
		}},
	} {
		for _, size := range []int{1, 20 << 10, 300 << 10, usual - 1, usual, usual + 1, 2*usual + 1} {
			t.Run(fmt.Sprint(name, ", ", size, " bytes"), func(t *testing.T) {
				plain := repeated(size)
				src := tc.pack(t, plain)
				for limit, ok := range map[int]bool{64 << 20: true, size: true, size - 1: false} {
					got, err := decompress(tc.codec, src, limit)
					if errors.Is(err, errTooLarge) == ok || ok && (err != nil || !bytes.Equal(got, plain)) {
						t.Errorf("with a limit of %d: %d bytes, %v", limit, len(got), err)
					}
				}
			})
		}
	}
}

// inTwo is bytes packed as two streams, one behind the other.
func inTwo(t *testing.T, codec int, plain []byte) []byte {
	half := len(plain) / 2
	return append(packed(t, codec, plain[:half]), packed(t, codec, plain[half:])...)
}

// streamed is bytes packed by a writer that does not know how many there will be.
func streamed(t *testing.T, plain []byte, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := open(&b)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(plain); at += 1000 {
		if _, err := z.Write(plain[at:min(at+1000, len(plain))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func BenchmarkDecompress(b *testing.B) {
	for codec, name := range []string{1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"} {
		if name == "" {
			continue
		}
		src := packed(b, codec, repeated(200<<10))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(200 << 10)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decompress(codec, src, 64<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestDecompressAfterDamage: a reader that met damage is as good as new for the next batch.
func TestDecompressAfterDamage(t *testing.T) {
	plain := repeated(300 << 10)
	for codec := 1; codec <= 4; codec++ {
		src := packed(t, codec, plain)
		for at := 0; at < len(src); at += max(1, len(src)/40) {
			bad := bytes.Clone(src)
			bad[at] ^= 0x5a
			_, _ = decompress(codec, bad, 1<<20)
			_, _ = decompress(codec, src[:at], 1<<20)
			_, _ = decompress(codec, src, len(plain)/2)
			if got, err := decompress(codec, src, 1<<20); err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("codec %d, after damage at %d: %d bytes, %v", codec, at, len(got), err)
			}
		}
	}
}
