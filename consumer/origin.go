package consumer

import (
	"bytes"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
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
	first     time.Time // when it failed first
	last      time.Time // and last
	due       time.Time
}

// maxRuns is more than any limit of attempts, and leaves room to count on.
const maxRuns = 1 << 20

func readOrigin(m *Message) origin {
	o := origin{topic: m.Topic, partition: m.Partition, offset: m.Offset, id: m.ID(), nanos: m.Nanos, runs: m.Runs}
	h := letterheader.Read(m.Headers)
	if h.Topic != "" {
		o.topic, o.partition, o.offset, o.id = h.Topic, h.Partition, h.Offset, h.ID
	}
	if !h.Time.IsZero() {
		o.nanos = h.Time.UnixNano()
	}
	o.runs = max(o.runs, min(h.Attempts, maxRuns))
	o.first, o.last, o.due = h.FirstFailure, h.LastFailure, h.RetryAt
	return o
}

// idOfJetStream is where JetStream has Outgoing.ID: a header, as if the message had it of its own, and one of each way through a
// retry topic would stay with it.
const idOfJetStream = "Nats-Msg-Id"

// restore makes m what it was in its original topic. Token and Claim stay: it is settled where it lies. who is Config.who.
func (o origin) restore(m *Message, who string) {
	m.Topic, m.Partition, m.Offset, m.Nanos = o.topic, o.partition, o.offset, o.nanos
	if m.Name = ""; o.offset < 0 { // the headers have no log, and the retry topic's is not the one that Offset counts in
		m.Name = o.id
	}
	m.Runs, m.Attempt = o.runs, max(m.Attempt, o.runs+1)
	var own []broker.Header
	id := []byte(letterID(m, who) + "/")
	for k, v := range m.Headers.All() {
		if !broker.IsLetterHeader(k) && (k != idOfJetStream || !bytes.HasPrefix(v, id)) {
			own = append(own, broker.Header{Key: k, Value: v})
		}
	}
	m.Headers = broker.NewHeaders(own...)
}
