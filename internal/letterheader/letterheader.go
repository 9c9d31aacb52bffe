// Package letterheader is the table of the headers that a dead letter has, and a message of a retry topic: the consumer writes
// them there, and it and package deadletters read them again.
package letterheader

import (
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Headers are what the headers say. What is missing or malformed has its zero value; whoever may publish to the topic may write
// anything.
type Headers struct {
	// Where the message came from. Partition and Offset are -1 where that is not known.
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	Time      time.Time
	// How it fared, and why it was given up.
	Attempts     int32
	FirstFailure time.Time
	LastFailure  time.Time
	Class        string
	Error        string
	Handler      string
	// RetryAt is when a message of a retry topic is due.
	RetryAt time.Time
}

// A field is one header.
type field struct {
	key   string
	write func([]byte, *Headers) []byte // appends it; nothing: it is not written
	read  func(*Headers, string)
}

var fields = []field{
	text(broker.HeaderOriginalTopic, func(h *Headers) *string { return &h.Topic }),
	{
		broker.HeaderOriginalPartition,
		func(b []byte, h *Headers) []byte { return number(b, int64(h.Partition)) },
		func(h *Headers, s string) { h.Partition = int32(readNumber(s, 32, -1)) },
	},
	{
		broker.HeaderOriginalOffset,
		func(b []byte, h *Headers) []byte { return number(b, h.Offset) },
		func(h *Headers, s string) { h.Offset = readNumber(s, 64, -1) },
	},
	text(broker.HeaderOriginalID, func(h *Headers) *string { return &h.ID }),
	moment(broker.HeaderOriginalTime, func(h *Headers) *time.Time { return &h.Time }),
	{
		broker.HeaderAttempts,
		func(b []byte, h *Headers) []byte { return number(b, int64(h.Attempts)) },
		func(h *Headers, s string) { h.Attempts = int32(readNumber(s, 32, 0)) },
	},
	moment(broker.HeaderFirstFailure, func(h *Headers) *time.Time { return &h.FirstFailure }),
	moment(broker.HeaderLastFailure, func(h *Headers) *time.Time { return &h.LastFailure }),
	text(broker.HeaderErrorClass, func(h *Headers) *string { return &h.Class }),
	text(broker.HeaderError, func(h *Headers) *string { return &h.Error }),
	text(broker.HeaderHandler, func(h *Headers) *string { return &h.Handler }),
	moment(broker.HeaderRetryAt, func(h *Headers) *time.Time { return &h.RetryAt }),
}

func text(key string, of func(*Headers) *string) field {
	return field{key, func(b []byte, h *Headers) []byte { return append(b, *of(h)...) }, func(h *Headers, s string) { *of(h) = s }}
}

// moment is a time, in RFC 3339 with nanoseconds.
func moment(key string, of func(*Headers) *time.Time) field {
	return field{
		key,
		func(b []byte, h *Headers) []byte {
			if of(h).IsZero() {
				return b
			}
			return of(h).UTC().AppendFormat(b, time.RFC3339Nano)
		},
		func(h *Headers, s string) {
			t, err := time.Parse(time.RFC3339Nano, s)
			if err != nil {
				t = time.Time{}
			}
			*of(h) = t
		},
	}
}

// number is n; what is not known is not written.
func number(b []byte, n int64) []byte {
	if n < 0 {
		return b
	}
	return strconv.AppendInt(b, n, 10)
}

func readNumber(s string, bits int, otherwise int64) int64 {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}

// Append appends what h says to hs. The values lie in one piece of memory.
func (h *Headers) Append(hs []broker.Header) []broker.Header {
	const times, numbers = 4 * len(time.RFC3339Nano), 3 * 20
	b := make([]byte, 0, times+numbers+len(h.Topic)+len(h.ID)+len(h.Class)+len(h.Error)+len(h.Handler))
	for _, f := range fields {
		at := len(b)
		if b = f.write(b, h); len(b) > at {
			hs = append(hs, broker.Header{Key: f.key, Value: b[at:len(b):len(b)]})
		}
	}
	return hs
}

// Most is how many Append appends at most.
var Most = len(fields)

// byKey finds a header's field.
var byKey = func() map[string]field {
	all := map[string]field{}
	for _, f := range fields {
		all[f.key] = f
	}
	return all
}()

// Read reads the headers of a message; of several with one key the last counts.
func Read(of broker.Headers) Headers {
	h := Headers{Partition: -1, Offset: -1}
	for k, v := range of.All() {
		if f, ok := byKey[k]; ok {
			f.read(&h, string(v))
		}
	}
	return h
}

// The headers by which other systems describe a dead letter begin so.
const (
	SpringPrefix  = "kafka_dlt-"        // Spring for Apache Kafka
	ConnectPrefix = "__connect.errors." // Kafka Connect
)

// IsForeign says whether a header is another system's description of a dead letter.
func IsForeign(key string) bool {
	return strings.HasPrefix(key, SpringPrefix) || strings.HasPrefix(key, ConnectPrefix)
}

// foreignTopics are where other systems say where a message came from.
var foreignTopics = []string{SpringPrefix + "original-topic", ConnectPrefix + "topic"}

// ForeignTopic is the topic that a message came from as another system says; "" where none does.
func ForeignTopic(of broker.Headers) string {
	for _, key := range foreignTopics {
		if v, _ := of.Get(key); len(v) > 0 {
			return string(v)
		}
	}
	return ""
}
