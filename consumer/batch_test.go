package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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

// batches keeps what a batch handler was given.
type batches struct {
	ledger
	sizes []int
	at    []time.Duration
	begin time.Time
}

func (b *batches) take(ms []*consumer.Message) {
	for _, m := range ms {
		b.add(m)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes, b.at = append(b.sizes, len(ms)), append(b.at, time.Since(b.begin))
}

// Batches are full where there is enough, and handed over after the linger time where there is not; all messages of one have one
// claim.
func TestBatches(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1000)
		seen := batches{begin: time.Now()}
		r := start(t, b, consumer.Config{Batch: &consumer.Batch{Size: 64, Linger: time.Second,
			Handler: func(ctx context.Context, ms []*consumer.Message) error {
				if ctx.Value(valueKey{}) != "from Run" {
					t.Error("the handler's context has not the values of Run's")
				}
				for _, m := range ms {
					if m.Claim != ms[0].Claim {
						t.Error("a batch of two claims")
					}
				}
				time.Sleep(10 * time.Millisecond)
				seen.take(ms)
				return nil
			}}})
		time.Sleep(5 * time.Second)
		seen.check(t, 1000)
		small := 0
		for i, n := range seen.sizes {
			if n > 64 {
				t.Errorf("a batch of %d", n)
			}
			if n < 64 {
				small++
				if seen.at[i] < time.Second {
					t.Errorf("a batch of %d after %v", n, seen.at[i])
				}
			}
		}
		if small > 2 { // one for each partition
			t.Errorf("batches of %v", seen.sizes)
		}
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("late")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		seen.check(t, 1001)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
		if s := r.Stats(); s.Handled != 1001 || s.InFlight != 0 || s.Failed != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A batch is complete by its bytes, too.
func TestBatchBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		for range 30 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		var seen batches
		r := start(t, b, consumer.Config{Batch: &consumer.Batch{Bytes: 2500, Linger: time.Hour,
			Handler: func(_ context.Context, ms []*consumer.Message) error {
				seen.take(ms)
				return nil
			}}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(seen.sizes) != 10 {
			t.Errorf("batches of %v, want ten of 3", seen.sizes)
		}
	})
}

