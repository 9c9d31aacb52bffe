package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/pool"
)

// figures is a target with figures and nothing else.
type figures struct {
	admin.Target
	stats consumer.Stats
}

func (f figures) Stats() consumer.Stats { return f.stats }
func (figures) Ready() bool             { return true }

// full is a page whose histories have all that they keep.
func full(now time.Time) http.Handler {
	p := New(Config{})
	observe := p.Watch("orders", Sources{Times: metrics.New("orders")})
	s := stats(900_000, 12, 345, 8)
	h := p.Handler(admin.PageSetup{Targets: map[string]admin.Target{"orders": figures{stats: s}}})
	for i := range int64(keptSeconds) {
		p.watched["orders"].history.add(now.Add(time.Duration(i-keptSeconds)*time.Second),
			stats(1000*i+i%7*100, i/10, i*37%500, int(i%9)), float64(i%40), float64(i%900))
	}
	for i := range keptDecisions {
		observe(consumer.Scaled{Decision: pool.Decision{From: i % 8, Target: i%8 + 1, Reason: pool.ReasonStaff}})
	}
	return h
}

// BenchmarkLive is what a tab that looks costs in a second.
func BenchmarkLive(b *testing.B) {
	h := full(time.Now())
	r := httptest.NewRequest(http.MethodGet, "/ui/c/orders/live", nil)
	bytes := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		bytes = w.Body.Len()
	}
	b.ReportMetric(float64(bytes), "bytes")
}

// BenchmarkObserver is what the page costs a consumer for each hand-off.
func BenchmarkObserver(b *testing.B) {
	observe := New(Config{}).Watch("orders", Sources{})
	e := consumer.Event(consumer.Handled{N: 4, Took: time.Millisecond})
	for b.Loop() {
		observe(e)
	}
}
