package kafkabroker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// receiveOne opens a source and returns the first message.
func (ts *testSystem) receiveOne(t *testing.T) (m broker.Message) {
	t.Helper()
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 8 << 20},
		Observe: func(broker.Event) {}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	dst := make([]broker.Message, 1)
	if _, err := s.Receive(dst); err != nil {
		t.Fatal(err)
	}
	if err := s.Ack(dst[0].Claim, []uint64{dst[0].Token}); err != nil {
		t.Error(err)
	}
	return dst[0]
}

// TestOddHeaders: very many headers, large ones, the same key twice, bytes that are no text, line breaks, and names that
// longshore reserves for itself arrive as they were sent, and change nothing of what the adapter knows itself (b10, b11).
func TestOddHeaders(t *testing.T) {
	t.Parallel()
	onEach(t, 1, testOddHeaders)
}

func testOddHeaders(t *testing.T, ts *testSystem) {
	sent := []kgo.RecordHeader{
		{Key: "twice", Value: []byte("first")}, {Key: "twice", Value: []byte("second")},
		{Key: "large", Value: bytes.Repeat([]byte("x"), 64<<10)},
		{Key: "bytes \xff\xfe", Value: []byte{0, 0xff, '\r', '\n'}},
		{Key: "line\r\nbreak: 1", Value: nil}, {Key: "", Value: []byte{}},
	}
	for _, forged := range []string{"-1", "9223372036854775808", "abc", "\x00"} {
		sent = append(sent, kgo.RecordHeader{Key: broker.HeaderAttempts, Value: []byte(forged)})
	}
	for len(sent) < 10_000 {
		sent = append(sent, kgo.RecordHeader{Key: fmt.Sprintf("h%d", len(sent)), Value: []byte("v")})
	}
	if err := ts.admin.ProduceSync(context.Background(),
		&kgo.Record{Topic: ts.topics[0], Value: []byte("x"), Headers: sent}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	m := ts.receiveOne(t)
	if n := m.Headers.Len(); n != len(sent) {
		t.Errorf("%d headers came, want %d", n, len(sent))
	}
	i := 0
	for k, v := range m.Headers.All() {
		if k != sent[i].Key || !bytes.Equal(v, sent[i].Value) || (v == nil) != (sent[i].Value == nil) {
			t.Fatalf("header %d is %q: %q, want %q: %q", i, k, v, sent[i].Key, sent[i].Value)
		}
		i++
	}
	if v, _ := m.Headers.Get("twice"); string(v) != "second" {
		t.Errorf("of two headers Get returns %q, want the last one", v)
	}
	if m.Attempt != 1 || m.Runs != 0 {
		t.Errorf("attempt %d after %d runs: forged headers are believed", m.Attempt, m.Runs)
	}
}

// TestOddTimes: what a producer says of the time is clamped to what a time can hold, and nothing else depends on it (b26).
func TestOddTimes(t *testing.T) {
	for name, at := range map[string]time.Time{"292278994": time.UnixMilli(math.MaxInt64 - 5), "1970": time.Unix(0, 0),
		"before 1970": time.Unix(-1000, 0), "9999": time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSystem(t, 1, 1)
			b := testBatch{offsets: []int64{0}, corrupt: func(b []byte) {
				unproduced(b)
				binary.BigEndian.PutUint64(b[atFirstTime:], uint64(at.UnixMilli()-5)) // its record is of 5 ms later
			}}
			produceRaw(t, ts.admin, ts.topics[0], b.bytes())
			want := at
			if latest := time.Unix(0, math.MaxInt64).Truncate(time.Millisecond); at.After(latest) {
				want = latest
			}
			if m := ts.receiveOne(t); !m.Time().Equal(want) {
				t.Errorf("the time is %v, want %v", m.Time(), want)
			}
			eventually(t, "it is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
	for ms, want := range map[int64]int64{-1: -1_000_000, math.MaxInt64: math.MaxInt64 / 1_000_000 * 1_000_000,
		math.MinInt64: math.MinInt64 / 1_000_000 * 1_000_000} {
		if got := nanosOf(ms); got != want {
			t.Errorf("%d ms are %d ns, want %d", ms, got, want)
		}
	}
}
