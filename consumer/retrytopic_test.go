package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// retries are two retry topics on b.
func retries(b *membroker.Broker) *consumer.RetryTopics {
	return &consumer.RetryTopics{
		Steps:     []consumer.RetryStep{{Topic: "in-1m", Delay: time.Minute}, {Topic: "in-10m", Delay: 10 * time.Minute}},
		Publisher: b.Publisher(),
		Source:    b.Source(membroker.SourceConfig{Group: "group-retry", Topics: []string{"in-1m", "in-10m"}}),
	}
}

// withRetries runs a test on a broker with retry topics, in a bubble of virtual time.
func withRetries(t *testing.T, f func(t *testing.T, b *membroker.Broker)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, membroker.New(membroker.Config{Topics: map[string]int{"in": 2, "in-1m": 2, "in-10m": 2, "dead": 1}, Lease: time.Minute}))
	})
}

// A call is what a handler saw of a message.
type call struct {
	consumer.Message
	after time.Duration
	own   string // its header
}

type calls struct {
	mu    sync.Mutex
	begin time.Time
	all   []call
}

func (c *calls) add(m *consumer.Message) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, _ := m.Headers.Get("own")
	c.all = append(c.all, call{*m, time.Since(c.begin), string(own) + strings.Repeat("!", m.Headers.Len()-1)})
	return len(c.all)
}

// What comes from a retry topic is what its handler saw before: topic, place, time, key, headers, and the runs; and comes neither
// early nor much late. Meanwhile nothing of it is left in its own topic.
func TestRetryTopicKeepsTheMessage(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte("v"),
			Headers: []broker.Header{{Key: "own", Value: []byte("h")}}})
		if err != nil {
			t.Fatal(err)
		}
		seen := calls{begin: time.Now()}
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 10, Topics: retries(b)},
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch seen.add(m) {
				case 1:
					return consumer.RetryAfter(errors.New("first"), 50*time.Second) // less than a step: here
				case 2:
					return consumer.RetryAfter(errors.New("second"), time.Minute)
				case 3:
					return consumer.RetryAfter(errors.New("third"), 3*time.Minute) // waits for the next step, ten
				case 4:
					return consumer.RetryAfter(errors.New("fourth"), time.Hour) // longer than all: here
				}
				return nil
			}})
		time.Sleep(90 * time.Second)
		if n := b.Unsettled("group"); n != 0 {
			t.Errorf("%d messages are unsettled in their own topic while they wait in a retry topic", n)
		}
		time.Sleep(2 * time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		first := seen.all[0]
		for i, least := range []time.Duration{0, 50 * time.Second, 110 * time.Second, 710 * time.Second, 710*time.Second + time.Hour} {
			got := seen.all[i]
			if got.after < least || got.after > least+time.Duration(i+1)*2*time.Second {
				t.Errorf("run %d began after %v, want %v", i+1, got.after, least)
			}
			if got.Topic != "in" || got.Partition != first.Partition || got.Offset != first.Offset || got.Nanos != first.Nanos ||
				string(got.Key) != "k" || string(got.Value) != "v" || got.own != "h" {
				t.Errorf("run %d: %+v, the first time %+v", i+1, got, first)
			}
			if log := got.Log(); i >= 2 && log != "" || i < 2 && (log == "" || log != first.Log()) {
				t.Errorf("run %d: of the log %q, the first time of %q: offset %d is the original's", i+1, log, first.Log(), got.Offset)
			}
			if got.Runs != int32(i) || got.Attempt != int32(i+1) {
				t.Errorf("run %d: runs %d, attempt %d", i+1, got.Runs, got.Attempt)
			}
		}
		s := r.Stats()
		if len(seen.all) != 5 || s.RetryPublished != 2 || s.Retried != 4 || s.Handled != 1 || s.InFlight != 0 ||
			b.Unsettled("group-retry") != 0 {
			t.Errorf("%d runs, stats %+v", len(seen.all), s)
		}
	})
}

