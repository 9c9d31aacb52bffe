package consumer

import "testing"

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
