package admin_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// deaf are clients that ask twice and read nothing.
func deaf(t *testing.T, to string, n int, path string) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := io.WriteString(c, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 2)); err != nil {
			t.Fatal(err)
		}
	}
}

func endless(h *http.Server) {
	h.ReadTimeout, h.WriteTimeout, h.IdleTimeout = time.Hour, time.Hour, time.Hour
}

// TestDeafClientsKeepNoScraperOut: clients that do not read their metrics take no place of who does, and not much memory.
func TestDeafClientsKeepNoScraperOut(t *testing.T) {
	const large = 6 << 20 // beyond what the kernel keeps of it
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "large", Help: strings.Repeat("x", large)}))
	var gathered atomic.Int64
	s, url := serveAs(t, admin.Config{Targets: targets(), Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		defer gathered.Add(1)
		return registry.Gather()
	})}, endless)
	for n := range int64(3) {
		deaf(t, s.Addr().String(), 4, "/metrics")
		for end := time.Now().Add(time.Minute); gathered.Load() < 5*n+4; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("only %d have asked", gathered.Load())
			}
		}
		a := get(t, url+"/metrics")
		if a.status != 200 || len(a.body) < large {
			t.Fatalf("%d, %d bytes: %.100s", a.status, len(a.body), a.body)
		}
		if bytes, n := s.Held(); n > 1 && bytes > admin.MostHeld {
			t.Errorf("%d answers are held, of %d bytes", n, bytes)
		}
	}
}
