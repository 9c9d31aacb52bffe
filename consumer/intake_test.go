package consumer

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func TestMayRest(t *testing.T) {
	for name, c := range map[string]struct {
		got, queued int
		perSecond   float64
		want        bool
	}{
		"nothing is known":                     {1, 100, 0, false},
		"nothing was received yet":             {0, 1000, 60_000, false},
		"one at a time, work for 10 rests":     {1, 600, 60_000, true},
		"one at a time, work for 3 rests":      {1, 180, 60_000, false},
		"one at a time, an empty queue":        {1, 0, 60_000, false},
		"a rest brings no more than it got":    {60, 6000, 60_000, false},
		"slow handlers: a rest brings nothing": {1, 1000, 1000, false},
	} {
		if got := mayRest(c.got, c.queued, c.perSecond); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestMicroBatch(t *testing.T) {
	full := pool.Load{Backlog: 1000, Live: 64, Max: 64}
	for name, c := range map[string]struct {
		call time.Duration
		load pool.Load
		want int
	}{
		"nothing is known":             {0, full, 1},
		"short ones":                   {time.Millisecond, full, 4},
		"longer ones":                  {2 * time.Millisecond, full, 3},
		"long ones":                    {4 * time.Millisecond, full, 1},
		"very long ones":               {time.Minute, full, 1},
		"there may be more workers":    {time.Millisecond, pool.Load{Backlog: 1000, Live: 63, Max: 64}, 1},
		"more workers than there are":  {time.Millisecond, pool.Load{Backlog: 1000, Live: 70, Max: 64}, 4},
		"no backlog":                   {time.Millisecond, pool.Load{Live: 64, Max: 64}, 1},
		"a backlog for a moment":       {time.Millisecond, pool.Load{Backlog: 511, Live: 64, Max: 64}, 1},
		"a backlog for eight of a run": {time.Millisecond, pool.Load{Backlog: 512, Live: 64, Max: 64}, 4},
	} {
		if got := microBatch(c.call, c.load); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
