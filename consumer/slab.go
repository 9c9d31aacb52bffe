package consumer

import "github.com/longshoremq/longshore/broker"

// A slab is where a dispatcher receives into: fresh messages, as a handler may keep *Message, and many of them allocated at once.
// All of them stay in memory as long as any of them does, with what they refer to. So the larger they are, the fewer are in one.
type slab struct {
	most  int // there are no more in one
	whole int // where batches are of whatever comes: how many one has, which lie in one slab; else 0

	free  []broker.Message // what is not used yet
	size  int              // how many there were at first
	used  int64
	bytes int64 // of what is used
	last  int   // how many were taken last
}

// slabBytes is how much of messages may stay in memory for the sake of others; what is taken by one call may be more.
const slabBytes = 256 << 10

// renew begins a new one where this one has too little room left, or too many bytes. small: messages are so large that it has
// fewer than it could.
func (s *slab) renew() (small bool) {
	if s.bytes < slabBytes && len(s.free) >= max(1, s.size/4) && (s.last < s.whole || len(s.free) >= s.whole) {
		return false
	}
	s.size = s.most
	if s.bytes > 0 {
		s.size = int(max(1, min(int64(s.most), slabBytes*s.used/s.bytes)))
	}
	if s.whole > 0 {
		s.size = (s.size + s.whole - 1) / s.whole * s.whole
	}
	s.free, s.used, s.bytes = make([]broker.Message, s.size), 0, 0
	return s.size < s.most
}

// take is the next n messages, which were received.
func (s *slab) take(n int) []broker.Message {
	ms := s.free[:n:n]
	s.free, s.last = s.free[n:], n
	s.used += int64(n)
	for i := range ms {
		s.bytes += int64(weightOf(&ms[i]))
	}
	return ms
}

// weightOf is how many bytes a message keeps in memory, besides itself.
func weightOf(m *broker.Message) int { return len(m.Key) + len(m.Value) + m.Headers.Bytes() }
