package natsbroker

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

func TestHeaders(t *testing.T) {
	block := "NATS/1.0\r\nb: 1\r\na: 2\r\nb: 3\r\nempty:\r\nB: 4\r\nutf: \xff\xfe\r\nlast: 5\r\n\r\n"
	h := headersOf(decode(t, block))
	var got []string
	for k, v := range h.All() {
		got = append(got, k+"="+string(v))
	}
	want := []string{"b=1", "a=2", "b=3", "empty=", "B=4", "utf=\xff\xfe", "last=5"}
	if !slices.Equal(got, want) || h.Len() != len(want) {
		t.Errorf("All gave %q, Len %d", got, h.Len())
	}
	if n := h.Bytes(); n != len("b1"+"3"+"a2"+"empty"+"B4"+"utf\xff\xfe"+"last5") { // a repeated key is in memory once
		t.Errorf("Bytes gave %d", n)
	}
	for k, want := range map[string]string{"b": "3", "B": "4", "empty": ""} {
		if v, ok := h.Get(k); !ok || v == nil || string(v) != want {
			t.Errorf("Get(%q) gave %q, %v", k, v, ok)
		}
	}
	if v, ok := h.Get("c"); ok || v != nil {
		t.Errorf("Get of none gave %q", v)
	}
	for range h.All() {
		break
	}
	if h := headersOf(nil); h.Len() != 0 || h.Bytes() != 0 || h.Codec != nil {
		t.Error("no headers are not the zero value")
	}
}

func decode(t testing.TB, block string) nats.Header {
	t.Helper()
	h, err := nats.DecodeHeadersMsg([]byte(block))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Whatever a producer writes: no panic, all three methods agree, and nothing is invented.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"a: b\r\n", "Longshore-Key: k\r\nlongshore-key: x\r\n", "Longshore-Key-Base64: AAECDQo=\r\n",
		"Longshore-Key-Base64: %%\r\n",
		": x\r\na:\r\na: \r\n", "a: " + strings.Repeat("x", 5000) +
			"\r\n", "Longshore-Attempts: -1\r\nStatus: 409\r\n", "\xff\x00: \xfe\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		nh, err := nats.DecodeHeadersMsg(append(append([]byte("NATS/1.0\r\n"), block...), "\r\n"...))
		if err != nil {
			return
		}
		h := headersOf(nh)
		last, n := map[string]string{}, 0
		for k, v := range h.All() {
			last[k] = string(v)
			n++
		}
		if n != h.Len() {
			t.Fatalf("All gave %d, Len %d", n, h.Len())
		}
		for k, want := range last {
			if v, ok := h.Get(k); !ok || string(v) != want {
				t.Fatalf("Get(%q) gave %q, All %q", k, v, want)
			}
		}
		keyOf(nh)
	})
}

// BenchmarkHeaders compares reading nats.go's map when asked with writing it back into a block at receipt.
func BenchmarkHeaders(b *testing.B) {
	h := decode(b, "NATS/1.0\r\nNats-Msg-Id: 123\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntype: "+
		"order\r\n\r\n")
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			headersOf(h)
		}
	})
	b.Run("map, and Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			headersOf(h).Get("type")
		}
	})
	b.Run("block", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			block := make([]byte, 0, 256)
			for k, vs := range h {
				for _, v := range vs {
					block = append(append(append(append(block, k...), ": "...), v...), "\r\n"...)
				}
			}
			_ = broker.Headers{Raw: block}
		}
	})
}

func TestEncode(t *testing.T) {
	for name, c := range map[string]struct {
		out broker.Outgoing
		ok  bool
	}{
		"plain": {broker.Outgoing{Topic: "a.b"}, true},
		"all": {broker.Outgoing{Topic: "a", Key: []byte("k"), Value: []byte("v"), ID: "i",
			Headers: []broker.Header{{Key: "x", Value: []byte("1")}, {Key: "x", Value: []byte("2")}}}, true},
		"binary key":      {broker.Outgoing{Topic: "a", Key: []byte{0, 13, 10, 255}}, true},
		"key with blanks": {broker.Outgoing{Topic: "a", Key: []byte(" k ")}, true},
		"empty key":       {broker.Outgoing{Topic: "a", Key: []byte{}}, true},
		"error of two lines": {broker.Outgoing{Topic: "a",
			Headers: []broker.Header{{Key: broker.HeaderError, Value: []byte("a\r\nb\n")}}}, true},
		"empty subject":         {broker.Outgoing{}, false},
		"wildcard":              {broker.Outgoing{Topic: "a.*"}, false},
		"full wildcard":         {broker.Outgoing{Topic: "a.>"}, false},
		"empty token":           {broker.Outgoing{Topic: "a..b"}, false},
		"blank":                 {broker.Outgoing{Topic: "a b"}, false},
		"line break in a value": {broker.Outgoing{Topic: "a", Headers: []broker.Header{{Key: "x", Value: []byte("a\nb")}}}, false},
		"blank in a name":       {broker.Outgoing{Topic: "a", Headers: []broker.Header{{Key: "x y", Value: nil}}}, false},
		"empty name":            {broker.Outgoing{Topic: "a", Headers: []broker.Header{{}}}, false},
		"line break in the id":  {broker.Outgoing{Topic: "a", ID: "a\nb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := encode(c.out)
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if err == nil && string(keyOf(m.Header)) != string(c.out.Key) {
				t.Fatalf("the key came out as %q", keyOf(m.Header))
			}
		})
	}
}
