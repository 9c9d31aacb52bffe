package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/metrics"
	"github.com/longshoremq/longshore/pool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// expose is what Prometheus would scrape.
func expose(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// wantSeries looks for lines: `name{labels} value`, without the label consumer.
func wantSeries(t *testing.T, text string, want ...string) {
	t.Helper()
	bare := strings.NewReplacer(`{consumer="orders"}`, "", `{consumer="orders",`, "{", `,consumer="orders"}`, "}",
		`,consumer="orders",`, ",").Replace(text)
	for _, line := range want {
		if !strings.Contains(bare, "\n"+line+"\n") {
			t.Errorf("no %q in\n%s", line, bare)
		}
	}
}

const canary = "canary-7f3a"

// outcomes handles a message as its payload says, the second time always well.
func outcomes(_ context.Context, m *consumer.Message) error {
	time.Sleep(3 * time.Millisecond)
	if m.Runs > 0 {
		return nil
	}
	switch string(m.Value) {
	case "error":
		return errors.New(canary)
	case "panic":
		panic(canary)
	case "permanent":
		return consumer.Permanent(errors.New(canary))
	case "skip":
		return consumer.Skip(canary)
	}
	return nil
}

// TestFiguresOfAConsumer: what a consumer did is what is exposed, and nothing of its messages is.
func TestFiguresOfAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 2, "dead": 1}})
		m := metrics.New("orders")
		before := expose(t, m)
		if strings.Contains(before, "longshore_lag_messages") || strings.Contains(before, "longshore_in_flight_messages") {
			t.Errorf("figures before there is a consumer:\n%s", before)
		}
		letters := b.Publisher()
		c, err := consumer.New(consumer.Config{
			Name: "orders", Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: outcomes,
			DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "dead"}, Observers: []consumer.Observer{m.Observe},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(c)
		for _, body := range []string{"ok", "error", "panic", "permanent", "skip", "ok", "ok"} {
			err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(canary), Value: []byte(body),
				Headers: []broker.Header{{Key: canary, Value: []byte(canary)}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()

		text := expose(t, m)
		wantSeries(t, text,
			`longshore_received_messages_total 7`,
			`longshore_handled_messages_total 5`,
			`longshore_failed_runs_total{class="error"} 1`,
			`longshore_failed_runs_total{class="panic"} 1`,
			`longshore_failed_runs_total{class="permanent"} 1`,
			`longshore_failed_runs_total{class="timeout"} 0`,
			`longshore_retried_messages_total 2`,
			`longshore_dead_lettered_messages_total 1`,
			`longshore_skipped_messages_total 1`,
			`longshore_in_flight_messages 0`,
			`longshore_queue_messages 0`,
			`longshore_handler_duration_seconds_count 5`,
			`longshore_handler_duration_seconds_bucket{le="0.0025"} 0`,
			`longshore_handler_duration_seconds_bucket{le="0.005"} 5`,
			`longshore_end_to_end_seconds_count 5`,
			`longshore_claims 2`,
			`longshore_source_up 1`,
			`longshore_paused 0`,
			`longshore_state{state="running"} 1`,
			`longshore_workers{state="busy"} 0`,
			`longshore_workers_limit{bound="max"} 64`,
			`longshore_lag_messages{partition="0",topic="in"} 0`,
			`longshore_lag_messages{partition="1",topic="in"} 0`,
			`longshore_unsettled_messages{partition="1",topic="in"} 0`,
		)
		if strings.Contains(text, canary) {
			t.Errorf("a key, header or error is in the metrics:\n%s", text)
		}
		if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		if strings.Contains(text, "longshore_oldest") {
			t.Errorf("something is unfinished:\n%s", text)
		}
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
		wantSeries(t, expose(t, m), `longshore_paused 1`)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantSeries(t, expose(t, m), `longshore_state{state="stopped"} 1`, `longshore_claims 0`)
		_ = letters.Close(t.Context())
	})
}

// fixedStats is a consumer whose figures a test chooses.
type fixedStats consumer.Stats

func (s fixedStats) Stats() consumer.Stats     { return consumer.Stats(s) }
func (s fixedStats) Oldest() time.Time         { return time.Time{} }
func (s fixedStats) Latency() consumer.Latency { return consumer.Latency{} }
func (s fixedStats) LagByPartition() []broker.PartitionLag {
	if s.Lag.At.IsZero() {
		return nil
	}
	return []broker.PartitionLag{{Partition: -1, Lag: s.Lag}}
}

