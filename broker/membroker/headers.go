package membroker

import (
	"encoding/binary"
	"iter"

	"github.com/longshoremq/longshore/broker"
)

// headerCodec reads what encodeHeaders wrote: for each header the length of the key as a varint, the key, the length of the value plus
// one (0: nil), the value. Bytes that do not fit end the list.
type headerCodec struct{}

func encodeHeaders(hs []broker.Header) []byte {
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
func (headerCodec) next(raw []byte) (key, value, rest []byte, ok bool) {
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

func (c headerCodec) Len(raw []byte) int {
	n := 0
	for {
		_, _, rest, ok := c.next(raw)
		if !ok {
			return n
		}
		n, raw = n+1, rest
	}
}

func (c headerCodec) Get(raw []byte, key string) (value []byte, found bool) {
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

func (c headerCodec) All(raw []byte) iter.Seq2[string, []byte] {
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
