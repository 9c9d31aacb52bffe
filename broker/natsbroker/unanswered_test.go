package natsbroker

import (
	"slices"
	"testing"
	"time"
)

// When another server is asked, where one does not answer. Not through the exported API: a table of what else takes minutes of
// waiting.
func TestUnanswered(t *testing.T) {
	const never = -1
	for name, tc := range map[string]struct {
		least    time.Duration
		asked    []int // at which seconds; that there is no answer is known three later
		answered int   // the one that is
		want     []int // those by which another server is asked
	}{
		"one":                  {8 * time.Second, []int{0}, never, nil},
		"twice as long, then":  {8 * time.Second, []int{0, 3, 6, 9, 12, 18, 24, 30, 36}, never, []int{6, 24}},
		"an answer between":    {8 * time.Second, []int{0, 3, 6, 9, 12}, 3, []int{12}},
		"each minute, at last": {8 * time.Second, []int{0, 10, 20, 30, 62, 122, 181, 182}, never, []int{10, 30, 62, 122, 182}},
		"a long patience":      {2 * time.Minute, []int{0, 60, 117, 180, 237}, never, []int{117, 237}},
	} {
		t.Run(name, func(t *testing.T) {
			u := unanswered{least: tc.least}
			var got []int
			for _, a := range tc.asked {
				at := time.Unix(1000, 0).Add(time.Duration(a) * time.Second)
				if a == tc.answered {
					u.over()
				} else if u.lasts(at, at.Add(3*time.Second)) {
					got = append(got, a)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("another one is asked by %v, want %v", got, tc.want)
			}
		})
	}
}
