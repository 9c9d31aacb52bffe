package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/compress"

	"github.com/longshoremq/longshore/broker"
)

// A testBatch builds a record batch as a broker would send it.
type testBatch struct {
	base       int64
	offsets    []int64 // of its records
	last       int64   // 0: that of the last record
	codec      compress.Compression
	attrs      uint16
	producer   int64
	abort      bool // a control batch that aborts
	value      func(o int64) []byte
	headers    []broker.Header
	count      int32 // 0: as many as there are
	body       []byte
	corrupt    func(b []byte)
	afterwards func(b []byte) // after the checksum was written
}

func (tb testBatch) records() (b []byte) {
	for _, o := range tb.offsets {
		r := []byte{0}
		r = binary.AppendVarint(r, 5) // ms after the first
		r = binary.AppendVarint(r, o-tb.base)
		key := []byte(fmt.Sprintf("k%d", o))
		if tb.attrs&attrControl != 0 {
			key = []byte{0, 0, 0, 1}
			if tb.abort {
				key[3] = 0
			}
		}
		r = append(binary.AppendVarint(r, int64(len(key))), key...)
		value := []byte(fmt.Sprintf("v%d", o))
		if tb.value != nil {
			value = tb.value(o)
		}
		if value == nil {
			r = binary.AppendVarint(r, -1)
		} else {
			r = append(binary.AppendVarint(r, int64(len(value))), value...)
		}
		r = binary.AppendVarint(r, int64(len(tb.headers)))
		for _, h := range tb.headers {
			r = append(binary.AppendVarint(r, int64(len(h.Key))), h.Key...)
			r = append(binary.AppendVarint(r, int64(len(h.Value))), h.Value...)
		}
		b = append(binary.AppendVarint(b, int64(len(r))), r...)
	}
	return b
}

func (tb testBatch) bytes() []byte {
	body := tb.body
	if body == nil {
		body = tb.records()
	}
	if tb.codec != 0 {
		var z bytes.Buffer
		w := tb.codec.Codec().NewWriter(&z)
		_, _ = w.Write(body)
		_ = w.Close()
		body = z.Bytes()
	}
	last := tb.last
	if last == 0 && len(tb.offsets) > 0 {
		last = tb.offsets[len(tb.offsets)-1]
	}
	count := tb.count
	if count == 0 {
		count = int32(len(tb.offsets))
	}
	b := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint64(b, uint64(tb.base))
	b[atMagic] = 2
	binary.BigEndian.PutUint16(b[atAttrs:], tb.attrs|uint16(tb.codec))
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(last-tb.base))
	binary.BigEndian.PutUint64(b[atFirstTime:], 1_700_000_000_000)
	binary.BigEndian.PutUint64(b[atMaxTime:], 1_700_000_000_999)
	binary.BigEndian.PutUint64(b[atProducer:], uint64(tb.producer))
	binary.BigEndian.PutUint32(b[atCount:], uint32(count))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-12))
	if tb.corrupt != nil {
		tb.corrupt(b)
	}
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttrs:], castagnoli))
	if tb.afterwards != nil {
		tb.afterwards(b)
	}
	return b
}

func offsets(from, to int64) (os []int64) {
	for o := from; o < to; o++ {
		os = append(os, o)
	}
	return os
}

func join(bs ...testBatch) (raw []byte) {
	for _, b := range bs {
		raw = append(raw, b.bytes()...)
	}
	return raw
}

func readAll(d *decoder) (got []int64, err error) {
	var r record
	for {
		ok, err := d.next(&r)
		if err != nil || !ok {
			return got, err
		}
		got = append(got, r.offset)
	}
}

func TestDecoderCodecs(t *testing.T) {
	for codec := range compress.Compression(5) {
		raw := join(testBatch{base: 3, offsets: offsets(3, 103), codec: codec,
			headers: []broker.Header{{Key: "a", Value: []byte("x")}, {Key: "a", Value: []byte("y")}}})
		d := newDecoder(raw, 3, 1000, false, nil, 1<<20)
		var r record
		for o := int64(3); o < 103; o++ {
			if ok, err := d.next(&r); !ok || err != nil {
				t.Fatalf("codec %v: %v, %v", codec, ok, err)
			}
			var m broker.Message
			r.fill(&m, "t", 1)
			v, _ := m.Headers.Get("a")
			if m.Offset != o || string(m.Key) != fmt.Sprintf("k%d", o) || string(m.Value) != fmt.Sprintf("v%d", o) || string(v) != "y" ||
				m.Headers.Len() != 2 {
				t.Fatalf("codec %v: message %+v", codec, m)
			}
			if m.Nanos != 1_700_000_000_005_000_000 {
				t.Fatalf("time is %v", m.Time())
			}
		}
		if ok, err := d.next(&r); ok || err != nil || d.at != 103 {
			t.Errorf("codec %v: at the end %v, %v, at %d", codec, ok, err, d.at)
		}
	}
}

