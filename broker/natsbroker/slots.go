package natsbroker

import (
	"cmp"
	"slices"

	"github.com/nats-io/nats.go"
)

type slotState uint8

const (
	slotFree     slotState = iota
	slotBuffered           // received, not yet handed out
	slotOut                // handed out, not yet settled
)

// A slot is one message that is here. The broker.Message that the engine has names it by a token: index and generation.
type slot struct {
	msg   *nats.Msg // until it is handed out, and longer at its last delivery: see stock.keep
	reply string    // of the newest delivery, through which a settle goes
	seq   uint64
	nanos int64
	lease int64  // when the server last certainly counted the ack timer from, in nanoseconds of the source's clock
	since int64  // when it was received first; the clock of the last tick, which is exact enough for MaxHold
	round uint64 // the first round of extensions that it takes part in
	nth   uint64 // which of the deliveries that came here is the newest one
	due   int64  // not handed out before, in nanoseconds of the source's clock

	size      int
	delivered uint32 // by the server's count, when it was received first
	newest    uint32 // by the server's count, at its newest delivery
	runs      int32
	gen       uint32
	next      int32 // in its bucket when used, in the list of free slots when free; -1 ends
	state     slotState
	forgotten bool // the server does not know of its delivery; see stock.forgot
	others    othersSettle
}

// An othersSettle says whether another process, or a limit of the stream, may have settled what is here (balance.go).
type othersSettle uint8

const (
	othersDidNot othersSettle = iota
	othersMay
	othersDid // the server counts it no more, and what the balance fell by it is known
)

// slots is the table of what is here, found by token and, for redeliveries, by sequence and time. Stream sequences run on, so
// that a bucket per low bits of the sequence is nearly a perfect hash. Not safe for concurrent use.
type slots struct {
	all     []slot
	buckets []int32
	free    int32
	used    int
}

const noSlot = -1

func newSlots(size int) *slots {
	n := 64
	for n < size && n < 1<<16 {
		n <<= 1
	}
	t := &slots{free: noSlot}
	t.rehash(n)
	return t
}

func (t *slots) rehash(n int) {
	t.buckets = make([]int32, n)
	for i := range t.buckets {
		t.buckets[i] = noSlot
	}
	for i := range t.all {
		if t.all[i].state != slotFree {
			t.link(int32(i))
		}
	}
}

func (t *slots) link(i int32) {
	b := &t.buckets[t.all[i].seq&uint64(len(t.buckets)-1)]
	t.all[i].next = *b
	*b = i
}

// above is what is here that stands behind seq, without what was removed from the stream.
func (t *slots) above(seq uint64, gone removed) (h present) {
	for i := range t.all {
		s := &t.all[i]
		if s.state == slotFree || s.seq <= seq || gone.has(s.seq) {
			continue
		}
		h.all++
		switch {
		case s.others != othersMay:
		case s.state == slotOut:
			h.out++
		default:
			h.ready++
		}
	}
	return h
}

// doubt marks what others may have settled. Of what is out it is what was delivered before.
func (t *slots) doubt() {
	for i := range t.all {
		s := &t.all[i]
		if s.others == othersDidNot && (s.state == slotBuffered || s.state == slotOut && s.delivered > 1) {
			s.others = othersMay
		}
	}
}

// trust says that others settled nothing of what is not known to be settled.
func (t *slots) trust() {
	for i := range t.all {
		if s := &t.all[i]; s.others == othersMay {
			s.others = othersDidNot
		}
	}
}

// found is how much of what is here is known by now to be settled by others, or to be removed, and was not before.
func (t *slots) found(seq uint64, gone removed) (n int) {
	for i := range t.all {
		if s := &t.all[i]; s.state != slotFree && s.others != othersDid && (s.seq <= seq || gone.has(s.seq)) {
			s.others = othersDid
			n++
		}
	}
	return n
}

// add takes a free slot for message seq and returns its index. The pointer is good until the next add.
func (t *slots) add(seq uint64, nanos int64) (int32, *slot) {
	i := t.free
	if i == noSlot {
		if len(t.all) >= len(t.buckets) {
			t.rehash(2 * len(t.buckets))
		}
		i = int32(len(t.all))
		t.all = append(t.all, slot{gen: 1})
	} else {
		t.free = t.all[i].next
	}
	s := &t.all[i]
	s.seq, s.nanos, s.state = seq, nanos, slotBuffered
	t.link(i)
	t.used++
	return i, s
}

// find returns the slot of message seq stored at nanos, or nil. The time tells apart a message of a stream that was made anew.
func (t *slots) find(seq uint64, nanos int64) *slot {
	for i := t.buckets[seq&uint64(len(t.buckets)-1)]; i != noSlot; i = t.all[i].next {
		if s := &t.all[i]; s.seq == seq && s.nanos == nanos {
			return s
		}
	}
	return nil
}

// another says whether a message with that sequence is here that was stored at another time, and not forgotten.
func (t *slots) another(seq uint64, nanos int64) bool {
	for i := t.buckets[seq&uint64(len(t.buckets)-1)]; i != noSlot; i = t.all[i].next {
		if s := &t.all[i]; s.seq == seq && s.nanos != nanos && !s.forgotten {
			return true
		}
	}
	return false
}

func (t *slots) token(i int32) uint64 { return uint64(t.all[i].gen)<<32 | uint64(uint32(i)) }

// out returns the index of the handed-out message that token names, or noSlot when it was settled before or never was.
func (t *slots) out(token uint64) int32 {
	i := token & (1<<32 - 1)
	if i >= uint64(len(t.all)) {
		return noSlot
	}
	if s := &t.all[i]; s.state != slotOut || s.gen != uint32(token>>32) {
		return noSlot
	}
	return int32(i)
}

// remove frees slot i; its token is void from now on.
func (t *slots) remove(i int32) {
	s := &t.all[i]
	for p := &t.buckets[s.seq&uint64(len(t.buckets)-1)]; ; p = &t.all[*p].next {
		if *p == i {
			*p = s.next
			break
		}
	}
	*s = slot{gen: s.gen + 1, next: t.free}
	t.free = i
	t.used--
}

// forget marks what is behind delivered, where none of its deliveries came after the nth.
func (t *slots) forget(delivered, nth uint64) {
	for i := range t.all {
		if s := &t.all[i]; s.state != slotFree && s.seq > delivered && s.nth <= nth {
			s.forgotten = true
		}
	}
}

// held returns all that is here, in the order of the stream.
func (t *slots) held() []int32 {
	var held []int32
	for i := range t.all {
		if t.all[i].state != slotFree {
			held = append(held, int32(i))
		}
	}
	slices.SortFunc(held, func(a, b int32) int { return cmp.Compare(t.all[a].seq, t.all[b].seq) })
	return held
}
