package kafkabroker

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestAnswerFitsItsRoom: an answer that brings all the bytes it was asked for, of many partitions, is read into what was set
// aside for it. It was a little longer, and so allocated again and copied: an eighth of the CPU at 1,000 partitions.
func TestAnswerFitsItsRoom(t *testing.T) {
	for _, version := range []int16{11, 13} {
		for _, parts := range []int{1, 1000} {
			t.Run(fmt.Sprintf("version %d, %d partitions", version, parts), func(t *testing.T) {
				f := fetchRequest{bytes: 4 << 20, maxWait: time.Second}
				w := writer{flexible: version >= 12}
				w.i32(0)
				w.i16(0)
				w.i32(0)
				w.array(1)
				if version >= 13 {
					w.id(topicID{1})
				} else {
					w.str("orders")
				}
				w.array(parts)
				for no := range int32(parts) {
					f.wishes = append(f.wishes, wish{partitionID: partitionID{"orders", no}, id: topicID{1}})
					w.i32(no)
					w.i16(0)
					w.i64(1000)
					w.i64(1000)
					w.i64(0)
					w.array(0) // aborted
					w.i32(-1)
					w.bytes(make([]byte, int(f.bytes)/parts))
					w.tags()
				}
				w.tags()
				w.tags()
				var answer []byte
				n := leastAllocs(func() {
					var err error
					if answer, err = readClaimed(bytes.NewReader(w.b), len(w.b), f.room()); err != nil {
						t.Fatal(err)
					}
				})
				if n > 2 { // the answer, and its reader
					t.Errorf("%v allocations for an answer of %d bytes, with room for %d", n, len(w.b), f.room())
				}
				got, err := f.read(&reader{b: answer, flexible: w.flexible}, version)
				if err != nil || len(got) != parts {
					t.Errorf("%d partitions are read, %v", len(got), err)
				}
			})
		}
	}
}

// leastAllocs is how many allocations do makes. The process's are counted, and what an earlier test has left may make some.
func leastAllocs(do func()) float64 {
	least := testing.AllocsPerRun(1, do)
	for range 20 {
		least = min(least, testing.AllocsPerRun(1, do))
	}
	return least
}

// TestFinder: whatever the order of answers, each finds what it is to, and that once.
func TestFinder(t *testing.T) {
	ids := []partitionID{{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}, {"b", 2}}
	for name, tc := range map[string]struct {
		answers []partitionID
		want    []int
	}{
		"in order":       {ids, []int{0, 1, 2, 3, 4}},
		"one is missing": {[]partitionID{ids[0], ids[2], ids[3], ids[4]}, []int{0, 2, 3, 4}},
		"backwards":      {[]partitionID{ids[4], ids[3], ids[2], ids[1], ids[0]}, []int{4, 3, 2, 1, 0}},
		"twice":          {[]partitionID{ids[0], ids[0], ids[1], ids[1], ids[2]}, []int{0, -1, 1, -1, 2}},
		"not asked":      {[]partitionID{{"c", 0}, ids[0], {"a", 7}, ids[1]}, []int{-1, 0, -1, 1}},
		"too many":       {append(slices.Clone(ids), ids[2], partitionID{"d", 0}), []int{0, 1, 2, 3, 4, -1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := finder{n: len(ids), of: func(i int) partitionID { return ids[i] }}
			for i, p := range tc.answers {
				if got := f.find(p); got != tc.want[i] {
					t.Errorf("answer %d is to %d, want %d", i, got, tc.want[i])
				}
			}
		})
	}
}

// TestTopicsInOnePiece: a fetch of partitions of several topics, whatever their turns, names each topic once: a broker refuses
// one that names it twice, or answers it twice.
func TestTopicsInOnePiece(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 30}})
	for no := range int32(3) {
		for _, topic := range []string{"b", "a", "c"} {
			h.place(topic, no).moveTo(1)
		}
	}
	f := h.plan(time.Now())[0]
	var names []string
	for _, ps := range byTopic(f.req.wishes, true) {
		names = append(names, ps[0].topic)
	}
	if !slices.Equal(names, []string{"b", "a", "c"}) || len(f.parts) != 9 {
		t.Errorf("topics %v of %d partitions, want b, a and c of 9", names, len(f.parts))
	}
	for i, w := range f.req.wishes {
		if w.partitionID != f.parts[i].partitionID {
			t.Errorf("wish %d is of %v, not of %v", i, w.partitionID, f.parts[i].partitionID)
		}
	}
}

// TestTopicsOfOneName: a topic was made anew. One of its partitions has begun with the new one, and another with the old one, for
// it was looked up before. A fetch asks for each under its own topic's id: the position in the old one says nothing of the new.
// By name only the one that is there can be asked for, and that is in one piece.
func TestTopicsOfOneName(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 30}})
	now, before := topicID{2}, topicID{1}
	for no, id := range []topicID{now, before, now} {
		p := h.place("orders", int32(no))
		p.id = id
		p.moveTo(1)
	}
	f := h.plan(time.Now())[0]
	r := reader{b: f.req.body(13), flexible: true}
	for range 4 { // replica, longest wait, least bytes, most bytes
		r.i32()
	}
	r.i8()
	r.i32() // session
	r.i32()
	asked := make(map[topicID][]int32)
	for n := r.array(); n > 0; n-- {
		id := r.id()
		if asked[id] != nil {
			t.Errorf("topic %v is named twice", id)
		}
		for m := r.array(); m > 0; m-- {
			asked[id] = append(asked[id], r.i32())
			r.i32()
			r.i64()
			r.i32()
			r.i64()
			r.i32()
			r.tags()
		}
		r.tags()
	}
	want := map[topicID][]int32{now: {0, 2}, before: {1}}
	if n := len(byTopic(f.req.wishes, false)); n != 1 {
		t.Errorf("by name it is in %d pieces, want 1", n)
	}
	if r.bad || !maps.EqualFunc(asked, want, slices.Equal[[]int32]) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}
