package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/pool"
	"github.com/rs/zerolog"
)

func TestPauseStopsTakingAndResumeGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		var l ledger
		r := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error { l.add(m); return nil }})
		time.Sleep(time.Second)
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		produce(t, b, 100)
		time.Sleep(time.Minute)
		if n := r.Stats().Received; n != 0 {
			t.Errorf("%d messages were received while paused", n)
		}
		if !r.Stats().Paused {
			t.Error("Stats do not say that it is paused")
		}
		if err := r.Health(time.Second); err != nil {
			t.Errorf("paused is unhealthy: %v", err)
		}
		if err := r.Resume(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.check(t, 100)
		if r.Stats().Paused {
			t.Error("Stats say that it is paused after Resume")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A source that cannot pause by itself is held by the engine.
func TestPauseHoldsASourceWithoutTheAbility(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src := struct{ broker.Source }{b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		r := start(t, b, consumer.Config{Source: src, Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		produce(t, b, 1000)
		time.Sleep(time.Second)
		first := r.Stats().Received // the Receive that was under way
		time.Sleep(time.Minute)
		if n := r.Stats().Received; n != first || n >= 1000 {
			t.Errorf("%d then %d received while paused", first, n)
		}
		if err := r.end(); err != nil { // a paused consumer stops
			t.Fatal(err)
		}
		if n := r.Stats().InFlight; n != 0 {
			t.Errorf("%d messages were never settled", n)
		}
	})
}

// A turnedSource has somebody do the opposite while it is paused, or resumed, for the first time.
type turnedSource struct {
	*membroker.Source
	atPause, atResume func() error
}

func (s *turnedSource) Pause(topics ...string) error {
	do := s.atPause
	s.atPause = nil
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	return s.Source.Pause(topics...)
}

func (s *turnedSource) Resume(topics ...string) error {
	do := s.atResume
	s.atResume = nil
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	return s.Source.Resume(topics...)
}

// Of two who pause and resume at once the one that comes last has its way, and the sources do as Stats say.
func TestPauseAndResumeAtOnce(t *testing.T) {
	for _, last := range []string{"pause", "resume"} {
		t.Run(last, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				var l ledger
				src := &turnedSource{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
				r := start(t, b, consumer.Config{Source: src, Handler: func(_ context.Context, m *consumer.Message) error {
					l.add(m)
					return nil
				}})
				time.Sleep(time.Second)
				first := r.Pause
				if src.atPause = r.Resume; last == "pause" {
					src.atPause, src.atResume, first = nil, r.Pause, r.Resume
				}
				if err := first(); err != nil {
					t.Fatal(err)
				}
				produce(t, b, 10)
				time.Sleep(time.Minute)
				if s := r.Stats(); s.Paused != (last == "pause") || s.Paused != (s.Handled == 0) {
					t.Errorf("paused: %v, and %d messages are handled", s.Paused, s.Handled)
				}
				if err := r.Resume(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				l.check(t, 10)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestLimitsChangeAtRunTime(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 10_000)
		var now, peak atomic.Int64
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 2, Max: 4}, Handler: func(context.Context, *consumer.Message) error {
			if n := now.Add(1); n > peak.Load() {
				peak.Store(n)
			}
			time.Sleep(50 * time.Millisecond)
			now.Add(-1)
			return nil
		}})
		time.Sleep(5 * time.Second)
		if p := peak.Load(); p != 4 {
			t.Errorf("%d handlers at once, want Max 4", p)
		}
		if err := r.SetLimits(8, 32); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if p := peak.Load(); p < 8 || p > 32 {
			t.Errorf("%d handlers at once, want 8..32", p)
		}
		if err := r.SetLimits(0, 4); err == nil {
			t.Error("limits 0..4 were accepted")
		}
		if err := r.SetLimits(5, 4); err == nil {
			t.Error("limits 5..4 were accepted")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The budget is never passed, and a retry that falls due while everything is full finds its way (II.5).
func TestBudgetHoldsAndRetriesPassAFullQueue(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 500)
		var r *running
		var l ledger
		over := int64(0)
		ready := make(chan struct{})
		r = start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 2, Max: 2}, Budget: broker.Budget{Messages: 10, Bytes: 1 << 20},
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: 10 * time.Millisecond}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				<-ready
				if n := r.Stats().InFlight; n > 10 {
					atomic.StoreInt64(&over, n)
				}
				time.Sleep(5 * time.Millisecond)
				if m.Runs == 0 {
					return errors.New("once")
				}
				l.add(m)
				return nil
			}})
		close(ready)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := atomic.LoadInt64(&over); n > 0 {
			t.Errorf("%d messages in flight, budget 10", n)
		}
		l.check(t, 500)
	})
}

