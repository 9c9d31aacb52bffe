package consumer

import (
	"testing"
	"time"
)

// TestQuickFailuresTellNothing: by what is known of the calls that came to something.
func TestQuickFailuresTellNothing(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		good, failed time.Duration // what each of the calls before took; 0: there were none
		n            int
		took         time.Duration
		quick        bool
	}{
		"nothing is known":            {n: 1, took: ms},
		"all before failed, too":      {failed: 100 * ms, n: 1, took: ms},
		"refused at once":             {good: 100 * ms, n: 1, took: ms, quick: true},
		"in no time":                  {good: 100 * ms, n: 1, quick: true},
		"just below a quarter":        {good: 100 * ms, n: 1, took: 24 * ms, quick: true},
		"a quarter":                   {good: 100 * ms, n: 1, took: 25 * ms},
		"half of the time":            {good: 100 * ms, n: 1, took: 50 * ms},
		"timed out":                   {good: 100 * ms, n: 1, took: 10_000 * ms},
		"a batch":                     {good: ms, n: 100, took: 10 * ms, quick: true},
		"a batch that took its time":  {good: ms, n: 100, took: 100 * ms},
		"slow failures move no bound": {good: ms, failed: 10_000 * ms, n: 1, took: ms},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			for range 20 {
				if c.good > 0 {
					p.observe(1, c.good, true)
				}
				if c.failed > 0 {
					p.observe(1, c.failed, false)
				}
			}
			if got := p.quick(c.n, c.took); got != c.quick {
				t.Errorf("quick is %v, want %v", got, c.quick)
			}
		})
	}
}
