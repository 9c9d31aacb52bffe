package metrics

import "time"

// A Mark is up to where somebody has looked at a Collector's handler times. The zero value: they have not yet.
type Mark struct{ counts [len(fine) + 1]int64 }

// Quantiles returns how long the handler calls took that were observed since the look that mark is of, and moves mark up to now:
// for a chart, asked once a second with a Mark of its own. Each q is a share, 0..1: 0.5 is the median. nil: there was no call.
//
// Only calls that returned nil are counted, those of a worker in a row with their mean. From 100 µs on a value is right to
// about a tenth, below to a factor of 2, and what took more than 5 min is 5 min. Any goroutine may ask, with a Mark that no
// other uses meanwhile.
func (c *Collector) Quantiles(mark *Mark, q ...float64) []time.Duration {
	var since [len(fine) + 1]int64
	total := int64(0)
	for i := range since {
		now := c.took.counts[i].Load()
		since[i] = now - mark.counts[i]
		mark.counts[i] = now
		total += since[i]
	}
	if total == 0 {
		return nil
	}
	all := make([]time.Duration, len(q))
	for i, share := range q {
		all[i] = quantile(since[:], share*float64(total))
	}
	return all
}

// quantile is the time below which rank of the counted calls lie; within a part they are taken to be spread evenly.
func quantile(counts []int64, rank float64) time.Duration {
	below, from := 0.0, time.Duration(0)
	for i, to := range fine {
		n := float64(counts[i])
		if n > 0 && below+n >= rank {
			return from + time.Duration(float64(to-from)*max(0, rank-below)/n)
		}
		below, from = below+n, to
	}
	return from
}
