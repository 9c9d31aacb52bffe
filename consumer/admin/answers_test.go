package admin_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/prometheus/client_golang/prometheus"
)

// deaf are clients that ask again and again, and read nothing.
func deaf(t *testing.T, to string, n int, path string) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := io.WriteString(c, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 9)); err != nil {
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
	var gathered atomic.Int64
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "large", Help: strings.Repeat("x", large)},
		func() float64 { return float64(gathered.Add(1)) }))
	s, url := serveAs(t, admin.Config{Targets: targets(), Gatherer: registry}, endless)
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

// TestMessagesAreBounded: an answer has no more than so much, whatever is in the texts, and clients that do not read theirs have
// little memory together.
func TestMessagesAreBounded(t *testing.T) {
	h := &fakeTarget{}
	h.parked = slices.Repeat([]consumer.ParkedMessage{{Topic: strings.Repeat("t", 4<<10), ID: strings.Repeat("é", 1<<10),
		KeyBytes: -1, Err: errors.New(strings.Repeat("<\xff", 2<<10))}}, 1000)
	s, url := serveAs(t, admin.Config{Targets: map[string]admin.Target{"orders": h}}, endless)
	const path, most = "/consumers/orders/messages", 2 << 20
	a := get(t, url+path)
	var got struct {
		Parked []struct{ Topic, ID, Error string }
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(a.body) > most || len(got.Parked) != 1000 {
		t.Fatalf("%d bytes, %d messages, %v", len(a.body), len(got.Parked), err)
	}
	if one := got.Parked[0]; one.Topic != strings.Repeat("t", 512) || one.ID != strings.Repeat("é", 256) ||
		one.Error != strings.Repeat("<?", 256) {
		t.Errorf("%.60s, %.60s, %.60s", one.Topic, one.ID, one.Error)
	}
	// Beyond what the kernel keeps of them, each client has one that waits.
	deaf(t, s.Addr().String(), 64, path)
	full := func() bool { bytes, _ := s.Held(); return bytes > admin.MostHeld-most }
	for end := time.Now().Add(time.Minute); !full(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing waits to be read")
		}
	}
	if a := get(t, url+path); a.status != 200 || len(a.body) < 1<<20 {
		t.Errorf("who reads: %d, %d bytes", a.status, len(a.body))
	}
	if bytes, n := s.Held(); bytes > admin.MostHeld {
		t.Errorf("%d answers are held, of %d bytes", n, bytes)
	}
}