// Each message has its own outcome: acked, retried with its runs, dead-lettered, skipped, deferred; and too large ones are no
// part of it.
func TestBatchOutcomes(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i, v := range []string{"ok", "error", "permanent", "skip", "defer", "large" + strings.Repeat("x", 100), "ok"} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{byte(i)}, Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		calls := map[string]int{}
		r := start(t, b, consumer.Config{
			MaxMessageBytes: 50, Retry: consumer.Retry{MaxAttempts: 2},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Handler: func(_ context.Context, ms []*consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				e := &consumer.BatchError{Errs: make([]error, len(ms))}
				for i, m := range ms {
					calls[string(m.Value)]++
					switch string(m.Value) {
					case "error":
						e.Errs[i] = errors.New("error")
					case "permanent":
						e.Errs[i] = consumer.Permanent(errors.New("permanent"))
					case "skip":
						e.Errs[i] = consumer.Skip("not wanted")
					case "defer":
						if calls["defer"] < 5 {
							e.Errs[i] = consumer.Defer(time.Second, nil)
						}
					}
				}
				return e
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if calls["ok"] != 2 || calls["error"] != 2 || calls["permanent"] != 1 || calls["skip"] != 1 || calls["defer"] != 5 ||
			len(calls) != 5 {
			t.Errorf("calls %v", calls)
		}
		wantUnsettled(t, b, 0)
		s := r.Stats()
		if s.Handled != 3 || s.Skipped != 1 || s.DeadLettered != 3 || s.Retried != 1 || s.Deferred != 4 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
		for _, m := range b.Messages("dead") {
			if v, _ := m.Headers.Get(broker.HeaderErrorClass); string(m.Value) == "error" && string(v) != "error" {
				t.Errorf("%s: class %s", m.Value, v)
			}
		}
	})
}

// A plain error, a panic, Goexit and a BatchError of the wrong length fail the whole batch; nothing is lost.
func TestBatchFailures(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("no") },
		"panic":  func() error { panic("no") },
		"length": func() error { return &consumer.BatchError{Errs: []error{nil}} },
		"goexit": nil,
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 200)
				var l ledger
				r := start(t, b, consumer.Config{Batch: &consumer.Batch{Size: 20,
					Handler: func(_ context.Context, ms []*consumer.Message) error {
						if ms[0].Runs == 0 {
							if fail == nil {
								runtime.Goexit()
							}
							return fail()
						}
						for _, m := range ms {
							l.add(m)
						}
						return nil
					}}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				l.check(t, 200)
				wantUnsettled(t, b, 0)
				if s := r.Stats(); s.Failed < 200 || s.Handled != 200 { // what fails may come again beside what has not come yet
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// A stuck batch handler loses its worker and its batch; the messages come again.
func TestBatchStuck(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		var l ledger
		release := make(chan struct{})
		r := start(t, b, consumer.Config{Timeout: time.Second, StuckAfter: time.Second, Pool: consumer.Pool{Max: 2},
			Batch: &consumer.Batch{Size: 10, Handler: func(_ context.Context, ms []*consumer.Message) error {
				for _, m := range ms {
					if string(m.Value) == "37" && m.Runs == 0 {
						<-release
						return nil
					}
				}
				for _, m := range ms {
					l.add(m)
				}
				return nil
			}}})
		time.Sleep(20 * time.Second)
		l.check(t, 100)
		if s := r.Stats(); s.Stuck != 1 {
			t.Errorf("stats %+v", s)
		}
		close(release)
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Stuck != 0 || s.Handled != 100 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// The guard keeps messages from a batch handler, all of a batch if need be, and none of them is acked for that.
func TestOversizeInBatches(t *testing.T) {
	for name, large := range map[string]func(i int) bool{
		"all":  func(int) bool { return true },
		"some": func(i int) bool { return i%3 > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages = 30
				good := 0
				for i := range messages {
					value := make([]byte, 2000)
					if !large(i) {
						value = value[:10]
						good++
					}
					if err := b.Produce(broker.Outgoing{Topic: "in", Value: value}); err != nil {
						t.Fatal(err)
					}
				}
				var seen atomic.Int64
				r := start(t, b, consumer.Config{
					MaxMessageBytes: 1000, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Batch: &consumer.Batch{Size: 10, Handler: func(_ context.Context, ms []*consumer.Message) error {
						seen.Add(int64(len(ms)))
						return nil
					}}})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if dead := len(b.Messages("dead")); seen.Load() != int64(good) || dead != messages-good {
					t.Errorf("%d handled and %d dead letters, want %d and %d", seen.Load(), dead, good, messages-good)
				}
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// A batch that is over its time fails by that: each of its messages that has no error of its own making.
func TestBatchTimeout(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 20)
		r := start(t, b, consumer.Config{Timeout: time.Second, StuckAfter: time.Minute,
			Batch: &consumer.Batch{Size: 10, Handler: func(ctx context.Context, ms []*consumer.Message) error {
				if ms[0].Runs > 0 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		failed := eventsOf[consumer.Failed](r.journal)
		for _, f := range failed {
			if f.Class != "timeout" || !errors.Is(f.Err, consumer.ErrTimeout) {
				t.Errorf("failure: class %s, %v", f.Class, f.Err)
			}
		}
		if len(failed) < 20 {
			t.Errorf("%d failed, want each", len(failed))
		}
		wantUnsettled(t, b, 0)
	})
}

// What is gathering when the stop comes goes back at once, in one batch or in one for each level.
func TestDrainGivesGatheringBack(t *testing.T) {
	levels := &consumer.Priority{Levels: []int{3, 2, 1}, Of: func(m *consumer.Message) int { return int(m.Offset % 3) }}
	for name, p := range map[string]*consumer.Priority{"one": nil, "levels": levels} {
		t.Run(name, func(t *testing.T) { drainGivesGatheringBack(t, p) })
	}
}

func drainGivesGatheringBack(t *testing.T, p *consumer.Priority) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 30)
		r := start(t, b, consumer.Config{Priority: p, Batch: &consumer.Batch{Size: 1000, Linger: time.Hour,
			Handler: func(context.Context, []*consumer.Message) error {
				t.Error("an incomplete batch was handed over")
				return nil
			}}})
		time.Sleep(time.Second)
		if s := r.Stats(); s.InFlight != 30 {
			t.Errorf("stats %+v", s)
		}
		if r.Oldest().IsZero() {
			t.Error("what is gathering is not seen")
		}
		begin := time.Now()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the drain took %v", took)
		}
		if s := r.Stats(); s.InFlight != 0 || s.GivenBack != 30 {
			t.Errorf("stats %+v", s)
		}
		wantUnsettled(t, b, 30)
	})
}

// Everything at once: batches in an order, with failures, rebalances and retries.
func TestBatchStorm(t *testing.T) {
	for seed := range uint64(6) {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
			t.Run(fmt.Sprint(seed, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { batchStorm(t, seed, order) })
			})
		}
	}
}

func batchStorm(t *testing.T, seed uint64, order consumer.Order) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 3}})
	const messages, keys = 3000, 61
	produceKeyed(t, b, messages, keys)
	book, moves := newOrderBook(), rand.New(rand.NewPCG(seed, 0))
	handler := func(_ context.Context, ms []*consumer.Message) error {
		if order == consumer.OrderKey {
			for _, m := range ms {
				book.begin(m)
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
		e := &consumer.BatchError{Errs: make([]error, len(ms))}
		for i, m := range ms {
			if rand.IntN(50) == 0 {
				e.Errs[i] = errors.New("dice")
			}
			book.end(m, e.Errs[i] == nil)
		}
		return e
	}
	var rs []*running
	for range 2 {
		rs = append(rs, startHeld(t, b, consumer.Config{
			Order: order, Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Max: time.Second}},
			Batch: &consumer.Batch{Size: 30, Linger: 50 * time.Millisecond, Handler: handler},
		}, holdSome))
	}
	for range 40 {
		time.Sleep(200 * time.Millisecond)
		_ = b.Revoke("group", "in", int32(moves.IntN(3)))
	}
	time.Sleep(5 * time.Minute)
	for _, r := range rs {
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if s := r.Stats(); s.InFlight != 0 || s.Lanes != 0 {
			t.Errorf("left: %+v", s)
		}
	}
	wantUnsettled(t, b, 0)
	book.check(t, messages, keys)
}

