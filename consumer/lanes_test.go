package consumer

import (
	"fmt"
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
		l := newLanes(Lane{Limit: limit, Full: rapid.SampledFrom([]LanePolicy{LaneBlock, LaneDeadLetter}).Draw(t, "policy")},
			newLaneSpares())
		claims := []*claim{{}, {}, {}}
		highest := rapid.SampledFrom([]uint64{2, 40}).Draw(t, "lanes") // of few, each has more
		model, of := laneModel{}, map[int64]*claim{}
		crowds, fulls := latch{limit, limit / 2, map[uint64]bool{}}, latch{l.hold, l.thaw, map[uint64]bool{}}
		var st stash
		next := int64(0)
		see := func(number uint64) { // what the limits say of a lane after a change
			crowds.see(number, len(model[number])-1)
			fulls.see(number, len(model[number])-1)
		}
		var kept []lapse
		gone := map[uint64][]int64{} // what went back, by lane
		keeps := func(number uint64) bool {
			return slices.ContainsFunc(kept, func(l lapse) bool { return l.number == number })
		}
		var wantBack []int64
		var wantKept []lapse
		// free takes a lane out of the model, or what follows or goes back out of it, and out of f.next what follows in it.
		free := func(t *rapid.T, number uint64, again *claim, most, lanes int, f *followers) {
			rest, keeps := model[number][1:], false
			for len(rest) > 0 && (of[rest[0]] == again || of[rest[0]].closed.Load()) {
				wantBack = append(wantBack, rest[0])
				if of[rest[0]] == again && !keeps {
					wantKept, keeps = append(wantKept, lapse{k: again, number: number, offset: rest[0]}), true
				}
				gone[number] = append(gone[number], rest[0])
				rest = rest[1:]
			}
			crowds.see(number, len(rest))
			fulls.see(number, len(rest))
			if keeps {
				model[number] = append(model[number][:1:1], rest...)
				return
			}
			n := 0
			if l.clears && crowds.lanes[number] || len(rest) < lanes {
				most = 1
			}
			for n < min(most, len(rest)) && of[rest[n]] == of[rest[0]] {
				n++
			}
			if len(rest) == 0 {
				delete(model, number)
				see(number)
				return
			}
			if len(f.next) == 0 {
				t.Fatalf("nothing of lane %d follows, want %v", number, rest[:n])
			}
			if got := len(f.next[0].ms); got > n || got < min(n, copied) {
				t.Fatalf("%d of lane %d follow, want %d, or %d at least", got, number, n, copied)
			}
			n = len(f.next[0].ms)
			sameOffsets(t, "next", f.next[:1], rest[:n])
			f.next = f.next[1:]
			model[number] = rest[n-1:] // those that follow are one at large
			see(number)
		}
		// freed looks at what is left of f, and notes which lanes are kept.
		freed := func(t *rapid.T, f *followers, thawed, wasFull bool) {
			if thawed != (wasFull && len(fulls.lanes) == 0) {
				t.Fatalf("it says thawed %v; full before: %v, now %v", thawed, wasFull, fulls.lanes)
			}
			if len(f.next) > 0 {
				t.Fatalf("%d rows too many follow", len(f.next))
			}
			sameOffsets(t, "back", f.back, wantBack)
			if !slices.Equal(f.kept, wantKept) {
				t.Fatalf("%v are kept, want %v", f.kept, wantKept)
			}
			kept = append(kept, f.kept...)
			wantBack, wantKept = nil, nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"keep": func(t *rapid.T) {
				l.keep([]uint64{rapid.Uint64Range(0, 40).Draw(t, "number")})
			},
			"add": func(t *rapid.T) {
				k := rapid.SampledFrom(claims).Draw(t, "claim")
				numbers := rapid.SliceOfN(rapid.Uint64Range(0, highest), 1, 20).Draw(t, "numbers")
				ms := make([]broker.Message, len(numbers))
				var starts []int64
				becomes, is := false, false
				for i, number := range numbers {
					o := next
					if back := gone[number]; len(back) > 0 && rapid.Bool().Draw(t, "comes again") {
						o, gone[number] = back[0], back[1:]
					} else {
						next++
					}
					ms[i].Offset, of[o] = o, k
					if number == 0 || len(model[number]) == 0 {
						starts = append(starts, o)
					}
					if number != 0 {
						was := crowds.lanes[number]
						model[number] = append(model[number], o)
						see(number)
						becomes = becomes || crowds.lanes[number] && !was
						is = is || fulls.lanes[number]
					}
				}
				took := l.add(k, 0, ms, slices.Clone(numbers), &st)
				var got []int64
				for _, m := range ms[:took.start] {
					got = append(got, m.Offset)
				}
				if !slices.Equal(got, starts) {
					t.Fatalf("%v start, want %v", got, starts)
				}
				if (took.crowded != 0) != becomes || took.full != is || took.wait != len(ms)-took.start {
					t.Fatalf("add says %+v; want crowded %v, full %v", took, becomes, is)
				}
			},
			"done": func(t *rapid.T) {
				var numbers []uint64
				for number := uint64(1); number <= 40; number++ {
					if len(model[number]) > 0 && !keeps(number) && rapid.Bool().Draw(t, "settled") {
						numbers = append(numbers, number)
					}
				}
				again, wasFull := rapid.SampledFrom(append(claims, nil)).Draw(t, "again"), len(fulls.lanes) > 0
				most := rapid.IntRange(1, 20).Draw(t, "most")
				var f followers
				thawed := l.done(numbers, again, most, &f)
				for _, number := range numbers {
					free(t, number, again, most, len(numbers), &f)
				}
				freed(t, &f, thawed, wasFull)
			},
			"went back": func(t *rapid.T) {
				var some []lapse
				kept = slices.DeleteFunc(kept, func(l lapse) bool {
					is := rapid.Bool().Draw(t, "is back")
					if is {
						some = append(some, l)
					}
					return is
				})
				wasFull, most := len(fulls.lanes) > 0, rapid.IntRange(1, 20).Draw(t, "most")
				var f followers
				thawed := l.wentBack(some, most, &f)
				for _, l := range some {
					again, rest := l.k, model[l.number][1:]
					if i := slices.IndexFunc(rest, func(o int64) bool { return o >= l.offset }); i < 0 || rest[i] == l.offset {
						again = nil
					}
					free(t, l.number, again, most, len(some), &f)
				}
				freed(t, &f, thawed, wasFull)
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
							gone[number] = append(gone[number], o)
						}
						return of[o] == k
					})...)
					see(number)
				}
				var f followers
				l.drop(k, &f)
				for _, r := range f.back {
					for i := range r.ms {
						if !want[r.ms[i].Offset] {
							t.Fatalf("%d was dropped", r.ms[i].Offset)
						}
						delete(want, r.ms[i].Offset)
					}
				}
				if len(want) > 0 {
					t.Fatalf("not dropped: %v", want)
				}
			},
			"put back": func(t *rapid.T) {
				number, k := rapid.Uint64Range(1, 40).Draw(t, "lane"), rapid.SampledFrom(claims).Draw(t, "claim")
				if len(model[number]) == 0 || keeps(number) {
					t.Skip("nothing of it is at large")
				}
				ms := make([]broker.Message, rapid.IntRange(0, 5).Draw(t, "n"))
				offsets := model[number][:1:1]
				for i := range ms {
					ms[i].Offset, of[next] = next, k
					offsets = append(offsets, next)
					next++
				}
				l.putBack(row{k: k, number: number, ms: ms})
				model[number] = append(offsets, model[number][1:]...)
				see(number)
			},
			"": func(t *rapid.T) {
				waiting := 0
				for number, offsets := range model {
					waiting += len(offsets) - 1
					if got := l.crowded(number); got != crowds.lanes[number] {
						t.Fatalf("lane %d with %d waiting, limit %d: crowded %v", number, len(offsets)-1, limit, got)
					}
				}
				if n, w, full := l.size(); n != len(model) || w != waiting || full != len(fulls.lanes) ||
					l.stillFull() != (len(fulls.lanes) > 0) {
					t.Fatalf("%d lanes, %d waiting, %d full; want %d, %d, %d", n, w, full, len(model), waiting, len(fulls.lanes))
				}
				if len(model) == 0 && len(l.table.numbers) > keptSlots {
					t.Fatalf("%d slots for no lane", len(l.table.numbers))
				}
			},
		})
	})
}

