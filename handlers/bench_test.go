package handlers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// TestMeasureWebhook prints how many requests a second 64 workers get from a local server through Webhook, and through a bare net/http client
// loop in the same run, by turns. The figures decide nothing here; LONGSHORE_MEASURE=1 runs it.
func TestMeasureWebhook(t *testing.T) {
	if os.Getenv("LONGSHORE_MEASURE") == "" {
		t.Skip("LONGSHORE_MEASURE is not set")
	}
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	tr := &http.Transport{MaxIdleConnsPerHost: workers}
	defer tr.CloseIdleConnections()
	bare := bareClient(&http.Client{Transport: tr}, s.URL)
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, MaxIdleConnections: workers})
	m := message("orders", string(bytes.Repeat([]byte("x"), 256)))
	m.Key = []byte("customer-7")
	rate(t, bare, m) // warm up
	rate(t, w.Handle, m)
	var ratios []float64
	for range 5 {
		b, l := rate(t, bare, m), rate(t, w.Handle, m)
		ratios = append(ratios, l/b)
		t.Logf("webhook %6.0f/s   bare net/http %6.0f/s   ratio %.2f", l, b, l/b)
	}
	t.Logf("median ratio %.2f, target 0.80", median(ratios))
}

const workers = 64

// bareClient is the loop that one writes without longshore: no headers, no timeout, the body drained.
func bareClient(c *http.Client, url string) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Value))
		if err != nil {
			return err
		}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.Body.Close()
	}
}

func rate(t *testing.T, h consumer.Handler, m *consumer.Message) float64 {
	const each = 300
	start := time.Now()
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
	return workers * each / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
