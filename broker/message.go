package broker

import (
	"bytes"
	"time"
)

// A Message is one message as the handler sees it, by pointer.
//
// Its bytes are never written again, so a handler may keep them and the message itself. They usually lie in a fetch buffer
// of up to several MiB that lives as long as any of them: keep a [Message.Clone] where that matters.
//
// A handler reads the message and leaves it as it is: it is handed over again after a failure, and published as a dead letter,
// with whatever stands in it then, for nothing is copied before a call. To hand on another payload, as a middleware does that
// decompresses or decrypts, copy the struct, set the copy's Value, and hand that on; to change bytes in place, take a
// [Message.Clone]. append(m.Value, ...) writes into no other message.
type Message struct {
	// Topic is the Kafka topic or the NATS subject.
	Topic string
	// Partition is the Kafka partition; -1 where the broker has none.
	Partition int32
	// Attempt is the broker's best estimate of which try this is, 1 at first. How far to trust it: Traits.Attempts.
	Attempt int32
	// Offset is the Kafka offset or the JetStream stream sequence; -1 where the broker does not number its messages so.
	Offset int64
	// Name names the log that Offset counts in, or, where Offset is -1, the message itself. It is what Log and ID tell, which say
	// more; they share a field because no message has both.
	Name string
	// Key is nil where the message has none.
	Key []byte
	// Value is nil for a tombstone, where the broker can tell that from an empty value.
	Value []byte
	// Headers are decoded when they are looked at.
	Headers Headers
	// Nanos is the message's Unix time in nanoseconds, set by the producer or the broker: the same at each delivery. See Time.
	Nanos int64

	// Runs is how many handler runs of this message are known to have failed before: a lower bound, 0 when nothing is known.
	// An adapter reports here what it was told by Back.Runs, as far as it can keep that (commit metadata, memory).
	Runs int32
	// Crashes is how many processes in a row crashed or were killed while this message was unfinished, the last of them while it
	// ran alone there; 0 where nothing of that kind is known. Only a source that was told to look for it sets it
	// (kafkabroker.Config.CrashLimit).
	Crashes int32

	// Token names the message within its claim for Ack and Nack: this hand-out of it, and no other of any message, so that a second
	// settle is known for one. It is the adapter's and the engine's; a handler leaves it alone.
	Token uint64
	// Claim is the right under which the message was handed out. It is the adapter's and the engine's.
	Claim *Claim
}

// Time returns the message's time, in the local time zone. Where the broker gave none it is 1970-01-01 00:00 UTC (Nanos is 0),
// for which IsZero is false.
func (m *Message) Time() time.Time { return time.Unix(0, m.Nanos) }

// Log names the log that Offset counts in: a topic's partition, or a stream, from its creation until it is deleted. One that is
// made anew under the same name has another. So Log and Offset together name a message for good, the same at each delivery, and
// in each process. Empty where the broker does not tell, or not yet whether the log is still the same: then a later delivery has
// it. Empty, too, of what comes from a retry topic, with the original's Offset. See FloorReporter.
func (m *Message) Log() string {
	if m.Offset < 0 {
		return ""
	}
	return m.Name
}

// ID names the message where Partition and Offset do not (Offset is -1), the same at each delivery. Otherwise empty, and also
// where nothing comes again and the broker has no name for it (core NATS).
func (m *Message) ID() string {
	if m.Offset >= 0 {
		return ""
	}
	return m.Name
}

// Clone returns a copy that shares no bytes with m, so that keeping it pins no fetch buffer. Token and Claim are kept.
func (m *Message) Clone() *Message {
	c := *m
	c.Key = bytes.Clone(m.Key)
	c.Value = bytes.Clone(m.Value)
	c.Headers.Raw = bytes.Clone(m.Headers.Raw)
	return &c
}
