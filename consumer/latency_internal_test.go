package consumer

import (
	"math"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestLatencyOfOldMessages: who reads a log again from its beginning has messages that are weeks old, and many of them: together
// they are older than a Duration can say.
func TestLatencyOfOldMessages(t *testing.T) {
	const week, messages = 7 * 24 * time.Hour, 40_000
	now := time.Now().UnixNano()
	ms := make([]broker.Message, messages)
	for i := range ms {
		ms[i].Nanos = now - int64(week)
	}
	var a ages
	a.add(ms[:messages/2], now)
	a.add(ms[messages/2:], now)
	want := messages * week.Seconds()
	if l := a.latency(); l.Sum != math.MaxInt64 || math.Abs(l.Seconds-want) > 1 || l.Buckets[len(l.Buckets)-1] != messages {
		t.Errorf("%+v, want a sum of %v s", l, want)
	}
}
