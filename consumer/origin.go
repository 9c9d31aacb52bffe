package consumer

import (
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// An origin is what the headers of a message of a retry topic say: where it came from, and how it fared. What is missing or
// malformed is left as the message has it: producers may forge headers.
type origin struct {
	topic     string
	partition int32
	offset    int64
	id        string
	nanos     int64
	runs      int32
	first     int64 // when it failed first, Unix nanoseconds
	due       time.Time
}

// maxRuns is more than any limit of attempts, and leaves room to count on.
const maxRuns = 1 << 20

func readOrigin(m *Message) origin {
	o := origin{topic: m.Topic, partition: m.Partition, offset: m.Offset, id: m.ID, nanos: m.Nanos, runs: m.Runs}
	text := func(key string) (string, bool) {
		v, ok := m.Headers.Get(key)
		return string(v), ok
	}
	number := func(key string, bits int) (n int64, ok bool) {
		s, ok := text(key)
		if !ok {
			return 0, false
		}
		n, err := strconv.ParseInt(s, 10, bits)
		return n, err == nil && n >= 0
	}
	moment := func(key string) (t time.Time, ok bool) {
		s, ok := text(key)
		if !ok {
			return t, false
		}
		t, err := time.Parse(time.RFC3339Nano, s)
		return t, err == nil
	}
	if s, ok := text(broker.HeaderOriginalTopic); ok && s != "" {
		o.topic, o.partition, o.offset = s, -1, -1
		o.id, _ = text(broker.HeaderOriginalID)
		if n, ok := number(broker.HeaderOriginalPartition, 32); ok {
			o.partition = int32(n)
		}
		if n, ok := number(broker.HeaderOriginalOffset, 64); ok {
			o.offset = n
		}
	}
	if t, ok := moment(broker.HeaderOriginalTime); ok {
		o.nanos = t.UnixNano()
	}
	if n, ok := number(broker.HeaderAttempts, 32); ok {
		o.runs = max(o.runs, int32(min(n, maxRuns)))
	}
	if t, ok := moment(broker.HeaderFirstFailure); ok {
		o.first = t.UnixNano()
	}
	o.due, _ = moment(broker.HeaderRetryAt)
	return o
}

// restore makes m what it was in its original topic. Token and Claim stay: it is settled where it lies.
func (o origin) restore(m *Message) {
	m.Topic, m.Partition, m.Offset, m.ID, m.Nanos = o.topic, o.partition, o.offset, o.id, o.nanos
	m.Runs, m.Attempt = o.runs, max(m.Attempt, o.runs+1)
	var own []broker.Header
	for k, v := range m.Headers.All() {
		if !broker.IsLetterHeader(k) {
			own = append(own, broker.Header{Key: k, Value: v})
		}
	}
	m.Headers = broker.NewHeaders(own...)
}