// Each thing that happened is one line, with a stable name, and without payloads.
func TestLogNamesWhatHappened(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const secret = "canary-payload"
		for range 200 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(secret), Value: []byte(secret),
				Headers: []broker.Header{{Key: "h", Value: []byte(secret)}}}); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		r := start(t, b, consumer.Config{
			Name: "orders", Logger: zerolog.New(zerolog.SyncWriter(&out)),
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no such order")) },
		})
		time.Sleep(10 * time.Second)
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("one more")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		lines := map[string]int{}
		suppressed := 0.0
		for line := range strings.Lines(out.String()) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			name, _ := e["event"].(string)
			if e["consumer"] != "orders" || name == "" {
				t.Errorf("line without consumer or event: %s", line)
			}
			if n, ok := e["suppressed"].(float64); ok && name == "failed" {
				suppressed += n
				continue
			}
			lines[name]++
			if name == "failed" {
				if e["class"] != "permanent" || e["verdict"] != "dead_letter" || e["error"] != "no such order" || e["topic"] != "in" {
					t.Errorf("failed: %s", line)
				}
			}
		}
		for _, name := range []string{"state", "source_up", "failed", "dead_lettered", "drained"} {
			if lines[name] == 0 {
				t.Errorf("no event %q in %v", name, lines)
			}
		}
		if lines["failed"] < 10 || lines["failed"]+int(suppressed) != 201 {
			t.Errorf("%d lines and %v suppressed for 201 failures", lines["failed"], suppressed)
		}
		if strings.Contains(out.String(), secret) {
			t.Error("a key, payload or header value is in the log")
		}
	})
}

// Handlers that wait for a core gain nothing from more workers.
func TestGaugeHoldsGrowth(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 5000)
		var now, peak atomic.Int64
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Max: 64, Gauge: func() pool.Pressure { return pool.Pressure{CPU: 1} }},
			Handler: func(context.Context, *consumer.Message) error {
				if n := now.Add(1); n > peak.Load() {
					peak.Store(n)
				}
				time.Sleep(20 * time.Millisecond)
				now.Add(-1)
				return nil
			}})
		time.Sleep(5 * time.Second)
		if n := peak.Load(); n > 16 {
			t.Errorf("%d handlers at once although the processors are used up", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The pool knows what waits at the broker beyond what was fetched, or that it is not known.
func TestLagReachesThePool(t *testing.T) {
	for name, reported := range map[string]*broker.Lag{"known": nil, "unknown": {Waiting: -1, Unsettled: -1}} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 5000)
				b.ReportLag(reported)
				r := start(t, b, consumer.Config{Budget: broker.Budget{Messages: 512}, Pool: consumer.Pool{Max: 256},
					Handler: func(context.Context, *consumer.Message) error {
						time.Sleep(500 * time.Millisecond)
						return nil
					}})
				time.Sleep(2 * time.Second)
				s := r.Stats()
				if n := s.Pool.Last.Observation.Waiting; reported == nil && (n < 3000 || n > 5000) || reported != nil && n != -1 {
					t.Errorf("the pool was told that %d wait at the broker, of 5000", n)
				}
				if s.Pool.Live < 230 {
					t.Errorf("%d workers of 256 for a backlog of slow work", s.Pool.Live)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A downstream that refuses beyond 16 at once is called by little more than that where the handler says so. Where it only asks
// for a later attempt, on a broker that keeps no delays, most calls are refused.
func TestOverloadedMakesDoWithFewerWorkers(t *testing.T) {
	play := func(t *testing.T, b *membroker.Broker, refusal func(error, time.Duration) error) (tries float64, done int64) {
		produce(t, b, 10_000)
		var now, runs, handled atomic.Int64
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Max: 128}, Retry: consumer.Retry{MaxAttempts: 1000},
			Handler: func(context.Context, *consumer.Message) error {
				defer now.Add(-1)
				runs.Add(1)
				if now.Add(1) > 16 {
					time.Sleep(500 * time.Microsecond)
					return refusal(errors.New("busy"), 100*time.Millisecond)
				}
				time.Sleep(5 * time.Millisecond)
				handled.Add(1)
				return nil
			}})
		time.Sleep(2 * time.Second)
		done = handled.Load()
		tries = float64(runs.Load()) / float64(max(1, done))
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		return tries, done
	}
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		if tries, done := play(t, b, consumer.Overloaded); tries > 1.25 || done < 4800 {
			t.Errorf("%.2f calls for each that was not refused; %d handled in 2 s, of 6,400 that the downstream can take", tries, done)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if tries, _ := play(t, membroker.New(kinds["partitioned"]), consumer.RetryAfter); tries < 1.5 {
			t.Errorf("%.2f calls for each that was not refused: the test shows nothing", tries)
		}
	})
}

