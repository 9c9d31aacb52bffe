package consumer

import (
	"slices"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"pgregory.net/rapid"
)

// A laneModel is lanes as one would write them without a care for speed: of each lane the offsets in it, the one at large first.
type laneModel map[uint64][]int64

// A latch is on from one number of waiting messages until another.
type latch struct {
	on, off int
	lanes   map[uint64]bool
}

func (l latch) see(number uint64, waiting int) {
	if waiting >= l.on {
		l.lanes[number] = true
	} else if waiting <= l.off {
		delete(l.lanes, number)
	}
}

// TestLanesAgainstModel: whatever comes and goes, a lane has one message at large, the others follow in their order, and a lane
// that is empty is gone.
func TestLanesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		l := newLanes(Lane{Limit: limit, Full: rapid.SampledFrom([]LanePolicy{LaneBlock, LaneDeadLetter}).Draw(t, "policy")})
		claims := []*claim{{}, {}, {}}
		model, of := laneModel{}, map[int64]*claim{}
		crowds, fulls := latch{limit, limit / 2, map[uint64]bool{}}, latch{l.hold, l.thaw, map[uint64]bool{}}
		var st stash
		next := int64(0)
		see := func(number uint64) { // what the limits say of a lane after a change
			crowds.see(number, len(model[number])-1)
			fulls.see(number, len(model[number])-1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := rapid.SampledFrom(claims).Draw(t, "claim")
				numbers := rapid.SliceOfN(rapid.Uint64Range(0, 40), 1, 20).Draw(t, "numbers")
				ms := make([]broker.Message, len(numbers))
				var starts []int64
				becomes, is := false, false
				for i, number := range numbers {
					ms[i].Offset = next
					of[next] = k
					if number == 0 || len(model[number]) == 0 {
						starts = append(starts, next)
					}
					if number != 0 {
						was := crowds.lanes[number]
						model[number] = append(model[number], next)
						see(number)
						becomes = becomes || crowds.lanes[number] && !was
						is = is || fulls.lanes[number]
					}
					next++
				}
				n, crowded, full := l.add(k, ms, slices.Clone(numbers), &st)
				var got []int64
				for _, m := range ms[:n] {
					got = append(got, m.Offset)
				}
				if !slices.Equal(got, starts) {
					t.Fatalf("%v start, want %v", got, starts)
				}
				if crowded != becomes || full != is {
					t.Fatalf("add says crowded %v, full %v; want %v, %v", crowded, full, becomes, is)
				}
			},
			"done": func(t *rapid.T) {
				var numbers []uint64
				for number := uint64(1); number <= 40; number++ {
					if len(model[number]) > 0 && rapid.Bool().Draw(t, "settled") {
						numbers = append(numbers, number)
					}
				}
				again, wasFull := rapid.SampledFrom(append(claims, nil)).Draw(t, "again"), len(fulls.lanes) > 0
				most := rapid.IntRange(1, 4).Draw(t, "most")
				var want, wantBack []int64
				for _, number := range numbers {
					rest := model[number][1:]
					for len(rest) > 0 && (of[rest[0]] == again || of[rest[0]].closed.Load()) {
						wantBack = append(wantBack, rest[0])
						rest = rest[1:]
					}
					crowds.see(number, len(rest))
					fulls.see(number, len(rest))
					n, most := 0, most
					if l.clears && crowds.lanes[number] {
						most = 1
					}
					for n < min(most, len(rest)) && of[rest[n]] == of[rest[0]] {
						n++
					}
					want = append(want, rest[:n]...)
					if model[number] = rest[max(0, n-1):]; len(rest) == 0 { // those that follow are one at large
						delete(model, number)
					}
					see(number)
				}
				var f followers
				if thawed := l.done(numbers, again, most, &f); thawed != (wasFull && len(fulls.lanes) == 0) {
					t.Fatalf("done says thawed %v; full before: %v, now %v", thawed, wasFull, fulls.lanes)
				}
				sameOffsets(t, "next", f.next, want)
				sameOffsets(t, "back", f.back, wantBack)
			},
			"close": func(t *rapid.T) {
				i := rapid.IntRange(0, len(claims)-1).Draw(t, "claim")
				claims[i].closed.Store(true)
				claims[i] = &claim{}
			},
			"drop": func(t *rapid.T) {
				k := rapid.SampledFrom(claims).Draw(t, "claim")
				want := map[int64]bool{}
				for number, offsets := range model {
					model[number] = append(offsets[:1:1], slices.DeleteFunc(slices.Clone(offsets[1:]), func(o int64) bool {
						if of[o] == k {
							want[o] = true
						}
						return of[o] == k
					})...)
					delete(crowds.lanes, number)
					delete(fulls.lanes, number)
					see(number)
				}
				var f followers
				l.drop(k, &f)
				if len(f.back) != len(want) {
					t.Fatalf("%d dropped, want %d", len(f.back), len(want))
				}
				for _, w := range f.back {
					if !want[w.m[0].Offset] {
						t.Fatalf("%d was dropped", w.m[0].Offset)
					}
				}
			},
			"": func(t *rapid.T) {
				waiting := 0
				for number, offsets := range model {
					waiting += len(offsets) - 1
					if got := l.crowded(number); got != crowds.lanes[number] {
						t.Fatalf("lane %d with %d waiting, limit %d: crowded %v", number, len(offsets)-1, limit, got)
					}
				}
				if n, w := l.size(); n != len(model) || w != waiting || l.full != len(fulls.lanes) ||
					l.stillFull() != (len(fulls.lanes) > 0) {
					t.Fatalf("%d lanes, %d waiting, %d full; want %d, %d, %d", n, w, l.full, len(model), waiting, len(fulls.lanes))
				}
				if len(model) == 0 && len(l.slots) > keptSlots {
					t.Fatalf("%d slots for no lane", len(l.slots))
				}
			},
		})
	})
}

func sameOffsets(t *rapid.T, what string, ws []*waiting, want []int64) {
	t.Helper()
	var got []int64
	for _, w := range ws {
		for ; w != nil; w = w.next {
			got = append(got, w.m[0].Offset)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// BenchmarkLanes is one message in and out, of a chunk of 64.
func BenchmarkLanes(b *testing.B) {
	for name, keys := range map[string]uint64{"100 keys": 100, "10000 keys": 10_000} {
		b.Run(name, func(b *testing.B) {
			l, k := newLanes(Lane{Limit: 1 << 20}), &claim{}
			ms, numbers := make([]broker.Message, 64), make([]uint64, 64)
			var st stash
			var f followers
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(ms) {
				for j := range numbers {
					numbers[j] = 1 + (uint64(i+j)*0x9e3779b97f4a7c15>>20)%keys
				}
				n, _, _ := l.add(k, ms, numbers, &st)
				for at := numbers[:n]; len(at) > 0; {
					f.next = f.next[:0]
					l.done(at, nil, 1, &f)
					at = at[:0]
					for _, w := range f.next {
						at = append(at, w.number[0])
					}
				}
			}
		})
	}
}