// A retry topic outlives the process: another one goes on where the first has ended, with the runs.
func TestRetryTopicOutlivesTheProcess(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 20)
		cfg := func(handler consumer.Handler) consumer.Config {
			return consumer.Config{Retry: consumer.Retry{Topics: retries(b)}, Handler: handler}
		}
		r := start(t, b, cfg(func(context.Context, *consumer.Message) error {
			return consumer.RetryAfter(errors.New("not today"), 5*time.Minute)
		}))
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := b.Unsettled("group-retry"); n != 20 {
			t.Fatalf("%d messages wait in the retry topics, want 20", n)
		}
		var l ledger
		begin := time.Now()
		r = start(t, b, cfg(func(_ context.Context, m *consumer.Message) error {
			if m.Runs != 1 || time.Since(begin) < 8*time.Minute {
				t.Errorf("%s came after %v with %d runs", m.Value, time.Since(begin), m.Runs)
			}
			l.add(m)
			return nil
		}))
		time.Sleep(15 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, 20)
	})
}

// Messages that wait here for a short delay fill the window of their partition, because all that is handled above them counts.
// With retry topics they make room, and all others are handled meanwhile; without, the partition stands still.
func TestFullWindowPublishes(t *testing.T) {
	for name, publishes := range map[string]bool{"with retry topics": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			withRetries(t, func(t *testing.T, b *membroker.Broker) {
				const messages = 5000
				produce(t, b, messages)
				var good atomic.Int64
				cfg := consumer.Config{
					Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Window: 500}),
					Handler: func(_ context.Context, m *consumer.Message) error {
						if m.Offset%1000 == 0 && m.Runs == 0 {
							return consumer.RetryAfter(errors.New("in a while"), 40*time.Second)
						}
						time.Sleep(time.Millisecond)
						good.Add(1)
						return nil
					}}
				if publishes {
					cfg.Retry.Topics = retries(b)
				}
				r := start(t, b, cfg)
				time.Sleep(30 * time.Second)
				if n := good.Load(); (n >= messages-10) != publishes {
					t.Errorf("%d of %d messages were handled beside those that wait", n, messages)
				}
				time.Sleep(10 * time.Minute)
				if good.Load() != messages || r.Stats().RetryPublished > 0 != publishes {
					t.Errorf("%d of %d messages were handled, stats %+v", good.Load(), messages, r.Stats())
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The budget is not eaten by what waits: with half of it in use, the rest is published to the retry topics, however short its
// delay is.
func TestFullBudgetPublishes(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1000)
		var good atomic.Int64
		r := start(t, b, consumer.Config{
			Budget: broker.Budget{Messages: 80}, Pool: consumer.Pool{Max: 8},
			Retry: consumer.Retry{Topics: retries(b)},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Offset%2 == 0 && m.Runs == 0 {
					return consumer.RetryAfter(errors.New("in a while"), 50*time.Second)
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(20 * time.Second)
		if n := good.Load(); n != 500 {
			t.Errorf("%d of 500 good messages were handled while the others wait", n)
		}
		if s := r.Stats(); s.Parked > 40 || s.RetryPublished < 400 {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(10 * time.Minute)
		if n := good.Load(); n != 1000 {
			t.Errorf("%d of 1000 messages were handled", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Of several sources each has a part of the budget, and half of that is what is kept.
func TestFullPartOfTheBudgetPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "b": 1, "c": 1, "in-1m": 1, "in-10m": 1}})
		of := func(topic string) consumer.Input {
			return consumer.Input{Source: b.Source(membroker.SourceConfig{Group: topic, Topics: []string{topic}})}
		}
		produce(t, b, 1000)
		var good atomic.Int64
		r := start(t, b, consumer.Config{
			Sources: []consumer.Input{of("in"), of("b"), of("c")},
			Budget:  broker.Budget{Messages: 240}, Pool: consumer.Pool{Max: 8}, Retry: consumer.Retry{Topics: retries(b)},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Offset%2 == 0 && m.Runs == 0 {
					return consumer.RetryAfter(errors.New("in a while"), 50*time.Second)
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(20 * time.Second)
		if n := good.Load(); n != 500 {
			t.Errorf("%d of 500 good messages were handled while the others wait: %+v", n, r.Stats())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// f38: the retry topics are down: what fails waits here after all, nothing is acked, and nothing is lost.
func TestRetryTopicDown(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 50)
		topics := retries(b)
		p := &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		topics.Publisher = p
		var l ledger
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{Topics: topics},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Runs == 0 {
					return consumer.RetryAfter(errors.New("later"), 2*time.Minute)
				}
				l.add(m)
				return nil
			}})
		time.Sleep(time.Minute)
		wantUnsettled(t, b, 50)
		if n := len(eventsOf[consumer.RetryPublishFailed](r.journal)); n != 50 {
			t.Errorf("%d events of 50 failures", n)
		}
		time.Sleep(2 * time.Minute)
		l.check(t, 50)
		if s := r.Stats(); s.RetryPublished != 0 || s.Parked != 0 {
			t.Errorf("stats %+v", s)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Attempts are counted across retry topics, and what uses them up becomes a dead letter of its original topic.
func TestAttemptsAcrossRetryTopics(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var runs atomic.Int64
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 4, Backoff: consumer.Backoff{Initial: time.Minute, Max: 5 * time.Minute, Jitter: -1},
				Topics: retries(b)},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { runs.Add(1); return errors.New("never") },
		})
		begin := time.Now()
		time.Sleep(time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		dead := b.Messages("dead")
		if runs.Load() != 4 || len(dead) != 1 {
			t.Fatalf("%d runs, %d dead letters", runs.Load(), len(dead))
		}
		for key, want := range map[string]string{
			broker.HeaderOriginalTopic: "in", broker.HeaderOriginalOffset: "0", broker.HeaderAttempts: "4",
			broker.HeaderFirstFailure: begin.UTC().Format(time.RFC3339Nano), broker.HeaderRetryAt: "",
		} {
			if got, _ := dead[0].Headers.Get(key); string(got) != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
	})
}

// What a batch handler failed comes back from a retry topic to a batch handler, once.
func TestRetryTopicInBatches(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 50)
		var l ledger
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{Topics: retries(b)},
			Batch: &consumer.Batch{Size: 10, Handler: func(_ context.Context, ms []*consumer.Message) error {
				each := &consumer.BatchError{Errs: make([]error, len(ms))}
				for i, m := range ms {
					if m.Runs == 0 {
						each.Errs[i] = consumer.RetryAfter(errors.New("later"), time.Minute)
						continue
					}
					l.add(m)
				}
				return each
			}}})
		time.Sleep(30 * time.Second)
		wantUnsettled(t, b, 0)
		time.Sleep(2 * time.Minute)
		l.check(t, 50)
		if n := b.Unsettled("group-retry"); n != 0 {
			t.Errorf("%d messages are unsettled in the retry topics", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := r.Stats().InFlight; n != 0 {
			t.Errorf("%d messages were never settled", n)
		}
	})
}

// Everything at once: failures with delays of all sizes, small windows, and retry topics whose partitions move between two
// processes.
func TestRetryTopicStorm(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withRetries(t,
				func(t *testing.T, b *membroker.Broker) { retryStorm(t, b, seed) })
		})
	}
}

