package consumer

import (
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// filled takes n messages of a size into a slab, at most so many at a time, and returns how many slabs that were and how many
// bytes one of them had at most. A call gets no more than a source has room for at once.
func filled(s *slab, n, size, atOnce int) (slabs int, most int64) {
	const room = 8 << 20
	value := make([]byte, size)
	for done := 0; done < n; {
		was := s.used
		if s.renew(); s.used < was || was == 0 {
			slabs++
		}
		got := min(n-done, atOnce, len(s.free), max(1, room/max(1, size)))
		for i := range got {
			s.free[i] = broker.Message{Value: value}
		}
		s.take(got)
		done += got
		most = max(most, s.bytes)
	}
	return slabs, most
}

// What stays in memory for the sake of one message is bounded by bytes, however many come at once.
func TestSlabIsBoundedByBytes(t *testing.T) {
	for _, size := range []int{0, 100, 10 << 10, 100 << 10, 1 << 20} {
		for _, atOnce := range []int{1, 4, 128} {
			t.Run(fmt.Sprintf("%d bytes, %d at once", size, atOnce), func(t *testing.T) {
				s := slab{most: 128}
				filled(&s, s.most, size, atOnce) // it learns how large they are
				if _, most := filled(&s, 1000, size, atOnce); most > int64(slabBytes+atOnce*100+size) {
					t.Errorf("%d bytes in one slab", most)
				}
			})
		}
	}
}

// decoded is a codec of headers that are read already: Raw has none of their bytes.
type decoded struct {
	broker.HeaderCodec
	bytes int
}

func (d decoded) Bytes() int { return d.bytes }

// Headers are a part of what stays in memory, also where a client has read them before.
func TestSlabIsBoundedByHeaders(t *testing.T) {
	const size = 10 << 10
	for name, headers := range map[string]broker.Headers{
		"raw":     {Raw: make([]byte, size)},
		"decoded": {Codec: decoded{bytes: size}},
	} {
		t.Run(name, func(t *testing.T) {
			s := slab{most: 128}
			for range s.most {
				s.renew()
				s.free[0] = broker.Message{Headers: headers}
				s.take(1)
				if s.bytes > slabBytes+size {
					t.Fatalf("%d bytes in one slab", s.bytes)
				}
			}
			if s.bytes == 0 {
				t.Error("headers have no bytes")
			}
		})
	}
}

// Small messages are allocated together, also after large ones.
func TestSlabHasManySmallMessages(t *testing.T) {
	s := slab{most: 128}
	filled(&s, 10, 1<<20, 128)
	if slabs, _ := filled(&s, 1280, 100, 4); slabs > 15 {
		t.Errorf("%d slabs for 1280 messages", slabs)
	}
}

// Batches that come whole lie in one slab, however large their messages are.
func TestSlabHasWholeBatches(t *testing.T) {
	for _, size := range []int{100, 100 << 10} {
		s := slab{most: 200, whole: 100}
		for range 10 {
			s.renew()
			if len(s.free) < 100 {
				t.Fatalf("messages of %d bytes: room for %d", size, len(s.free))
			}
			for i := range 100 {
				s.free[i] = broker.Message{Value: make([]byte, size)}
			}
			s.take(100)
		}
	}
}

// What is copied elsewhere leaves its memory to what comes next, and nothing of it behind.
func TestSlabIsUsedAgain(t *testing.T) {
	s := slab{most: 128}
	s.renew()
	first := &s.free[0]
	for i := range 100 {
		s.free[i] = broker.Message{Value: make([]byte, 10+i)}
	}
	ms := s.take(100)
	ms[0], ms[1] = ms[50], ms[60]
	s.keep(2)
	if s.renew(); &s.free[0] != &ms[2] || len(s.free) != 126 {
		t.Fatalf("%d are free behind the two that were kept, want 126", len(s.free))
	}
	if s.used != 2 || s.bytes != 60+70 {
		t.Errorf("%d messages of %d bytes are in use, want 2 of 130", s.used, s.bytes)
	}
	for i := range s.free {
		if s.free[i].Value != nil {
			t.Fatal("a message lies where the next is received")
		}
	}
	if s.take(1); first != &ms[0] || len(first.Value) != 60 {
		t.Error("what is kept was moved")
	}
}
