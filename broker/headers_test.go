package broker

import (
	"bytes"
	"testing"
)

func TestNewHeadersOfNothingAreEmpty(t *testing.T) {
	if h := NewHeaders(); h.Len() != 0 || h.Raw != nil || h.Codec != nil {
		t.Errorf("%+v", h)
	}
}

func TestNewHeadersHaveTheBytesOfRaw(t *testing.T) {
	if h := NewHeaders(Header{Key: "Trace-Id", Value: []byte("7f3a")}); h.Bytes() != len(h.Raw) || h.Bytes() == 0 {
		t.Errorf("%d bytes, Raw has %d", h.Bytes(), len(h.Raw))
	}
}

// A test keeps what it made the headers of, and may change it.
func TestNewHeadersCopy(t *testing.T) {
	value := []byte("7f3a")
	m := Message{Headers: NewHeaders(Header{Key: "Trace-Id", Value: value})}
	value[0] = 'x'
	if v, ok := m.Headers.Get("Trace-Id"); !ok || string(v) != "7f3a" {
		t.Errorf("Get returned %q, %v", v, ok)
	}
	if v, ok := m.Clone().Headers.Get("Trace-Id"); !ok || string(v) != "7f3a" {
		t.Errorf("of a clone, Get returned %q, %v", v, ok)
	}
}

func TestNewHeadersRoundTrip(t *testing.T) {
	want := []Header{{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}},
		{Key: "b", Value: []byte{0, 255}}}
	h := NewHeaders(want...)
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
	f.Add(encodeList([]Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}))
	f.Add([]byte{1, 'a', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := Headers{Raw: raw, Codec: listCodec{}}
		var hs []Header
		for k, v := range h.All() {
			hs = append(hs, Header{Key: k, Value: v})
			if _, ok := h.Get(k); !ok {
				t.Errorf("All yields %q, Get does not know it", k)
			}
		}
		if len(hs) != h.Len() {
			t.Errorf("Len is %d, All yields %d", h.Len(), len(hs))
		}
		again := NewHeaders(hs...)
		if again.Len() != len(hs) {
			t.Errorf("encoded again there are %d headers, want %d", again.Len(), len(hs))
		}
	})
}
