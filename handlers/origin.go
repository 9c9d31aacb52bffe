package handlers

import (
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// maxField is the most bytes of one encoded field; servers and kernels refuse headers and environments that are too large.
const maxField = 4096

// field is one thing that webhook and exec tell about a message beside its payload, under a header or a variable.
type field struct{ header, variable, value string }

// maxFields is the most that origin lists.
const maxFields = 7

// origin appends to fs what is known about m. Each value is printable ASCII without blanks (see escape). What is longer than
// maxField is left out and named in the last one.
func origin(fs []field, m *consumer.Message) []field {
	var omitted []string
	add := func(header, variable, value string) {
		if len(value) > maxField {
			omitted = append(omitted, strings.ToLower(strings.TrimPrefix(header, broker.ReservedPrefix)))
			return
		}
		fs = append(fs, field{header, variable, value})
	}
	topic := escape(m.Topic)
	add("Longshore-Topic", "LONGSHORE_TOPIC", topic)
	if m.Partition >= 0 {
		add("Longshore-Partition", "LONGSHORE_PARTITION", strconv.Itoa(int(m.Partition)))
	}
	if m.Offset >= 0 {
		add("Longshore-Offset", "LONGSHORE_OFFSET", strconv.FormatInt(m.Offset, 10))
	}
	if id := Identity(m); id != "" {
		add(broker.HeaderID, "LONGSHORE_ID", id)
	}
	if m.Key != nil {
		add(broker.HeaderKey, "LONGSHORE_KEY", escape(string(m.Key)))
	}
	add("Longshore-Attempt", "LONGSHORE_ATTEMPT", strconv.Itoa(max(1, int(m.Attempt))))
	if omitted != nil {
		fs = append(fs, field{headerOmitted, "LONGSHORE_OMITTED", strings.Join(omitted, ",")})
	}
	return fs
}

const headerOmitted = broker.ReservedPrefix + "Omitted"

// Identity names a message, the same at each delivery and in each process, so that a receiver can tell a repeat: an
// Idempotency-Key for example. It is what webhook sends as Longshore-Id: topic/partition/offset/id/time, the time in Unix
// nanoseconds, in printable ASCII; or empty where the broker gives nothing to tell messages apart by (core NATS). The time is
// in it because a recreated stream or topic uses its offsets again. A dead letter that is replayed is another message; where
// that must be the same call, too, take an id out of the payload.
func Identity(m *consumer.Message) string {
	if !identified(m) {
		return ""
	}
	return string(appendIdentity(make([]byte, 0, 64), m))
}

// identified says whether a message has an identity.
func identified(m *consumer.Message) bool { return m.Offset >= 0 || m.ID() != "" }

// appendIdentity appends the identity of a message that has one.
func appendIdentity(b []byte, m *consumer.Message) []byte {
	b = append(appendPart(b, m.Topic), '/')
	b = append(strconv.AppendInt(b, int64(m.Partition), 10), '/')
	b = append(strconv.AppendInt(b, m.Offset, 10), '/')
	b = append(appendPart(b, m.ID()), '/')
	return strconv.AppendInt(b, m.Nanos, 10)
}

// appendPart appends s, escaped, and without the separator of an identity.
func appendPart(b []byte, s string) []byte {
	return append(b, strings.ReplaceAll(escape(s), "/", "%2F")...)
}

// escape percent-encodes every byte that is not printable ASCII, and '%' itself; url.PathUnescape reverses it. So no byte of a
// key can end a header's line, and two keys never look the same.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
