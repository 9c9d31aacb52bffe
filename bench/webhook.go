package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// withReceiver runs a server in this process that answers each POST with 204.
func withReceiver(_ int, do func(url string)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	do("http://" + l.Addr().String())
	return nil
}

// webhookLongshore is the webhook handler by 64 workers, on a broker in memory.
func webhookLongshore(url string, n int) sample {
	w := must(handlers.NewWebhook(handlers.WebhookConfig{URL: url}))
	return untilHandled(must(consumer.New(consumer.Config{Source: memory(n), Pool: consumer.Pool{Min: workers, Max: workers},
		Budget: broker.Budget{Messages: engineBudget, Bytes: 64 << 20}, Handler: w.Handle})), n)
}

// webhookBare is as many goroutines that post the same with http.Client; described: with as many headers as the handler sends of
// each message, and about as long.
func webhookBare(url string, n int, described bool) sample {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	body := make([]byte, 100)
	var next atomic.Int64
	var wg sync.WaitGroup
	m := start()
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				q := must(http.NewRequest(http.MethodPost, url, bytes.NewReader(body)))
				q.Header.Set("Content-Type", "application/octet-stream")
				if described {
					q.Header.Set("Longshore-Topic", "jobs")
					q.Header.Set("Longshore-Partition", "0")
					q.Header.Set("Longshore-Offset", strconv.FormatInt(i, 10))
					q.Header.Set("Longshore-Id", fmt.Sprintf("jobs/0/%d//%d", i, time.Now().UnixNano()))
					q.Header.Set("Longshore-Key", fmt.Sprintf("key-%d", i%orderKeys))
					q.Header.Set("Longshore-Attempt", "1")
				}
				resp := must(c.Do(q))
				_, _ = io.Copy(io.Discard, resp.Body)
				check(resp.Body.Close())
			}
		})
	}
	wg.Wait()
	return m.stop(n)
}

func webhookFigures(m map[string]sample) []figure {
	l, b, d := m["longshore"], m["bare"], m["described"]
	return []figure{
		atLeast("webhook_64_rate_vs_client", b.WallNS/l.WallNS, 0.95),
		atLeast("webhook_64_rate_vs_client_with_headers", d.WallNS/l.WallNS, 0.95), show("webhook_64_cpu_vs_client", l.CPUNS/b.CPUNS),
		show("webhook_64_per_second", 1e9/l.WallNS), show("webhook_64_per_second_client", 1e9/b.WallNS),
		show("webhook_64_cpu_us", l.CPUNS/1e3), show("webhook_64_cpu_us_client", b.CPUNS/1e3),
	}
}