// TestUnknownIsAbsent: an unknown lag is no series, and in no case 0.
func TestUnknownIsAbsent(t *testing.T) {
	m := metrics.New("orders")
	m.Watch(fixedStats{Lag: broker.UnknownLag()})
	text := expose(t, m)
	for _, name := range []string{"longshore_lag_messages", "longshore_unsettled_messages", "longshore_lag_timestamp_seconds",
		"longshore_last_progress_timestamp_seconds", "longshore_source_up", "longshore_deliveries_full",
		"longshore_held_messages"} {
		if strings.Contains(text, name) {
			t.Errorf("%s is there although it is unknown:\n%s", name, text)
		}
	}
	m.Watch(fixedStats{Lag: broker.Lag{Waiting: 0, Unsettled: 3, Held: 2, Full: true, At: time.Unix(1700000000, 0)},
		LastProgress: time.Unix(1700000001, 0)})
	m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: broker.Down}})
	wantSeries(t, expose(t, m), `longshore_lag_messages{partition="",topic=""} 0`,
		`longshore_unsettled_messages{partition="",topic=""} 3`, `longshore_lag_timestamp_seconds 1.7e+09`,
		`longshore_last_progress_timestamp_seconds 1.700000001e+09`, `longshore_source_up 0`,
		`longshore_deliveries_full 1`, `longshore_held_messages 2`)
}

// TestDeferredCalls: those are counted that a limit put off, and not those that have their handler's own time to wait for.
func TestDeferredCalls(t *testing.T) {
	m := metrics.New("orders")
	m.Watch(fixedStats{Deferred: 7, Limited: 3})
	wantSeries(t, expose(t, m), `longshore_deferred_calls_total 3`)
}

// TestOneOfSeveralSourcesIsDown: there is contact where all sources have it.
func TestOneOfSeveralSourcesIsDown(t *testing.T) {
	m := metrics.New("orders")
	for _, c := range []struct {
		kind  broker.Kind
		input int
		want  string
	}{
		{broker.Up, 0, "1"}, {broker.Down, 1, "0"}, {broker.Up, 0, "0"}, {broker.Down, 1, "0"}, {broker.Down, 0, "0"},
		{broker.Up, 1, "0"}, {broker.Up, 0, "1"},
	} {
		m.Observe(consumer.SourceEvent{Event: broker.Event{Kind: c.kind}, Input: c.input})
		wantSeries(t, expose(t, m), `longshore_source_up `+c.want)
	}
}

// TestDelayedDeadLetters: what waits because the dead letters are down is a figure of its own.
func TestDelayedDeadLetters(t *testing.T) {
	m := metrics.New("orders")
	m.Watch(fixedStats{DeadLettered: 7, LettersDelayed: 3, InFlight: 5})
	wantSeries(t, expose(t, m), `longshore_delayed_dead_letters 3`, `longshore_dead_lettered_messages_total 7`)
}

// TestExhaustedRetries: without a place for dead letters a message that always fails is retried for ever, whether it waits here
// or at the broker. That is counted from its last attempt on; where there is one, nothing is.
func TestExhaustedRetries(t *testing.T) {
	everySecond := consumer.Backoff{Initial: time.Second, Factor: 1, Jitter: -1}
	for _, leased := range []bool{false, true} {
		for _, letters := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: leased})
				m := metrics.New("orders")
				cfg := consumer.Config{
					Name: "orders", Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
					Handler:   func(context.Context, *consumer.Message) error { return errors.New("always") },
					Retry:     consumer.Retry{MaxAttempts: 3, Backoff: everySecond},
					Observers: []consumer.Observer{m.Observe},
				}
				want := `longshore_exhausted_retries_total 2` // of the runs at 0, 1, 2 and 3 s the last two
				if letters {
					cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
					want = `longshore_exhausted_retries_total 0`
				}
				c, err := consumer.New(cfg)
				if err := errors.Join(err, b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")})); err != nil {
					t.Fatal(err)
				}
				m.Watch(c)
				wantSeries(t, expose(t, m), `longshore_exhausted_retries_total 0`) // rate() needs a 0 before the first
				ctx, stop := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer stop()
				if err := c.Run(ctx); err != nil {
					t.Errorf("leased %v, letters %v: %v", leased, letters, err)
				}
				wantSeries(t, expose(t, m), want)
			})
		}
	}
}

