package consumer

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// FuzzOrigin: what was written of a message is what is read of it; and whatever the headers say, reading them does not panic and
// leaves a message that can be handled.
func FuzzOrigin(f *testing.F) {
	f.Add("orders", int32(3), int64(42), int64(1_700_000_000_000_000_000), int32(2), "Longshore-Attempts", []byte("x"))
	f.Add("", int32(-1), int64(-1), int64(0), int32(0), "Longshore-Retry-At", []byte("9999-12-31T23:59:59Z"))
	f.Fuzz(func(t *testing.T, topic string, partition int32, offset, nanos int64, runs int32, key string, value []byte) {
		if topic == "" || partition < -1 || offset < -1 || runs < 0 || runs > maxRuns || nanos < 0 {
			return // no message is like that
		}
		m := &Message{Topic: topic, Partition: partition, Offset: offset, Nanos: nanos,
			Headers: broker.NewHeaders(broker.Header{Key: key, Value: value})}
		forged := *m
		forged.Headers = broker.NewHeaders(broker.Header{Key: broker.HeaderAttempts, Value: value},
			broker.Header{Key: key, Value: value})
		o := readOrigin(&forged)
		if o.restore(&forged, "who"); forged.Topic == "" || forged.Runs < 0 || forged.Attempt < 1 || forged.Partition < -1 ||
			forged.Offset < -1 {
			t.Errorf("%+v of forged headers", forged)
		}

		x := letter{failed: Failed{Message: m, Err: errors.New("e"), Runs: runs}, item: item{m: m},
			began: time.Unix(0, nanos), last: time.Unix(0, nanos), step: RetryStep{Topic: "retry"}, topic: "retry"}
		out := outgoing(x, "name")
		back := &Message{Topic: "retry", Partition: 7, Offset: 9, Headers: broker.NewHeaders(out.Headers...)}
		readOrigin(back).restore(back, "who")
		if back.Topic != topic || back.Partition != partition || back.Offset != offset || back.Nanos != nanos || back.Runs != runs ||
			back.Attempt != runs+1 {
			t.Errorf("got %+v, want %+v with %d runs", back, m, runs)
		}
		if v, ok := back.Headers.Get(key); !broker.IsLetterHeader(key) && (!ok || !bytes.Equal(v, value)) || back.Headers.Len() > 1 {
			t.Errorf("its own header %q is %q, want %q; %d headers", key, v, value, back.Headers.Len())
		}
	})
}