func retryStorm(t *testing.T, b *membroker.Broker, seed uint64) {
	const messages = 600
	random, moves := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
	produce(t, b, messages)
	var mu sync.Mutex
	done := map[string]int{}
	handler := func(_ context.Context, m *consumer.Message) error {
		mu.Lock()
		dice, wait := random.Float64(), time.Duration(random.Int64N(int64(12*time.Minute)))
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		if m.Topic != "in" {
			t.Errorf("topic %s", m.Topic)
		}
		if m.Runs < 3 && dice < 0.4 {
			return consumer.RetryAfter(errors.New("dice"), wait)
		}
		mu.Lock()
		defer mu.Unlock()
		done[string(m.Value)]++
		return nil
	}
	var rs []*running
	for range 2 {
		rs = append(rs, start(t, b, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Window: 200}), Handler: handler,
			Retry: consumer.Retry{Topics: retries(b)},
		}))
	}
	for range 60 {
		time.Sleep(time.Minute)
		topic := []string{"in", "in-1m", "in-10m"}[moves.IntN(3)]
		group := map[bool]string{true: "group", false: "group-retry"}[topic == "in"]
		_ = b.Revoke(group, topic, int32(moves.IntN(2)))
	}
	time.Sleep(time.Hour)
	for _, r := range rs {
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if n := r.Stats().InFlight; n != 0 {
			t.Errorf("%d messages were never settled", n)
		}
	}
	if len(done) != messages {
		t.Errorf("%d of %d messages were handled", len(done), messages)
	}
	if a, r := b.Unsettled("group"), b.Unsettled("group-retry"); a+r != 0 {
		t.Errorf("%d messages are unsettled, and %d in the retry topics", a, r)
	}
}

