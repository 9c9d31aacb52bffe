package letterheader_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
)

func full() letterheader.Headers {
	at := time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC)
	return letterheader.Headers{
		Topic: "orders", Partition: 3, Offset: 42, ID: "7-1", Time: at, Attempts: 5, FirstFailure: at.Add(time.Second),
		LastFailure: at.Add(time.Minute), Class: "panic", Error: "no tea", Handler: "mail", RetryAt: at.Add(time.Hour),
	}
}

// What is written is read again, and each header is known to be a letter's own.
func TestAppendAndRead(t *testing.T) {
	h := full()
	hs := h.Append(nil)
	if len(hs) != 12 {
		t.Errorf("%d headers of 12", len(hs))
	}
	for _, one := range hs {
		if !broker.IsLetterHeader(one.Key) {
			t.Errorf("%s is not known as a header of a letter", one.Key)
		}
	}
	if got := letterheader.Read(broker.NewHeaders(hs...)); got != h {
		t.Errorf("read %+v, want %+v", got, h)
	}
}

// What is not known is not written.
func TestAppendWhatIsKnown(t *testing.T) {
	h := letterheader.Headers{Topic: "orders", Partition: -1, Offset: -1}
	hs := h.Append(nil)
	if len(hs) != 2 || hs[0].Key != broker.HeaderOriginalTopic || hs[1].Key != broker.HeaderAttempts {
		t.Errorf("wrote %v", hs)
	}
	if got := letterheader.Read(broker.NewHeaders(hs...)); got != h {
		t.Errorf("read %+v, want %+v", got, h)
	}
}

func TestForeign(t *testing.T) {
	spring := broker.Header{Key: "kafka_dlt-original-topic", Value: []byte("spring")}
	connect := broker.Header{Key: "__connect.errors.topic", Value: []byte("connect")}
	own := broker.Header{Key: "kafka_dl", Value: []byte("x")}
	for want, h := range map[string]broker.Headers{
		"spring": broker.NewHeaders(own, connect, spring), "connect": broker.NewHeaders(connect, own), "": broker.NewHeaders(own),
	} {
		if got := letterheader.ForeignTopic(h); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !letterheader.IsForeign(spring.Key) || !letterheader.IsForeign(connect.Key) || letterheader.IsForeign(own.Key) {
		t.Error("foreign headers are told from others by their beginning")
	}
}

// FuzzRead: whatever a header says, reading does not panic, and what was read is written and read the same.
func FuzzRead(f *testing.F) {
	for _, h := range func() []broker.Header { x := full(); return x.Append(nil) }() {
		f.Add(h.Key, h.Value)
	}
	f.Add(broker.HeaderOriginalOffset, []byte("-7"))
	f.Add(broker.HeaderAttempts, []byte("99999999999"))
	f.Add(broker.HeaderRetryAt, []byte("0000-01-01T00:00:00Z"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		h := letterheader.Read(broker.NewHeaders(broker.Header{Key: key, Value: value}))
		if h.Partition < -1 || h.Offset < -1 || h.Attempts < 0 {
			t.Fatalf("read %+v", h)
		}
		again := letterheader.Read(broker.NewHeaders(h.Append(nil)...))
		for _, pair := range [][2]*time.Time{
			{&h.Time, &again.Time}, {&h.FirstFailure, &again.FirstFailure}, {&h.LastFailure, &again.LastFailure}, {&h.RetryAt,
				&again.RetryAt},
		} {
			if pair[0].Equal(*pair[1]) {
				*pair[1] = *pair[0] // perhaps in another zone
			}
		}
		if again != h {
			t.Fatalf("read %+v, and of that written %+v", h, again)
		}
	})
}
