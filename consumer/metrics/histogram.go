package metrics

import (
	"math"
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

// parts is into how many parts each bucket is divided inside, for Quantiles: the exposed ones are for alerts, and too wide for a
// chart.
const parts = 8

// fine are the upper bounds of the parts: of each bucket, parts of equal ratio, the last of which ends where the bucket does.
var fine = func() (all [len(bounds) * parts]time.Duration) {
	from := float64(bounds[0]) / (1 << parts)
	for i, to := range bounds {
		for p := range parts - 1 {
			all[i*parts+p] = time.Duration(from * math.Pow(float64(to)/from, float64(p+1)/parts))
		}
		all[i*parts+parts-1] = to
		from = float64(to)
	}
	return all
}()

// A histogram counts handler times. Workers tell of up to a hundred calls at once, which prometheus.Histogram could only take one
// by one.
type histogram struct {
	counts [len(fine) + 1]atomic.Int64 // the last one is above all bounds
	sum    atomic.Uint64               // the bits of a float64: nanoseconds, of many workers more than a Duration has
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
	for old := h.sum.Load(); !h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+float64(d))); {
		old = h.sum.Load()
	}
	for i *= parts; i < len(fine) && each > fine[i]; {
		i++
	}
	h.counts[i].Add(int64(n))
}

func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	seconds := math.Float64frombits(h.sum.Load()) / 1e9
	var count uint64
	upTo := make(map[float64]uint64, len(bounds))
	for i := range h.counts {
		count += uint64(h.counts[i].Load())
		if i%parts == parts-1 {
			upTo[bounds[i/parts].Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, seconds, upTo, labels...)
}
