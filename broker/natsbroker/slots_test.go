package natsbroker

import (
	"math/rand/v2"
	"testing"
)

// The table against a plain map, with random adds, finds and removals.
func TestSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table := newSlots(0)
	type key struct {
		seq   uint64
		nanos int64
	}
	want := map[key]uint64{} // to the token
	void := []uint64{}
	for range 50_000 {
		k := key{r.Uint64N(400), int64(r.Uint64N(3))}
		token, here := want[k]
		s := table.find(k.seq, k.nanos)
		if (s != nil) != here {
			t.Fatalf("find %v: %v, want %v", k, s != nil, here)
		}
		switch {
		case !here:
			i, s := table.add(k.seq, k.nanos)
			s.state = slotOut
			want[k] = table.token(i)
		case r.IntN(2) == 0:
			i := table.out(token)
			if i == noSlot {
				t.Fatalf("token %x is not out", token)
			}
			table.remove(i)
			delete(want, k)
			void = append(void, token)
		}
		if len(void) > 0 && table.out(void[r.IntN(len(void))]) != noSlot {
			t.Fatal("a void token is out")
		}
		if table.used != len(want) {
			t.Fatalf("%d used, want %d", table.used, len(want))
		}
	}
}
