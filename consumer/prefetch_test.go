package consumer

import (
	"testing"
	"time"
)

func TestPrefetch(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		limit, max, live, waiting int
		mean                      time.Duration
		want                      int
	}{
		{"unknown: two for each worker there may be", 4096, 64, 1, 0, 0, 128},
		{"30 s handlers hoard nothing", 4096, 64, 64, 0, 30 * time.Second, 129},
		{"5 ms handlers, half a second of work", 4096, 64, 20, 0, 5 * time.Millisecond, 128 + 2000},
		{"short handlers take all of the budget", 4096, 64, 1, 0, 10 * time.Nanosecond, 4096},
		{"what waits for no worker takes nobody's place", 4096, 64, 64, 500, 30 * time.Second, 629},
		{"never above the budget", 100, 64, 64, 0, time.Second, 100},
	} {
		if got := prefetch(tt.limit, tt.max, tt.live, tt.waiting, tt.mean); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
