package natsbroker

import (
	"cmp"
	"iter"
	"slices"
	"unsafe"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// codec reads the headers that nats.go has decoded already: it does so before a subscriber sees a message, so that writing them
// back into one block, only to read that block again, would be a cost with no use (BenchmarkHeaders has the figures). A map is
// one pointer, so that it fits into an interface without an allocation. Raw stays nil.
type codec nats.Header

var _ broker.HeaderCodec = codec(nil)

func headersOf(h nats.Header) broker.Headers {
	if len(h) == 0 {
		return broker.Headers{}
	}
	return broker.Headers{Codec: codec(h)}
}

// Len implements broker.HeaderCodec.
func (c codec) Len([]byte) int {
	n := 0
	for _, vs := range c {
		n += len(vs)
	}
	return n
}

// Bytes is how many bytes of keys and values there are.
func (c codec) Bytes() int {
	n := 0
	for k, vs := range c {
		n += len(k)
		for _, v := range vs {
			n += len(v)
		}
	}
	return n
}

// Get implements broker.HeaderCodec.
func (c codec) Get(_ []byte, key string) ([]byte, bool) {
	vs := c[key]
	if len(vs) == 0 {
		return nil, false
	}
	return []byte(vs[len(vs)-1]), true
}

// All implements broker.HeaderCodec. A map has no order, but nats.go cuts all keys and values out of one copy of the header
// block, so where a key begins in memory is where it stood in the message. Should that change, the order is lost, and no header.
func (c codec) All([]byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		type header struct {
			at         uintptr
			key, value string
		}
		hs := make([]header, 0, len(c))
		for k, vs := range c {
			for _, v := range vs {
				at := uintptr(unsafe.Pointer(unsafe.StringData(v))) // #nosec G103 -- only compared, never followed
				hs = append(hs, header{at, k, v})
			}
		}
		slices.SortStableFunc(hs, func(a, b header) int { return cmp.Compare(a.at, b.at) })
		for _, h := range hs {
			if !yield(h.key, []byte(h.value)) {
				return
			}
		}
	}
}

// headerKeyBase64 carries a key that a NATS header cannot carry as it is: with line breaks, or blanks at its ends.
const headerKeyBase64 = broker.ReservedPrefix + "Key-Base64"
