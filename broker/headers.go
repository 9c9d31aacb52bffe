package broker

import (
	"encoding/binary"
	"iter"
)

// Headers are a message's headers in the broker's own encoding, decoded when they are looked at. The zero value is empty.
// It is a struct and not an interface because boxing costs an allocation per message. Safe for many readers at once.
//
// Raw is hostile input: it comes from whoever may publish.
type Headers struct {
	Raw   []byte
	Codec HeaderCodec
}

// A HeaderCodec reads one broker's encoding of headers. Its methods accept any bytes, never panic, and allocate no more than
// what they return. Safe for concurrent use.
type HeaderCodec interface {
	// Len is the number of headers, repeated keys counted each.
	Len(raw []byte) int
	// Get returns the last value of key, compared exactly.
	Get(raw []byte, key string) ([]byte, bool)
	// All yields the headers in the order of the message, repeated keys included.
	All(raw []byte) iter.Seq2[string, []byte]
}

// Len is the number of headers.
func (h Headers) Len() int {
	if h.Codec == nil {
		return 0
	}
	return h.Codec.Len(h.Raw)
}

// Bytes is how many bytes the headers keep in memory: those of Raw, or, where a codec has headers that are decoded already and
// Raw is empty, what it tells by a method Bytes() int; 0 if it has none.
func (h Headers) Bytes() int {
	if len(h.Raw) == 0 {
		if decoded, ok := h.Codec.(interface{ Bytes() int }); ok {
			return decoded.Bytes()
		}
	}
	return len(h.Raw)
}

// Get returns the last value of key, compared exactly, and whether there is one.
func (h Headers) Get(key string) ([]byte, bool) {
	if h.Codec == nil {
		return nil, false
	}
	return h.Codec.Get(h.Raw, key)
}

// All yields the headers in the order of the message, repeated keys included.
func (h Headers) All() iter.Seq2[string, []byte] {
	if h.Codec == nil {
		return func(func(string, []byte) bool) {}
	}
	return h.Codec.All(h.Raw)
}

// A Header is one header of a message to publish.
type Header struct {
	Key   string
	Value []byte
}

// NewHeaders returns headers of these pairs, in this order: for tests of handlers that read headers, and for sources that have no
// encoding of their own. A key may come again; Get then returns the last. The pairs' bytes are copied.
//
//	m := &broker.Message{Topic: "orders", Headers: broker.NewHeaders(broker.Header{Key: "Trace-Id", Value: []byte("7f3a")})}
func NewHeaders(pairs ...Header) Headers {
	if len(pairs) == 0 {
		return Headers{}
	}
	return Headers{Raw: encodeList(pairs), Codec: listCodec{}}
}

// listCodec reads what encodeList wrote: for each header the length of the key as a varint, the key, the length of the value plus
// one (0: nil), the value. Bytes that do not fit end the list.
type listCodec struct{}

func encodeList(hs []Header) []byte {
	var raw []byte
	for _, h := range hs {
		raw = binary.AppendUvarint(raw, uint64(len(h.Key)))
		raw = append(raw, h.Key...)
		if h.Value == nil {
			raw = binary.AppendUvarint(raw, 0)
			continue
		}
		raw = binary.AppendUvarint(raw, uint64(len(h.Value))+1)
		raw = append(raw, h.Value...)
	}
	return raw
}

// next reads one header off raw.
func (listCodec) next(raw []byte) (key, value, rest []byte, ok bool) {
	n, w := binary.Uvarint(raw)
	if w <= 0 || n > uint64(len(raw)-w) {
		return nil, nil, nil, false
	}
	key, raw = raw[w:w+int(n)], raw[w+int(n):]
	n, w = binary.Uvarint(raw)
	if w <= 0 {
		return nil, nil, nil, false
	}
	raw = raw[w:]
	if n == 0 {
		return key, nil, raw, true
	}
	if n-1 > uint64(len(raw)) {
		return nil, nil, nil, false
	}
	end := int(n - 1)
	return key, raw[:end:end], raw[end:], true
}

func (c listCodec) Len(raw []byte) int {
	n := 0
	for {
		_, _, rest, ok := c.next(raw)
		if !ok {
			return n
		}
		n, raw = n+1, rest
	}
}

func (c listCodec) Get(raw []byte, key string) (value []byte, found bool) {
	for {
		k, v, rest, ok := c.next(raw)
		if !ok {
			return value, found
		}
		if string(k) == key {
			value, found = v, true
		}
		raw = rest
	}
}

func (c listCodec) All(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for {
			k, v, rest, ok := c.next(raw)
			if !ok || !yield(string(k), v) {
				return
			}
			raw = rest
		}
	}
}