func TestDecoderNil(t *testing.T) {
	raw := join(testBatch{offsets: offsets(0, 2), value: func(o int64) []byte {
		if o == 0 {
			return nil
		}
		return []byte{}
	}})
	d := newDecoder(raw, 0, 10, false, nil, 1<<20)
	var r record
	if _, err := d.next(&r); err != nil || r.value != nil {
		t.Errorf("a tombstone's value is %v, %v", r.value, err)
	}
	if _, err := d.next(&r); err != nil || r.value == nil {
		t.Errorf("an empty value is nil, %v", err)
	}
}

// TestFill: nothing of what a message held before stays in it, but the claim, which Receive sets.
func TestFill(t *testing.T) {
	dirty := broker.Message{Topic: "old", Partition: 9, Offset: 9, Name: "old", Key: []byte("old"), Value: []byte("old"),
		Headers: broker.Headers{Raw: []byte{2, 0, 0}, Codec: headerCodec{}}, Nanos: 9, Attempt: 9, Runs: 9, Crashes: 9, Token: 9}
	if v := reflect.ValueOf(dirty); slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
		return f.Name != "Claim" && v.FieldByIndex(f.Index).IsZero()
	}) >= 0 {
		t.Fatal("a field of the message is not tested")
	}
	r := record{offset: 1, nanos: 2, value: []byte("new")}
	r.fill(&dirty, "t", 3)
	want := broker.Message{Topic: "t", Partition: 3, Offset: 1, Nanos: 2, Value: []byte("new"), Attempt: 1}
	if !reflect.DeepEqual(dirty, want) {
		t.Errorf("it is %+v, want %+v", dirty, want)
	}
}

// TestDecoderLogs has the logs that other readers loop on, stall at or hand out wrongly.
func TestDecoderLogs(t *testing.T) {
	for _, c := range []struct {
		name      string
		raw       []byte
		from      int64
		committed bool
		aborted   []aborted
		want      []int64
		at        int64
	}{
		{name: "nothing", at: 0},
		{name: "from the middle", raw: join(testBatch{offsets: offsets(0, 10)}), from: 4, want: offsets(4, 10), at: 10},
		{name: "a batch that is below", raw: join(testBatch{offsets: offsets(0, 5)}, testBatch{base: 5, offsets: offsets(5, 8)}),
			from: 5, want: offsets(5, 8), at: 8},
		{name: "compacted holes", raw: join(testBatch{offsets: []int64{1, 4, 7}, last: 9}), want: []int64{1, 4, 7}, at: 10},
		{name: "compacted tail, gzip", raw: join(testBatch{offsets: []int64{1}, last: 19, codec: compress.Gzip}), want: []int64{1},
			at: 20},
		{name: "an empty batch", raw: join(testBatch{offsets: offsets(0, 3)}, testBatch{base: 3, last: 19}), want: offsets(0, 3),
			at: 20},
		{name: "cut short by the broker", raw: join(testBatch{offsets: offsets(0, 3)},
			testBatch{base: 3, offsets: offsets(3, 9)})[:150], want: offsets(0, 3), at: 3},
		{name: "control", raw: join(testBatch{offsets: offsets(0, 1), attrs: attrTransactional},
			testBatch{base: 1, offsets: offsets(1, 2), attrs: attrTransactional | attrControl}), want: []int64{0}, at: 2},
		{name: "aborted", committed: true, aborted: []aborted{{7, 2}, {9, 0}}, at: 10, want: []int64{4, 5, 8, 9}, raw: join(
			testBatch{base: 0, offsets: offsets(0, 2), attrs: attrTransactional, producer: 9},
			testBatch{base: 2, offsets: offsets(2, 4), attrs: attrTransactional, producer: 7},
			testBatch{base: 4, offsets: offsets(4, 6)},
			testBatch{base: 6, offsets: offsets(6, 7), attrs: attrTransactional | attrControl, producer: 9, abort: true},
			testBatch{base: 7, offsets: offsets(7, 8), attrs: attrTransactional | attrControl, producer: 7, abort: true},
			testBatch{base: 8, offsets: offsets(8, 10), attrs: attrTransactional, producer: 9})},
		{name: "aborted, uncommitted", aborted: []aborted{{9, 0}}, at: 2, want: offsets(0, 2),
			raw: join(testBatch{offsets: offsets(0, 2), attrs: attrTransactional, producer: 9})},
	} {
		d := newDecoder(c.raw, c.from, 1000, c.committed, c.aborted, 1<<20)
		got, err := readAll(d)
		if err != nil || !slices.Equal(got, c.want) || d.at != c.at {
			t.Errorf("%s: %v, next %d, %v; want %v, next %d", c.name, got, d.at, err, c.want, c.at)
		}
	}
}

