package metrics_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
)

// TestQuantiles: they are near those of the very calls, of what came since the last look only, and each looker has its own.
func TestQuantiles(t *testing.T) {
	m := metrics.New("orders")
	var mark, other metrics.Mark
	if got := m.Quantiles(&mark, 0.5); got != nil {
		t.Errorf("%v without a call", got)
	}
	for _, scale := range []time.Duration{300 * time.Microsecond, 20 * time.Millisecond, 3 * time.Second} {
		var took []time.Duration
		for range 10_000 {
			d := time.Duration(float64(scale) * (1 + 9*rand.Float64()))
			took = append(took, d)
			m.Observe(consumer.Handled{N: 1, Took: d})
		}
		slices.Sort(took)
		got := m.Quantiles(&mark, 0.5, 0.99, 0, 1)
		for i, at := range []int{5000, 9900, 0, 9999} {
			if want := took[at]; got[i] < want*85/100 || got[i] > want*115/100 {
				t.Errorf("scale %v: %v, want about %v", scale, got[i], want)
			}
		}
		if got := m.Quantiles(&mark, 0.5); got != nil {
			t.Errorf("%v with no call since", got)
		}
	}
	if got := m.Quantiles(&other, 0.5)[0]; got < 100*time.Millisecond || got > 200*time.Millisecond { // of all three
		t.Errorf("the median of all is %v", got)
	}
	m.Observe(consumer.Handled{N: 3, Took: time.Hour})
	if got := m.Quantiles(&mark, 0.5)[0]; got != 5*time.Minute {
		t.Errorf("what is above all is %v", got)
	}
}

// TestQuantilesExposeNothing: the buckets that are exposed are the same as ever, and each call is in one of them.
func TestQuantilesExposeNothing(t *testing.T) {
	m := metrics.New("orders")
	for _, us := range []int{1, 99, 100, 101, 240, 250, 251, 290_000_000, 300_000_000, 300_000_001} {
		m.Observe(consumer.Handled{N: 1, Took: time.Duration(us) * time.Microsecond})
	}
	text := expose(t, m)
	wantSeries(t, text,
		`longshore_handler_duration_seconds_bucket{le="0.0001"} 3`, `longshore_handler_duration_seconds_bucket{le="0.00025"} 6`,
		`longshore_handler_duration_seconds_bucket{le="0.0005"} 7`, `longshore_handler_duration_seconds_bucket{le="60"} 7`,
		`longshore_handler_duration_seconds_bucket{le="300"} 9`, `longshore_handler_duration_seconds_bucket{le="+Inf"} 10`,
		`longshore_handler_duration_seconds_count 10`)
	if n := strings.Count(text, "longshore_handler_duration_seconds_bucket"); n != 20 {
		t.Errorf("%d buckets, want 20", n)
	}
}