func TestBatchIsChecked(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	one := func(context.Context, *consumer.Message) error { return nil }
	many := func(context.Context, []*consumer.Message) error { return nil }
	for want, cfg := range map[string]consumer.Config{
		"Handler is required":                      {},
		"Batch is set, and so is Handler: set one": {Handler: one, Batch: &consumer.Batch{Handler: many}},
		"Batch.Handler is required":                {Batch: &consumer.Batch{}},
		"Batch.Size is -1, want at least 1":        {Batch: &consumer.Batch{Handler: many, Size: -1}},
		"Batch.Bytes is -1, want at least 1":       {Batch: &consumer.Batch{Handler: many, Bytes: -1}},
		"Batch.Linger is -1ns, negative":           {Batch: &consumer.Batch{Handler: many, Linger: -1}},
		"Batch.Size is 51, above Lane.Limit, 50": {Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 50},
			Batch: &consumer.Batch{Handler: many, ByKey: true, Size: 51}},
		"Batch.Size is 51, above half of a source": {Batch: &consumer.Batch{Handler: many, Size: 51},
			Budget: broker.Budget{Messages: 100}},
	} {
		cfg.Source = b.Source(membroker.SourceConfig{})
		if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

// A lateSource says of each ack of many what it is told to.
type lateSource struct {
	broker.Source
	err error
}

func (s *lateSource) Ack(c *broker.Claim, tokens []uint64) error {
	if err := s.Source.Ack(c, tokens); err != nil || len(tokens) == 1 {
		return err
	}
	return s.err
}

// Of a batch of which some settles came too late, these are counted as lost.
func TestLostOfABatch(t *testing.T) {
	for name, of := range map[string]struct {
		err  error
		lost int64
	}{
		"some":           {&broker.LostError{N: 3}, 3},
		"told as many":   {fmt.Errorf("too late: %w", &broker.LostError{N: 1 << 20}), 10},
		"unknown":        {broker.ErrLost, 10},
		"settled before": {broker.ErrSettled, 0},
		"of its own":     {errors.New("no"), 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produce(t, b, 10)
				r := start(t, b, consumer.Config{
					Source: &lateSource{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), of.err},
					Batch:  &consumer.Batch{Size: 10, Handler: func(context.Context, []*consumer.Message) error { return nil }},
				})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				told := eventsOf[consumer.Lost](r.journal)
				if s := r.Stats(); s.Lost != of.lost || len(told) != 1 || told[0].N != int(of.lost) {
					t.Errorf("%d lost, told %v, want %d", s.Lost, told, of.lost)
				}
			})
		})
	}
}