func TestRetryTopicsAreChecked(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	cfg := consumer.Config{
		Source: b.Source(membroker.SourceConfig{}), Handler: func(context.Context,
			*consumer.Message) error {
			return nil
		}, Budget: broker.Budget{Messages: 64},
		Retry: consumer.Retry{Topics: &consumer.RetryTopics{Steps: []consumer.RetryStep{{Topic: "", Delay: time.Minute},
			{Topic: "__retry", Delay: time.Minute}}}},
	}
	_, err := consumer.New(cfg)
	for _, want := range []string{
		"Retry.Topics.Publisher is required", "Retry.Topics.Source is required", "Retry.Topics.Steps[0].Topic is required",
		`Retry.Topics.Steps[1].Topic is refused: broker: the destination is the broker's own: "__retry" begins with __`,
		"Retry.Topics.Steps[1].Delay is 1m0s, want more than 1m0s", "of which each source has 56, below Pool.Max, 64",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	cfg.Retry.Topics.Steps = nil
	if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), "Retry.Topics.Steps is empty") {
		t.Error(err)
	}
}

// A message that fills the window while the retry topics are down, so that it is tried there again and again, has no more
// attempts by that than it had runs.
func TestRetryTopicDownCostsNoAttempt(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1000)
		topics := retries(b)
		p := &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		topics.Publisher = p
		var runs atomic.Int32
		r := start(t, b, consumer.Config{
			Source:     b.Source(membroker.SourceConfig{Topics: []string{"in"}, Window: 100}),
			Retry:      consumer.Retry{MaxAttempts: 4, Topics: topics},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Value) != "0" {
					return nil
				}
				if n := runs.Add(1); m.Attempt != n {
					t.Errorf("run %d: attempt %d", n, m.Attempt)
				}
				return consumer.RetryAfter(errors.New("in a while"), 30*time.Second)
			}})
		time.Sleep(5 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if failed := len(eventsOf[consumer.RetryPublishFailed](r.journal)); runs.Load() != 4 || failed < 10 {
			t.Errorf("%d runs, want 4; %d publishes failed", runs.Load(), failed)
		} else if failed > 60 {
			t.Errorf("%d publishes failed in 90 s: there is no backoff", failed)
		}
	})
}

// A retry topic may wait for longer than a message does. Where that one was to be given up before it came from there, it waits
// here and comes in time.
func TestGiveUpAfterThroughRetryTopic(t *testing.T) {
	withRetries(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		begin := time.Now()
		var last time.Duration
		r := start(t, b, consumer.Config{
			Retry:      consumer.Retry{MaxAttempts: 100, GiveUpAfter: 5 * time.Minute, Topics: retries(b)},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(context.Context, *consumer.Message) error {
				last = time.Since(begin)
				return consumer.RetryAfter(errors.New("later"), 3*time.Minute)
			},
		})
		time.Sleep(time.Hour)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if dead := len(b.Messages("dead")); last != 3*time.Minute || dead != 1 {
			t.Errorf("it was tried last after %v, and there are %d dead letters", last, dead)
		}
	})
}
