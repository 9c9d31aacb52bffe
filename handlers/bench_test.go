//go:build unix

package handlers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// TestMeasureWebhook prints how many requests a second 64 workers get from a local server through Webhook, and through a bare
// net/http client loop in the same run, by turns. The figures decide nothing here; LONGSHORE_MEASURE=1 runs it.
func TestMeasureWebhook(t *testing.T) {
	if os.Getenv("LONGSHORE_MEASURE") == "" {
		t.Skip("LONGSHORE_MEASURE is not set")
	}
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	tr := &http.Transport{MaxIdleConnsPerHost: workers}
	defer tr.CloseIdleConnections()
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, MaxIdleConnections: workers})
	loops := []consumer.Handler{w.Handle, bareClient(&http.Client{Transport: tr}, s.URL, nil),
		bareClient(&http.Client{Transport: tr}, s.URL, http.Header{
			"Content-Type": {"application/octet-stream"}, "Longshore-Topic": {"orders"}, "Longshore-Partition": {"3"},
			"Longshore-Offset": {"42"}, "Longshore-Attempt": {"1"},
			"Longshore-Id": {"orders/3/42//1700000000000000001"}, "Longshore-Key": {"customer-7"}})}
	m := message("orders", string(bytes.Repeat([]byte("x"), 256)))
	m.Key = []byte("customer-7")
	var rates, cpus [3][]float64
	for round := range 32 { // short and many, by turns: other work on the machine meets all three
		for i := range loops {
			i = (i + round) % len(loops)
			r, cpu := rate(t, loops[i], m)
			if round > 0 { // the first one makes the connections
				rates[i], cpus[i] = append(rates[i], r), append(cpus[i], cpu)
			}
		}
	}
	for i, name := range []string{"webhook", "bare net/http", "bare net/http with the same headers"} {
		t.Logf("%-36s %6.0f/s %4.0f µs CPU each, the server's included", name, median(rates[i]), median(cpus[i]))
	}
	for i, name := range []string{1: "webhook_vs_net_http_ratio", 2: "webhook_vs_net_http_same_headers_ratio"} {
		if i > 0 {
			t.Logf("%-40s %.2f (by CPU %.2f), target 0.80", name, median(ratios(rates[0], rates[i])), median(ratios(cpus[i], cpus[0])))
		}
	}
}

func ratios(a, b []float64) []float64 {
	rs := make([]float64, len(a))
	for i := range a {
		rs[i] = a[i] / b[i]
	}
	return rs
}

const workers = 64

// bareClient is the loop that one writes without longshore: no timeout, the body drained.
func bareClient(c *http.Client, url string, headers http.Header) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Value))
		if err != nil {
			return err
		}
		for k, v := range headers {
			r.Header[k] = v
		}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.Body.Close()
	}
}

// rate is how many calls a second the workers make, and the CPU time of one in microseconds, client and server.
func rate(t *testing.T, h consumer.Handler, m *consumer.Message) (perSecond, cpu float64) {
	const each = 100
	start, used := time.Now(), cpuTime(t)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := h(t.Context(), m); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return workers * each / time.Since(start).Seconds(), float64((cpuTime(t) - used).Nanoseconds()) / 1e3 / (workers * each)
}

func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