// TestLabelsAreBounded: whatever events say, the number of series stays (bad input b29).
func TestLabelsAreBounded(t *testing.T) {
	m := metrics.New("orders")
	m.Watch(fixedStats{})
	everySeries(m, func() string { return "" })
	before := testutil.CollectAndCount(m)
	everySeries(m, func() string { return fmt.Sprintf("%s-%d", canary, rand.Int()) })
	if after := testutil.CollectAndCount(m); after != before {
		t.Errorf("%d series before, %d after strange events", before, after)
	}
	if text := expose(t, m); strings.Contains(text, canary) {
		t.Errorf("what an event says is a label:\n%s", text)
	}
}

// everySeries makes all events, 100 times, with words that no list knows.
func everySeries(m *metrics.Collector, word func() string) {
	for range 100 {
		msg := &consumer.Message{Topic: word(), Key: []byte(word())}
		for _, e := range []consumer.Event{
			consumer.Handled{N: 1, Took: time.Duration(rand.Int64N(int64(time.Hour)))},
			consumer.Failed{Message: msg, Err: errors.New(word()), Class: word()},
			consumer.Skipped{Message: msg, Reason: word()},
			consumer.DeadLettered{Failed: consumer.Failed{Message: msg, Class: word()}, Topic: word()},
			consumer.DeadLetterDelayed{Message: msg, Err: errors.New(word())},
			consumer.GivenBack{N: 1, Reason: word()},
			consumer.Lost{N: 1, Err: errors.New(word())},
			consumer.Stuck{Message: msg, Stack: word()},
			consumer.Scaled{Decision: pool.Decision{From: 1, Target: 2, Reason: pool.Reason(word()), Detail: word()}},
			consumer.Operated{Operation: broker.Operation{Kind: broker.OperationKind(rand.IntN(10)), Took: time.Second,
				Err: errors.New(word())}},
			consumer.SourceEvent{Event: broker.Event{Kind: broker.Kind(rand.IntN(1000) + 100)}},
		} {
			m.Observe(e)
		}
	}
}

// TestReasonsOfDecisions: the pool's reasons are labels, their details and the reasons of others are not.
func TestReasonsOfDecisions(t *testing.T) {
	for _, reason := range append(pool.Reasons(), "something new") {
		m := metrics.New("orders")
		m.Observe(consumer.Scaled{Decision: pool.Decision{From: 4, Target: 2, Reason: reason, Detail: "12 of 13"}})
		label := string(reason)
		if reason == "something new" {
			label = "other"
		}
		wantSeries(t, expose(t, m), `longshore_scale_decisions_total{direction="down",reason="`+label+`"} 1`)
	}
}

// TestSeveralConsumersInOneRegistry: their series differ by the label consumer.
func TestSeveralConsumersInOneRegistry(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"orders", "mails"} {
		m := metrics.New(name)
		m.Watch(fixedStats{})
		if err := r.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(r, "longshore_in_flight_messages"); err != nil || n != 2 {
		t.Errorf("%d series: %v", n, err)
	}
}

// TestSumOfManyWorkers: the time of handlers is a counter, which never goes back: what 20,000 busy workers spend in six days is
// more than a Duration can say.
func TestSumOfManyWorkers(t *testing.T) {
	m := metrics.New("orders")
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	for day := 1; day <= 12; day++ {
		for range 20 {
			m.Observe(consumer.Handled{N: 1000, Took: 1000 * 24 * time.Hour})
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "longshore_handler_duration_seconds" {
				continue
			}
			got, want := f.GetMetric()[0].GetHistogram().GetSampleSum(), float64(day)*20_000*86_400
			if math.Abs(got-want) > 1 {
				t.Errorf("after %d days: %v s, want %v", day, got, want)
			}
		}
	}
}

func BenchmarkObserveHandled(b *testing.B) {
	m := metrics.New("orders")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Observe(consumer.Handled{N: 64, Took: 3 * time.Millisecond})
		}
	})
}