// TestDecoderLies has batches that must be an error with a position: b12 to b16.
func TestDecoderLies(t *testing.T) {
	ten := offsets(0, 10)
	put32 := func(at int, v uint32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], v) }
	}
	huge := binary.AppendVarint(nil, 1<<40)
	headers := func(n int64) []byte {
		r := append([]byte{0, 0, 0, 0, 0}, binary.AppendVarint(nil, n)...)
		return append(binary.AppendVarint(nil, int64(len(r))), r...)
	}
	for _, c := range []struct {
		name, want string
		b          testBatch
		next       int64
	}{
		{"checksum", "checksum", testBatch{offsets: ten, afterwards: func(b []byte) { b[70] ^= 1 }}, 10},
		{"checksum, and the header differs", "checksum", testBatch{offsets: ten, afterwards: func(b []byte) { b[atLastDelta+2] ^= 1 }},
			1},
		{"count too large", "cut short", testBatch{offsets: ten, count: 11, last: 10}, 11},
		{"count too small", "left behind", testBatch{offsets: ten, count: 9}, 10},
		{"count absurd", "2147483647 records", testBatch{offsets: ten, count: math.MaxInt32, last: math.MaxInt32 - 1}, 1},
		{"count negative", "-1 records", testBatch{offsets: ten, count: -1}, 10},
		{"header count 2^60", "headers", testBatch{offsets: offsets(0, 1), body: headers(1 << 60)}, 1},
		{"header count 2^27", "headers", testBatch{offsets: offsets(0, 1), body: headers(1 << 27)}, 1},
		{"record length 2^40", "cut short", testBatch{offsets: offsets(0, 1), body: append(huge, make([]byte, 20)...)}, 1},
		{"codec 7", "codec 7", testBatch{offsets: ten, attrs: 7}, 10},
		{"not gzip", "gzip", testBatch{offsets: ten, attrs: 1}, 10},
		{"not snappy", "snappy", testBatch{offsets: ten, attrs: 2}, 10},
		{"not lz4", "lz4", testBatch{offsets: ten, attrs: 3}, 10},
		{"not zstd", "zstd", testBatch{offsets: ten, attrs: 4}, 10},
		{"format 1", "format 1", testBatch{offsets: ten, corrupt: func(b []byte) { b[atMagic] = 1 }}, 1},
		{"length negative", "batch of -5 bytes", testBatch{offsets: ten, corrupt: put32(atLength, 0xfffffffb)}, 1},
		{"length too large", "ends within", testBatch{offsets: ten, corrupt: put32(atLength, 1<<20)}, 1},
		{"above the log's end", "log ends", testBatch{base: 995, offsets: offsets(995, 1010)}, 1},
		{"last below base", "from offset 5 to -11",
			testBatch{base: 5, offsets: offsets(5, 6), corrupt: put32(atLastDelta, 0xfffffff0)}, 1},
		{"offsets fall", "record offset 1", testBatch{offsets: []int64{1, 1}, last: 9}, 10},
		{"offset above its batch", "record offset 9", testBatch{offsets: []int64{9}, last: 3}, 4},
	} {
		if c.name == "count absurd" {
			c.want = "log ends"
		}
		d := newDecoder(c.b.bytes(), 0, 1000, false, nil, 1<<20)
		_, err := readAll(d)
		var be *batchError
		if !errors.As(err, &be) || !strings.Contains(err.Error(), c.want) || be.next != c.next {
			t.Errorf("%s: %v, %+v; want %q, next %d", c.name, err, be, c.want, c.next)
		}
	}
}