// Middleware is around the call of a batch, the first outermost, and sees its error; that of a batch of which nothing failed is
// nil.
func TestAroundBatch(t *testing.T) {
	var calls []string
	named := func(name string) consumer.BatchMiddleware {
		return consumer.AroundBatch(func(next consumer.Handler) consumer.Handler {
			return func(ctx context.Context, m *consumer.Message) error {
				err := next(ctx, m)
				calls = append(calls, fmt.Sprintf("%s %s %v", name, m.Value, err))
				return err
			}
		})
	}
	var result error
	h := consumer.ChainBatch(named("outer"), named("inner"))(func(_ context.Context, ms []*consumer.Message) error {
		calls = append(calls, fmt.Sprintf("batch of %d", len(ms)))
		return result
	})
	ms := []*consumer.Message{{Value: []byte("first")}, {Value: []byte("second")}}
	refused := errors.New("refused")
	for _, c := range []struct {
		result, want error
		calls        []string
	}{
		{nil, nil, []string{"batch of 2", "inner first <nil>", "outer first <nil>"}},
		{&consumer.BatchError{Errs: make([]error, 2)}, nil, []string{"batch of 2", "inner first <nil>", "outer first <nil>"}},
		{&consumer.BatchError{Errs: []error{nil, refused}}, refused,
			[]string{"batch of 2", "inner first refused", "outer first refused"}},
		{&consumer.BatchError{Errs: make([]error, 3)}, &consumer.BatchError{}, []string{ // told of three
			"batch of 2", "inner first no message of the batch failed", "outer first no message of the batch failed",
		}},
	} {
		calls, result = nil, c.result
		err := h(t.Context(), ms)
		if each := (*consumer.BatchError)(nil); c.want == nil && err != nil || c.want != nil && !errors.As(err, &each) {
			t.Errorf("%v: returned %v, want %v", c.result, err, c.want)
		}
		if !slices.Equal(calls, c.calls) {
			t.Errorf("%v: calls %q, want %q", c.result, calls, c.calls)
		}
	}
}

// Batches that come whole are handed over as they lie: nothing is copied, and next to nothing allocated for a message.
func TestWholeBatchesAreNotCopied(t *testing.T) {
	const size, messages = 100, 200_000
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	ms := make([]broker.Outgoing, 1000)
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "in", Value: []byte("value")}
	}
	if err := b.Fill(0, messages, ms...); err != nil {
		t.Fatal(err)
	}
	var handled, whole atomic.Int64
	done := make(chan struct{})
	r := start(t, b, consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Prefetch: 4096}),
		Batch: &consumer.Batch{Size: size, Handler: func(_ context.Context, ms []*consumer.Message) error {
			if len(ms) == size {
				whole.Add(1)
			}
			if handled.Add(int64(len(ms))) == messages {
				close(done)
			}
			return nil
		}}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d handled", handled.Load())
	}
	runtime.ReadMemStats(&after)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if n := whole.Load(); n < messages/size*9/10 {
		t.Errorf("%d whole batches of %d", n, messages/size)
	}
	// A slab of messages, a list of pointers to them, and a work for each batch: a fifth of an allocation would be one for five.
	if per := float64(after.Mallocs-before.Mallocs) / messages; per > 0.2 {
		t.Errorf("%.2f allocations a message", per)
	}
}
