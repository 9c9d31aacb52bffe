package pool

import (
	"testing"

	"pgregory.net/rapid"
)

// drainClasses takes n T's and says of which class each was.
func drainClasses(q *queue[int], n int) (classes []int) {
	for range n {
		_, class, _ := q.pop()
		classes = append(classes, class)
	}
	return classes
}

// By rank: the first class that has something, but none is passed over more than mostPassed times and once for each that waits as
// long.
func TestStrictIsByRankAndStarvesNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "classes")
		weights := make([]int, n)
		for i := range weights {
			weights[i] = i + 1
		}
		q := newQueue[int](weights, true, 1000)
		passed := make([]int, n)
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			if class := rapid.IntRange(-1, n-1).Draw(t, "push"); class >= 0 {
				for range rapid.IntRange(1, 30).Draw(t, "times") {
					q.push(class, item[int]{0, 1})
				}
			}
			if q.items == 0 {
				continue
			}
			first := 0
			for q.classes[first].len == 0 {
				first++
			}
			was := make([]int, n)
			for i := range was {
				was[i] = q.classes[i].len
			}
			got := drainClasses(&q, 1)[0]
			if got != first && passed[got] < mostPassed {
				t.Fatalf("class %d was taken while %d waited, after %d others", got, first, passed[got])
			}
			for i := range passed {
				if passed[i]++; i == got || was[i] == 0 {
					passed[i] = 0
				}
				if passed[i] > mostPassed+n && i != got {
					t.Fatalf("class %d was passed over %d times", i, passed[i])
				}
			}
		}
	})
}