func TestPolicyAndScalingAreTold(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 5000)
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Max: 64}, Handler: func(context.Context, *consumer.Message) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}})
		time.Sleep(20 * time.Second)
		scaled := eventsOf[consumer.Scaled](r.journal)
		if len(scaled) < 2 {
			t.Fatalf("%d decisions", len(scaled))
		}
		up, down := false, false
		for _, d := range scaled {
			up, down = up || d.Target > d.From, down || d.Target < d.From
			if d.Reason == "" {
				t.Errorf("a decision without a reason: %+v", d)
			}
		}
		if !up || !down || r.Stats().Pool.Live != 1 {
			t.Errorf("up %v, down %v, %d workers at the end", up, down, r.Stats().Pool.Live)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// refusals is a policy that keeps one worker, and what it saw last.
type refusals struct {
	mu   sync.Mutex
	last pool.Observation
}

func (p *refusals) Step(o pool.Observation) pool.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = o
	return pool.Decision{Target: 1}
}

// Of a batch only what was refused counts as that.
func TestOverloadedInBatches(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages, size = 400, 10
		produce(t, b, messages)
		p, refused := &refusals{}, int64(0)
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Max: 1, Policy: p},
			Batch: &consumer.Batch{Size: size, Handler: func(_ context.Context, ms []*consumer.Message) error {
				errs := make([]error, len(ms))
				for i, m := range ms {
					if m.Offset%size == 0 && m.Runs == 0 {
						errs[i] = consumer.Overloaded(errors.New("busy"), 0)
						refused++
					}
				}
				return &consumer.BatchError{Errs: errs}
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.last.Refused != refused || refused == 0 {
			t.Errorf("the pool knows of %d that were refused of %d handled; %d were", p.last.Refused, p.last.Done, refused)
		}
	})
}

// What a Config may not have cannot be set later, either: of two sources each has half of the budget.
func TestLimitsAreWithinEachSourcesBudget(t *testing.T) {
	b := membroker.New(membroker.Config{})
	of := func(most int) (*consumer.Consumer, error) {
		return consumer.New(consumer.Config{
			Pool: consumer.Pool{Max: most}, Budget: broker.Budget{Messages: 100}, Logger: zerolog.Nop(),
			Sources: []consumer.Input{{Source: b.Source(membroker.SourceConfig{Topics: []string{"a"}}), Weight: 1},
				{Source: b.Source(membroker.SourceConfig{Topics: []string{"b"}}), Weight: 1}},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
	}
	if _, err := of(51); err == nil {
		t.Error("New took a Max of 51")
	}
	c, err := of(50)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetLimits(1, 51); err == nil || !strings.Contains(err.Error(), "each source has 50") {
		t.Errorf("SetLimits(1, 51): %v", err)
	}
	if err := c.SetLimits(1, 50); err != nil {
		t.Error(err)
	}
}
