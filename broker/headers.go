package broker

import "iter"

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
