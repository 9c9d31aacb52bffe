package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds are the upper bounds of the histogram's buckets.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, 60 * time.Second, 300 * time.Second,
}

// A histogram counts handler times. Workers tell of up to a hundred calls at once, which prometheus.Histogram could only take one
// by one.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Int64 // the last one is above all bounds
	sum     atomic.Int64                  // nanoseconds
}

// observe counts n calls that took d together.
func (h *histogram) observe(n int, d time.Duration) {
	if n <= 0 {
		return
	}
	each, i := d/time.Duration(n), 0
	for i < len(bounds) && each > bounds[i] {
		i++
	}
	h.sum.Add(int64(d))
	h.buckets[i].Add(int64(n))
}

func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	sum := time.Duration(h.sum.Load())
	var count uint64
	upTo := make(map[float64]uint64, len(bounds))
	for i := range h.buckets {
		count += uint64(h.buckets[i].Load())
		if i < len(bounds) {
			upTo[bounds[i].Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, sum.Seconds(), upTo, labels...)
}
