package consumer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// TestMade holds what was emitted by message to a plain map, in whatever order it is added and taken.
func TestMade(t *testing.T) {
	for range 200 {
		var x made
		want := map[int][]string{}
		for n := range 300 {
			i := rand.IntN(12) - 1 // whole is among them
			if rand.IntN(3) > 0 {
				name := fmt.Sprint(n)
				x.add(i, []broker.Outgoing{{Topic: name}})
				want[i] = append(want[i], name)
				continue
			}
			var got []string
			for _, o := range x.take(i) {
				got = append(got, o.Topic)
			}
			if !slices.Equal(got, want[i]) {
				t.Fatalf("message %d emitted %v, want %v", i, got, want[i])
			}
			delete(want, i)
			if _, left := x.find(i); left || len(x) != len(want) {
				t.Fatalf("after it was taken, message %d: %v; %d messages are left, want %d", i, left, len(x), len(want))
			}
		}
	}
}
