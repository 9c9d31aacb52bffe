package consumer

import (
	"testing"

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
