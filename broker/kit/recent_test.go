package kit_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/longshoremq/longshore/broker/kit"
)

// TestRecent: the last n that were put first are there, with the last value, and no other.
func TestRecent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		r := kit.NewRecent[int, int](n)
		var order []int
		values := map[int]int{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, v := rapid.IntRange(0, 9).Draw(t, "key"), rapid.Int().Draw(t, "value")
				r.Put(k, v)
				if _, there := values[k]; !there {
					order = append(order, k)
				}
				values[k] = v
				if len(order) > n {
					delete(values, order[0])
					order = order[1:]
				}
			},
			"": func(t *rapid.T) {
				for k := range 10 {
					got, ok := r.Get(k)
					want, there := values[k]
					if got != want || ok != there {
						t.Fatalf("%d is %d, %v; want %d, %v", k, got, ok, want, there)
					}
				}
			},
		})
	})
}

// A message that was acked comes again, for the ack may have got lost: it is acked again, and not handed out.
func ExampleRecent() {
	type message struct {
		stream string // made anew, it is another
		id     int64
	}
	finished := kit.NewRecent[message, struct{}](kit.Finished)
	finished.Put(message{"orders", 7}, struct{}{})
	_, done := finished.Get(message{"orders", 7})
	_, other := finished.Get(message{"orders made anew", 7})
	fmt.Println(done, other)
	// Output: true false
}
