package program

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"
)

// A tally is the demo's ledger: how often each numbered message was handled, and how long after its publish.
type tally struct {
	mu      sync.Mutex
	times   []uint32        // handled so often, by number
	latency []time.Duration // of every handling
	recent  int             // handlings before this index were shown already
}

// add counts one handled message.
func (t *tally) add(body []byte, now time.Time) error {
	if len(body) != 16 {
		return errors.New("not a message of the demo: want 16 bytes")
	}
	n := binary.BigEndian.Uint64(body)
	took := now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(body[8:]))))
	t.mu.Lock()
	defer t.mu.Unlock()
	if grow := int(n) + 1 - len(t.times); grow > 0 {
		t.times = append(t.times, make([]uint32, grow)...)
	}
	t.times[n]++
	t.latency = append(t.latency, took)
	return nil
}

// since returns how many were handled since the last call, and the median and 99th percentile of their latency.
func (t *tally) since() (n int, p50, p99 time.Duration) {
	t.mu.Lock()
	l := slices.Clone(t.latency[t.recent:])
	t.recent = len(t.latency)
	t.mu.Unlock()
	return len(l), quantile(l, 0.5), quantile(l, 0.99)
}

// count says how many distinct messages were handled.
func (t *tally) count() (distinct int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.times {
		if n > 0 {
			distinct++
		}
	}
	return distinct
}

// A demoSummary is what the demo prints at its end.
type demoSummary struct {
	Published   int     `json:"published"` // and confirmed by the server
	Handled     int     `json:"handled"`   // distinct messages
	Lost        int     `json:"lost"`      // confirmed and never handled
	Duplicates  int     `json:"duplicates"`
	PeakWorkers int     `json:"peak_workers"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
}

// summary holds what was confirmed against what was handled.
func (t *tally) summary(confirmed []bool, peak int) demoSummary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := demoSummary{PeakWorkers: peak, P50: inMS(quantile(t.latency, 0.5)), P99: inMS(quantile(t.latency, 0.99))}
	for n, ok := range confirmed {
		if ok {
			s.Published++
			if n >= len(t.times) || t.times[n] == 0 {
				s.Lost++
			}
		}
	}
	for _, n := range t.times {
		if n > 0 {
			s.Handled++
			s.Duplicates += int(n) - 1
		}
	}
	return s
}

// quantile sorts l in place.
func quantile(l []time.Duration, q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return l[int(q*float64(len(l)-1))]
}

func inMS(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond)) / 1e6 }
