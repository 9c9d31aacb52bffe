package membroker

import (
	"bytes"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func TestHeadersRoundTrip(t *testing.T) {
	want := []broker.Header{{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "b", Value: []byte{0, 255}}}
	h := broker.Headers{Raw: encodeHeaders(want), Codec: headerCodec{}}
	if h.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", h.Len(), len(want))
	}
	i := 0
	for k, v := range h.All() {
		if k != want[i].Key || !bytes.Equal(v, want[i].Value) || (v == nil) != (want[i].Value == nil) {
			t.Errorf("header %d is %q=%#v, want %q=%#v", i, k, v, want[i].Key, want[i].Value)
		}
		i++
	}
	if v, ok := h.Get("a"); !ok || v == nil || len(v) != 0 {
		t.Errorf("Get returned %#v, %v, want the last value", v, ok)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add(encodeHeaders([]broker.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}))
	f.Add([]byte{1, 'a', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := broker.Headers{Raw: raw, Codec: headerCodec{}}
		var hs []broker.Header
		for k, v := range h.All() {
			hs = append(hs, broker.Header{Key: k, Value: v})
			if _, ok := h.Get(k); !ok {
				t.Errorf("All yields %q, Get does not know it", k)
			}
		}
		if len(hs) != h.Len() {
			t.Errorf("Len is %d, All yields %d", h.Len(), len(hs))
		}
		again := broker.Headers{Raw: encodeHeaders(hs), Codec: headerCodec{}}
		if again.Len() != len(hs) {
			t.Errorf("encoded again there are %d headers, want %d", again.Len(), len(hs))
		}
	})
}
