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
	bytes int64            // of what is used
	taken []broker.Message // what was taken last, and all behind it
	last  int              // how many that were
	heavy int64            // how many bytes
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
	s.free, s.taken, s.used, s.bytes = make([]broker.Message, s.size), nil, 0, 0
	return s.size < s.most
}

// take is the next n messages, which were received.
func (s *slab) take(n int) []broker.Message {
	s.taken, s.free, s.last = s.free, s.free[n:], n
	s.use(n)
	return s.taken[:n:n]
}

// keep says that of what was taken last only the first n are needed where they lie: what comes next is received over the others.
// Called while nobody else has seen any of it; the first n may have been moved there.
func (s *slab) keep(n int) {
	if n == s.last {
		return
	}
	s.used -= int64(s.last)
	s.bytes -= s.heavy
	clear(s.taken[n:s.last])
	s.free = s.taken[n:]
	s.use(n)
}

// use counts the first n of what was taken.
func (s *slab) use(n int) {
	s.heavy = 0
	for i := range s.taken[:n] {
		s.heavy += int64(weightOf(&s.taken[i]))
	}
	s.used += int64(n)
	s.bytes += s.heavy
}

// weightOf is how many bytes a message keeps in memory, besides itself.
func weightOf(m *broker.Message) int { return len(m.Key) + len(m.Value) + m.Headers.Bytes() }