// TestDecoderFarOffsets: an offset that a token has no room for would be taken for another one when its message is settled.
func TestDecoderFarOffsets(t *testing.T) {
	for _, c := range []struct {
		last int64
		want string // of the error; empty: there is none
	}{
		{maxOffset, ""},
		{maxOffset + 1, "batch from offset"},
	} {
		raw := join(testBatch{base: maxOffset - 1, offsets: offsets(maxOffset-1, c.last+1)})
		rs, err := readAll(newDecoder(raw, maxOffset-1, math.MaxInt64, false, nil, 1<<20))
		if c.want == "" && (err != nil || len(rs) != 2) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("up to %d: offsets %v, %v; want %q", c.last, rs, err, c.want)
		}
		for _, o := range rs {
			if of, gen := splitToken(token(o, 0)); of != o || gen != 0 {
				t.Errorf("the token of offset %d is of %d, generation %d", o, of, gen)
			}
		}
	}
}

// TestDecoderBomb proves that a small batch which inflates beyond the limit is refused without taking the memory.
func TestDecoderBomb(t *testing.T) {
	zeros := make([]byte, 64<<20)
	for codec := compress.Compression(1); codec < 5; codec++ {
		raw := join(testBatch{offsets: offsets(0, 1), codec: codec, body: zeros})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readAll(newDecoder(raw, 0, 10, false, nil, 4<<20))
		runtime.ReadMemStats(&after)
		if err == nil || !errors.Is(err, errTooLarge) {
			t.Errorf("codec %v, %d bytes: %v", codec, len(raw), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("codec %v: %d MB were allocated to refuse a batch, with a limit of 4 MB", codec, took>>20)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	for codec := range compress.Compression(5) {
		f.Add(join(testBatch{offsets: offsets(0, 5), codec: codec}, testBatch{base: 5, offsets: []int64{6}, last: 9}), int64(2), true)
	}
	f.Add(join(testBatch{offsets: offsets(0, 2), attrs: attrTransactional | attrControl}), int64(0), true)
	f.Fuzz(func(t *testing.T, raw []byte, from int64, reseal bool) {
		from &= maxOffset
		if reseal && len(raw) > headerSize { // get past the checksum
			size := int64(int32(binary.BigEndian.Uint32(raw[atLength:]))) + 12
			if size > headerSize && size <= int64(len(raw)) {
				raw = bytes.Clone(raw)
				binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttrs:size], castagnoli))
			}
		}
		d := newDecoder(raw, from, 1<<40, true, []aborted{{1, 0}}, 1<<16)
		var r record
		prev, n := from-1, 0
		for {
			ok, err := d.next(&r)
			if err != nil {
				var be *batchError
				if !errors.As(err, &be) || be.next <= from {
					t.Fatalf("error without a way on: %v", err)
				}
				return
			}
			if !ok {
				break
			}
			if r.offset <= prev || r.offset >= 1<<40 {
				t.Fatalf("offset %d after %d", r.offset, prev)
			}
			var m broker.Message
			r.fill(&m, "t", 0)
			for range m.Headers.All() {
			}
			if prev, n = r.offset, n+1; n > len(raw)*1<<16 {
				t.Fatal("it does not end")
			}
		}
		if d.at < from {
			t.Fatalf("next is %d, below %d", d.at, from)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add([]byte{2, 2, 'a', 2, 'x'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := broker.Headers{Raw: raw, Codec: headerCodec{}}
		n := 0
		for k := range h.All() {
			if _, found := h.Get(k); !found {
				t.Fatalf("All yields %q, Get does not find it", k)
			}
			n++
			if n > 1000 {
				break
			}
		}
		if n <= 1000 && h.Len() != n {
			t.Fatalf("Len is %d, All yields %d", h.Len(), n)
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	raw := join(testBatch{offsets: offsets(0, 1000), value: func(int64) []byte { return make([]byte, 100) }})
	b.ReportAllocs()
	var m broker.Message
	for b.Loop() {
		d := newDecoder(raw, 0, 1<<40, false, nil, 1<<20)
		var r record
		for ok, _ := d.next(&r); ok; ok, _ = d.next(&r) {
			r.fill(&m, "t", 0)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/msg")
}
