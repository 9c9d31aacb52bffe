package handlers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// maxField is the most bytes of one encoded field; servers and kernels refuse headers and environments that are too large.
const maxField = 4096

// field is one thing that webhook and exec tell about a message beside its payload.
type field struct{ name, value string }

// origin lists what is known about m, by the last part of the name that webhook (Longshore-Attempt) and exec (LONGSHORE_ATTEMPT) give it.
// Each value is printable ASCII without blanks (see escape). What is longer than maxField is left out and named in Omitted.
func origin(m *consumer.Message) []field {
	fs := make([]field, 0, 8)
	var omitted []string
	add := func(name, value string) {
		if len(value) > maxField {
			omitted = append(omitted, strings.ToLower(name))
			return
		}
		fs = append(fs, field{name, value})
	}
	add("Topic", escape(m.Topic))
	if m.Partition >= 0 {
		add("Partition", strconv.Itoa(int(m.Partition)))
	}
	if m.Offset >= 0 {
		add("Offset", strconv.FormatInt(m.Offset, 10))
	}
	if id := identity(m); id != "" {
		add("Id", id)
	}
	if m.Key != nil {
		add("Key", escape(string(m.Key)))
	}
	if m.Nanos != 0 {
		add("Time", m.Time().UTC().Format(time.RFC3339Nano))
	}
	add("Attempt", strconv.Itoa(max(1, int(m.Attempt))))
	if omitted != nil {
		fs = append(fs, field{"Omitted", strings.Join(omitted, ",")})
	}
	return fs
}

// identity names m, the same at each delivery, so that a receiver can tell a repeat: printable ASCII, or empty where the broker gives
// nothing to tell messages apart by. The time is in it because a recreated stream or topic uses its offsets again.
func identity(m *consumer.Message) string {
	if m.Offset < 0 && m.ID == "" {
		return ""
	}
	part := func(s string) string { return strings.ReplaceAll(escape(s), "/", "%2F") }
	return fmt.Sprintf("%s/%d/%d/%s/%d", part(m.Topic), m.Partition, m.Offset, part(m.ID), m.Nanos)
}

// escape percent-encodes every byte that is not printable ASCII, and '%' itself; url.PathUnescape reverses it. So no byte of a key
// can end a header's line, and two keys never look the same.
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
