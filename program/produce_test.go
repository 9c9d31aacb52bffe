package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/nats-io/nats-server/v2/server"
)

// quiet is a progress that nobody sees.
func quiet() *progress { return newProgress(io.Discard, 0) }

func TestProductionKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		p := &production{publisher: b.Publisher(), topic: "in", rate: 100, count: 1000, size: 64, keys: 7, timeout: time.Second}
		s, err := p.run(t.Context(), quiet())
		if err != nil || s.Sent != 1000 || s.Confirmed != 1000 || s.Bytes != 64000 {
			t.Errorf("%+v %v", s, err)
		}
		if s.Seconds < 9 || s.Seconds > 11 {
			t.Errorf("1000 at 100/s took %v s of virtual time", s.Seconds)
		}
		keys, ids := map[string]bool{}, map[string]bool{}
		for _, m := range b.Messages("in") {
			keys[string(m.Key)], ids[m.ID] = true, true
			var body struct {
				Number *int64 `json:"number"`
			}
			if err := json.Unmarshal(m.Value, &body); err != nil || body.Number == nil || len(m.Value) != 64 {
				t.Fatalf("message %q: %v", m.Value, err)
			}
		}
		if len(keys) != 7 {
			t.Errorf("%d keys", len(keys))
		}
		_ = p.publisher.Close(t.Context())
	})
}

// brokenPublisher fails as a test says; what it confirms it counts by ID.
type brokenPublisher struct {
	fail   func(call, i int) error
	calls  int
	stored map[string]int
}

func (p *brokenPublisher) Publish(_ context.Context, ms []broker.Outgoing) error {
	p.calls++
	errs, failed := make([]error, len(ms)), false
	for i, m := range ms {
		if errs[i] = p.fail(p.calls, i); errs[i] != nil {
			failed = true
			continue
		}
		p.stored[m.ID]++
	}
	if failed {
		return &broker.PublishError{Errs: errs}
	}
	return nil
}

func (p *brokenPublisher) Close(context.Context) error { return nil }

// TestProductionTriesAgain: what was perhaps not stored is sent again under its ID, and nothing else is.
func TestProductionTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenPublisher{stored: map[string]int{}, fail: func(call, i int) error {
			if call < 3 && i%2 == 1 {
				return errors.New("timeout")
			}
			return nil
		}}
		p := &production{publisher: b, topic: "in", rate: 0, count: 100, size: 64, timeout: 10 * time.Second}
		s, err := p.run(t.Context(), quiet())
		if err != nil || s.Confirmed != 100 || len(b.stored) != 100 {
			t.Errorf("%+v, stored %d: %v", s, len(b.stored), err)
		}
		for id, n := range b.stored {
			if n != 1 {
				t.Errorf("%s was stored %d times", id, n)
			}
		}
	})
}

func TestProductionEndsWhenRefusedOrUnconfirmed(t *testing.T) {
	for _, cause := range []error{fmt.Errorf("no stream: %w", broker.ErrRefused), errors.New("timeout")} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenPublisher{stored: map[string]int{}, fail: func(call, i int) error {
				if call > 1 || i > 2 {
					return cause
				}
				return nil
			}}
			p := &production{publisher: b, topic: "in", rate: 200, count: 0, size: 64, timeout: time.Second}
			start := time.Now()
			s, err := p.run(t.Context(), quiet())
			if !errors.Is(err, cause) || s.Sent == s.Confirmed || s.Confirmed == 0 {
				t.Errorf("%v: %+v %v", cause, s, err)
			}
			if took := time.Since(start); errors.Is(cause, broker.ErrRefused) && took > 500*time.Millisecond || took > 3*time.Second {
				t.Errorf("%v: took %v", cause, took)
			}
		})
	}
}

// TestProductionStops: a signal ends it after the messages under way, and that is no failure.
func TestProductionStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenPublisher{stored: map[string]int{}, fail: func(int, int) error { return nil }}
		p := &production{publisher: b, topic: "in", rate: 100, count: 0, size: 64, timeout: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		s, err := p.run(ctx, quiet())
		if err != nil || s.Confirmed < 250 || s.Confirmed > 310 || s.Sent != s.Confirmed {
			t.Errorf("%+v %v", s, err)
		}
	})
}

// TestProduceSendsHeaders: those of the flags are on each message, and what is no header of one's own is refused.
func TestProduceSendsHeaders(t *testing.T) {
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		long := strings.Repeat("x", 2000) // more than the room that is kept for key and id on Kafka
		to := append(f.flags[:2:2], "--topic", "other")
		if !f.kafka {
			to[2] = "--subject"
		}
		args := append([]string{"produce", "--count", "3", "--rate", "0", "--header", "priority=high", "--header", "note=a=b", "--header", "long=" + long}, to...)
		if out, err := run(t.Context(), args...); err != nil || !strings.Contains(out, "confirmed 3") {
			t.Fatalf("%v\n%s", err, out)
		}
		n := 0
		_, err := f.store.Scan(t.Context(), broker.Scan{Topic: "other"}, func(m *broker.Message) error {
			n++
			for name, want := range map[string]string{"priority": "high", "note": "a=b", "long": long} {
				if got, ok := m.Headers.Get(name); !ok || string(got) != want {
					t.Errorf("header %s is %q", name, got)
				}
			}
			return nil
		})
		if err != nil || n != 3 {
			t.Errorf("%d messages, %v", n, err)
		}
	})
	_, err := run(t.Context(), "produce", "--header", "none", "--header", "Longshore-Attempts=9", "--size", "1")
	for _, want := range []string{`--header is "none", want name=value`, "are not the message's own", "--size is 1"} {
		var use usageError
		if !errors.As(err, &use) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

func TestProduceWithoutStream(t *testing.T) {
	e, err := startNATS(t.TempDir(), server.RANDOM_PORT)
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	t.Setenv("NATS_URL", e.url)
	out, err := run(t.Context(), "produce", "--subject", "nobody.takes.it", "--count", "3")
	if !errors.Is(err, broker.ErrRefused) || !strings.Contains(out, "sent 3, confirmed 0") {
		t.Errorf("%q: %v", out, err)
	}
}

func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, 100)
		for n := range int64(100) {
			p.set(n)
			time.Sleep(200 * time.Millisecond)
		}
		p.close()
		if out.String() != "confirmed 25 of 100\nconfirmed 50 of 100\nconfirmed 75 of 100\n" {
			t.Errorf("%q", out.String())
		}
	})
}
