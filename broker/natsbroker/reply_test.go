package natsbroker

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseReply(t *testing.T) {
	d := delivery{delivered: 3, stream: 25, consumer: 8, nanos: 1700000000123456789, pending: 9}
	for reply, ok := range map[string]bool{
		"$JS.ACK.S.c.3.25.8.1700000000123456789.9":                true,
		"$JS.ACK._.hAsH.S.c.3.25.8.1700000000123456789.9":         true,
		"$JS.ACK.hub.hAsH.S.c.3.25.8.1700000000123456789.9.x.y.z": true,
		"$JS.ACK.S.c.3.25.8.1700000000123456789":                  false,
		"$JS.ACK.x.S.c.3.25.8.1700000000123456789.9":              false, // ten tokens: neither form
		"$JS.ACK.S.c.0.25.8.1700000000123456789.9":                false,
		"$JS.ACK.S.c.3.-25.8.1700000000123456789.9":               false,
		"$JS.ACK.S.c.3.25.8.17000000001234567890123.9":            false,
		"$JS.ACK.S.c.3.25..1700000000123456789.9":                 false,
		"$JS.FC.S.c.3.25.8.1700000000123456789.9":                 false,
		"$JS.ACK.": false,
		"":         false,
	} {
		got, is := parseReply(reply)
		if is != ok || (ok && got != d) {
			t.Errorf("%s: %+v, %v", reply, got, is)
		}
	}
	if n := testing.AllocsPerRun(100, func() { parseReply("$JS.ACK._.hAsH.S.c.3.25.8.1700000000123456789.9") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{"$JS.ACK.S.c.3.25.8.1700000000123456789.9", "$JS.ACK._.h.S.c.3.25.8.1.9.more", "$JS.ACK.......",
		"$JS.ACK.S.c.1.1.1.9223372036854775808.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseReply(s)
		if !ok {
			return
		}
		if !strings.HasPrefix(s, "$JS.ACK.") {
			t.Fatalf("%q was read: what is read is published to", s)
		}
		if d.nanos < 0 || d.delivered == 0 || d.stream == 0 || d.consumer == 0 {
			t.Fatalf("%q gave %+v", s, d)
		}
		// What was read can be written and read again.
		again, ok := parseReply(fmt.Sprintf("$JS.ACK.S.c.%d.%d.%d.%d.%d", d.delivered, d.stream, d.consumer, d.nanos, d.pending))
		if !ok || again != d {
			t.Fatalf("%q gave %+v, and then %+v", s, d, again)
		}
	})
}
