package page

import (
	"math"
	"sync"
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// What a history keeps: 15 minutes by the second, and a day by the minute.
const (
	keptSeconds = 900
	keptMinutes = 1440
)

// A sample is how a consumer was in a second, or a minute: its rates are the mean of that time, all else the most of it.
type sample struct {
	at                time.Time
	of                float64 // seconds
	handled, failed   float64 // a second
	skipped           float64 // a second
	settled           float64 // a second: handled, skipped, or stored elsewhere
	lag               float64 // NaN: unknown
	queued            float64 // wait here for a worker
	kept              float64 // wait here for something else
	busy, live, limit float64 // workers
	p50, p99          float64 // of the handlers' times, in milliseconds; NaN: unknown
}

// A history is what a consumer's figures were. Safe for concurrent use.
type history struct {
	mu      sync.Mutex
	seconds ring[sample]
	minutes ring[sample]
	minute  []sample // those of the minute at hand
	prev    consumer.Stats
	prevAt  time.Time
}

func newHistory() *history {
	return &history{seconds: newRing[sample](keptSeconds), minutes: newRing[sample](keptMinutes)}
}

// add takes the figures of a moment in. The first one only begins: a rate needs two.
func (h *history) add(now time.Time, s consumer.Stats, p50, p99 float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, since := h.prev, now.Sub(h.prevAt).Seconds()
	first := h.prevAt.IsZero()
	h.prev, h.prevAt = s, now
	if first || since <= 0 {
		return
	}
	x := sample{
		at: now, of: since, lag: math.NaN(),
		handled: float64(s.Handled-was.Handled) / since, failed: float64(s.Failed-was.Failed) / since,
		skipped: float64(s.Skipped-was.Skipped) / since,
		settled: float64(settled(s)-settled(was)) / since, queued: float64(s.Pool.Backlog), kept: float64(kept(s)),
		busy: float64(s.Pool.Busy), live: float64(s.Pool.Live), limit: float64(s.Pool.Max), p50: p50, p99: p99,
	}
	if s.Lag.Waiting >= 0 {
		x.lag = float64(s.Lag.Waiting)
	}
	h.seconds.add(x)
	if len(h.minute) > 0 && !h.minute[0].at.Truncate(time.Minute).Equal(now.Truncate(time.Minute)) {
		h.minutes.add(together(h.minute))
		h.minute = h.minute[:0]
	}
	h.minute = append(h.minute, x)
}

// settled is how many messages a consumer is through with.
func settled(s consumer.Stats) int64 {
	return s.Handled + s.Skipped + s.RetryPublished + s.DeadLettered
}

// together is one sample of several, at the time of the last.
func together(list []sample) (all sample) {
	all.lag, all.p50, all.p99 = math.NaN(), math.NaN(), math.NaN()
	most := func(a *float64, b float64) {
		if math.IsNaN(*a) || b > *a {
			*a = b
		}
	}
	for _, x := range list {
		all.of += x.of
	}
	for _, x := range list {
		part := x.of / all.of
		all.at = x.at
		all.handled += x.handled * part
		all.failed += x.failed * part
		all.skipped += x.skipped * part
		all.settled += x.settled * part
		most(&all.lag, x.lag)
		most(&all.queued, x.queued)
		most(&all.kept, x.kept)
		most(&all.busy, x.busy)
		most(&all.live, x.live)
		most(&all.limit, x.limit)
		most(&all.p50, x.p50)
		most(&all.p99, x.p99)
	}
	return all
}

// A span is how much of a history is shown.
type span struct {
	Name   string // in the address
	Title  string
	length time.Duration
	column time.Duration // what one point of a chart stands for
}

// spans are those that may be chosen; the first is shown where none is.
var spans = []span{
	{"15m", "the last 15 minutes", 15 * time.Minute, 3 * time.Second},
	{"3m", "the last 3 minutes", 3 * time.Minute, time.Second},
	{"24h", "the last 24 hours", 24 * time.Hour, 5 * time.Minute},
}

// spanOf is the one of that name.
func spanOf(name string) span {
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	return spans[0]
}

// columns are the samples of a span that ends now, put together to a point for each column. Columns begin at round times, so
// that a picture moves and does not flicker.
func (h *history) columns(s span, now time.Time) []sample {
	h.mu.Lock()
	list := h.seconds.all()
	if s.length > keptSeconds*time.Second {
		list = append(h.minutes.all(), h.minute...)
	}
	h.mu.Unlock()
	return inColumns(list, s.column, now.Add(-s.length))
}

func inColumns(list []sample, column time.Duration, from time.Time) (cols []sample) {
	begin := 0
	for i := range list {
		switch {
		case list[i].at.Before(from):
			begin = i + 1
		case i+1 == len(list) || list[i+1].at.Truncate(column) != list[i].at.Truncate(column):
			cols = append(cols, together(list[begin:i+1]))
			begin = i + 1
		}
	}
	return cols
}

// latest are the samples of the last while, the oldest first.
func (h *history) latest(n int) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.seconds.all()
	return list[max(0, len(list)-n):]
}