func sameOffsets(t *rapid.T, what string, rows []row, want []int64) {
	t.Helper()
	var got []int64
	for _, r := range rows {
		for i := range r.ms {
			got = append(got, r.ms[i].Offset)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// Lanes of partitions that went elsewhere are forgotten, though none comes in their place: a process that stands by would keep
// those of all that it ever had.
func TestLanesGoWithTheirPartitions(t *testing.T) {
	const partitions = 100
	ts := newPartitionLanes(Lane{Limit: 10})
	var st stash
	of := func(p int32) partitionKey { return partitionKey{topic: "in", partition: p} }
	for p := range int32(partitions) {
		ts.use(of(p))
	}
	running := ts.by[of(7)].lanes
	running.add(&claim{}, 0, make([]broker.Message, 1), []uint64{1}, &st)
	for p := range int32(partitions) {
		ts.leave(of(p))
	}
	if all := ts.all(); len(all) != 1 || all[0] != running {
		t.Errorf("the lanes of %d partitions are left, want those of the one where a message runs", len(all))
	}
	running.done([]uint64{1}, nil, 1, &followers{})
	if ts.use(of(8)); len(ts.all()) != 1 {
		t.Errorf("the lanes of %d partitions are left, want those of the one that has come", len(ts.all()))
	}
}

// TestForgottenClaimsLeaveTheirLanes: the same by the claims that had them, each of a topic of its own, as topics come and go.
func TestForgottenClaimsLeaveTheirLanes(t *testing.T) {
	cfg := Config{Order: OrderKey}.withDefaults()
	cs, f := newClaims(&cfg), &feed{}
	cs.handlers = t.Context()
	for i := range 100 {
		b, _ := broker.NewClaim(fmt.Sprintf("topic %d", i), 0, nil)
		k, _ := cs.of(f, b)
		k.lanes.held.Store(k)
		cs.forget(k)
		if k.lanes.held.Load() != nil {
			t.Fatal("a claim that has ended is held still")
		}
	}
	if all := cs.lanes.all(); len(all) != 0 {
		t.Errorf("the lanes of %d topics are left", len(all))
	}
}

// BenchmarkLanes is one message in and out, of a chunk of 64.
func BenchmarkLanes(b *testing.B) {
	for name, keys := range map[string]uint64{"100 keys": 100, "10000 keys": 10_000} {
		b.Run(name, func(b *testing.B) {
			l, k := newLanes(Lane{Limit: 1 << 20}, newLaneSpares()), &claim{}
			ms, numbers := make([]broker.Message, 64), make([]uint64, 64)
			var st stash
			var f followers
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(ms) {
				for j := range numbers {
					numbers[j] = 1 + (uint64(i+j)*0x9e3779b97f4a7c15>>20)%keys
				}
				took := l.add(k, 0, ms, numbers, &st)
				for at := numbers[:took.start]; len(at) > 0; {
					f.next = f.next[:0]
					l.done(at, nil, 1, &f)
					at = at[:0]
					for _, w := range f.next {
						at = append(at, w.number)
					}
				}
			}
		})
	}
}
