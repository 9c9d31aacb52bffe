package consumer

import (
	"runtime"
	"testing"
	"weak"

	"github.com/longshoremq/longshore/broker"
)

// What a handler has seen stays in memory as long as anything of its row does. So a row has few messages where they are large,
// and as many as are asked for where they are small.
func TestRowsAreBoundedByBytes(t *testing.T) {
	for name, c := range map[string]struct{ size, most, want int }{
		"small": {100, 100, 100},
		"large": {100 << 10, 100, slabBytes/(100<<10) + 1},
		"huge":  {1 << 20, 100, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var chain chain
			var st stash
			k := &claim{}
			value := make([]byte, c.size)
			for i := range 1000 {
				chain.push(k, &broker.Message{Offset: int64(i), Value: value}, &st)
			}
			next, longest := int64(0), 0
			for chain.n > 0 {
				r := chain.pop(c.most)
				for i := range r.ms {
					if r.ms[i].Offset != next {
						t.Fatalf("%d comes where %d should", r.ms[i].Offset, next)
					}
					next++
				}
				if longest = max(longest, len(r.ms)); len(r.ms) > c.want {
					t.Fatalf("%d in a row, want at most %d", len(r.ms), c.want)
				}
			}
			if next != 1000 || longest != c.want {
				t.Errorf("%d messages, at most %d in a row; want 1000, %d", next, longest, c.want)
			}
		})
	}
}

// What waits long in one lane keeps little in memory of what came and went in others, though their memory was taken together.
func TestLanesKeepLittleOfOthers(t *testing.T) {
	for name, c := range map[string]struct{ lanes, each, size, want int }{
		"many lanes": {lanes: 1000, each: 1, size: 100 << 10, want: slabBytes/(100<<10) + 1},
		"a hot lane": {lanes: 1, each: 10_000, size: 1 << 10, want: largeBlock},
	} {
		t.Run(name, func(t *testing.T) {
			table := laneTable{spares: newLaneSpares()}
			var st stash
			var waiting []*chain
			var values []weak.Pointer[byte]
			k := &claim{}
			push := func(number uint64) {
				value := make([]byte, c.size)
				values = append(values, weak.Make(&value[0]))
				table.chain(table.find(number)).push(k, &broker.Message{Value: value}, &st)
			}
			for i := range c.lanes {
				number := uint64(2 + i)
				at, _ := table.add(number)
				for range c.each {
					push(number)
				}
				if i%(max(2, c.lanes/2)) == 0 { // beside it, one that waits long
					var long chain
					long.push(k, &broker.Message{}, &st)
					waiting = append(waiting, &long)
				}
				for table.waiting(at).n > 0 {
					table.waiting(at).pop(1)
				}
				table.remove(at)
			}
			table, st.ms = laneTable{}, nil // what comes next needs other memory
			runtime.GC()
			kept := 0
			for _, v := range values {
				if v.Value() != nil {
					kept++
				}
			}
			if most := c.want * len(waiting); kept > most {
				t.Errorf("%d of %d values are in memory for %d messages, want at most %d", kept, len(values), len(waiting), most)
			}
			runtime.KeepAlive(waiting)
			runtime.KeepAlive(&st)
		})
	}
}
