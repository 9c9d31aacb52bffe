package metrics_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// Each call of a route is counted by what came of it, also where it panics; one that was put off is none.
func TestRouteTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("orders")
		call := func(route string, f func() error) {
			defer func() { _ = recover() }()
			h := m.Route(route, "webhook")(func(context.Context, *consumer.Message) error { time.Sleep(2 * time.Second); return f() })
			_ = h(t.Context(), &consumer.Message{})
		}
		call("0", func() error { return nil })
		call("0", func() error { return consumer.Skip("old") })
		call("0", func() error { return errors.New("no") })
		call("0", func() error { panic("no") })
		call("0", func() error { return consumer.Defer(time.Second, nil) })
		call("1", func() error { return nil })
		wantSeries(t, expose(t, m),
			`longshore_route_duration_seconds_count{handler="webhook",outcome="ok",route="0"} 2`,
			`longshore_route_duration_seconds_sum{handler="webhook",outcome="failed",route="0"} 4`,
			`longshore_route_duration_seconds_bucket{handler="webhook",outcome="failed",route="0",le="1"} 0`,
			`longshore_route_duration_seconds_bucket{handler="webhook",outcome="failed",route="0",le="2.5"} 2`,
			`longshore_route_duration_seconds_count{handler="webhook",outcome="ok",route="1"} 1`,
		)
	})
}

// A batch is one call, and fails with one of its messages; one that was put off as a whole is not counted.
func TestBatchTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("orders")
		call := func(f func() error) {
			defer func() { _ = recover() }()
			h := m.RouteBatch("batch", "webhook")(func(context.Context,
				[]*consumer.Message) error {
				time.Sleep(2 * time.Second)
				return f()
			})
			_ = h(t.Context(), make([]*consumer.Message, 2))
		}
		each := func(errs ...error) func() error { return func() error { return &consumer.BatchError{Errs: errs} } }
		skip, later, no := consumer.Skip("old"), consumer.Defer(time.Second, nil), errors.New("no")
		for _, ok := range []func() error{func() error { return nil }, func() error { return skip }, each(nil, nil),
			each(skip, later)} {
			call(ok)
		}
		for _, failed := range []func() error{func() error { return no }, each(nil, no), each(no, later), each(nil), each(skip, no),
			func() error { panic("no") }} {
			call(failed)
		}
		for _, later := range []func() error{func() error { return later }, each(later, later)} {
			call(later)
		}
		wantSeries(t, expose(t, m),
			`longshore_route_duration_seconds_count{handler="webhook",outcome="ok",route="batch"} 4`,
			`longshore_route_duration_seconds_sum{handler="webhook",outcome="ok",route="batch"} 8`,
			`longshore_route_duration_seconds_count{handler="webhook",outcome="failed",route="batch"} 6`,
		)
	})
}

type breaker struct{ state string }

func (b *breaker) State() string { return b.state }

// A breaker is in one state, by its name.
func TestBreakerStates(t *testing.T) {
	m, b := metrics.New("orders"), &breaker{"closed"}
	m.WatchBreakers(map[string]metrics.Breaker{"bank": b})
	wantSeries(t, expose(t, m), `longshore_circuit_breaker_state{breaker="bank",state="closed"} 1`,
		`longshore_circuit_breaker_state{breaker="bank",state="open"} 0`)
	b.state = "half-open"
	wantSeries(t, expose(t, m), `longshore_circuit_breaker_state{breaker="bank",state="half-open"} 1`,
		`longshore_circuit_breaker_state{breaker="bank",state="closed"} 0`)
}

// odd is a limit and a breaker whose names are no text.
type odd struct{}

func (odd) Settings() map[string]float64 { return map[string]float64{"limit\xff": 1} }
func (odd) State() string                { return "closed" }

// TestOddNames: names of routes, handlers, limits and breakers that are no text. A scrape panicked, in a goroutine of the
// registry's, and ended the process.
func TestOddNames(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panicked: %v", p)
		}
	}()
	m := metrics.New("orders")
	m.Route("a\xff", "b\xff")
	m.Route("a\xfe", "b\xff")
	m.WatchLimits(map[string]metrics.Limit{"c\xff": odd{}})
	m.WatchBreakers(map[string]metrics.Breaker{"d\xff": odd{}})
	all := make(chan prometheus.Metric, 1000)
	m.Collect(all) // here, where a panic can be seen
	for series, want := range map[string]int{"longshore_handler_limit": 1, "longshore_handler_limit_share": 1,
		"longshore_circuit_breaker_state": 3} {
		if got := scrape(t, series, []*metrics.Collector{m}); len(got) != want {
			t.Errorf("%s: %v", series, got)
		}
	}
	wantSeries(t, expose(t, m),
		`longshore_route_duration_seconds_count{handler="b\\xff",outcome="ok",route="a\\xff"} 0`,
		`longshore_route_duration_seconds_count{handler="b\\xff",outcome="ok",route="a\\xfe"} 0`)
}
