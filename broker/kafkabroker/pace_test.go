package kafkabroker

import (
	"testing"
	"time"
)

// TestPace: what was late is halved, down to the least; what had plenty of time is doubled, up to no bound at all.
func TestPace(t *testing.T) {
	const least, most = 10, 100
	for _, tc := range []struct {
		name  string
		bound int64
		late  int64         // had so many bytes; 0: it was in time
		took  time.Duration // of 4 s
		want  int64
	}{
		{"late, without a bound", 0, 60, 0, 30},
		{"late, and more than ever goes at a time", 0, 500, 0, 50},
		{"late again", 30, 28, 0, 14},
		{"late with the least", 10, 10, 0, least},
		{"late with one byte", 0, 1, 0, least},
		{"in time", 14, 0, time.Second - 1, 28},
		{"in time, just so", 14, 0, time.Second, 14},
		{"in time, and no bound is left", 50, 0, time.Millisecond, 0},
		{"in time, without a bound", 0, 0, time.Millisecond, 0},
	} {
		p := pace{least: least, most: most, bound: tc.bound}
		if tc.late > 0 {
			p.late(tc.late)
		} else {
			p.done(tc.took, 4*time.Second)
		}
		if p.bound != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, p.bound, tc.want)
		}
	}
}
