package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// TestBatchBytesOfOne: a message that is over a batch's bytes by itself completes its batch, however batches are put together.
// Where they were of whatever comes, another one came with it.
func TestBatchBytesOfOne(t *testing.T) {
	for name, by := range map[string]consumer.Batch{"whatever comes": {}, "of a key": {ByKey: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				for range 30 {
					if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 3000)}); err != nil {
						t.Fatal(err)
					}
				}
				var seen batches
				by.Bytes, by.Linger = 2500, time.Hour
				by.Handler = func(_ context.Context, ms []*consumer.Message) error {
					seen.take(ms)
					return nil
				}
				r := start(t, b, consumer.Config{Batch: &by})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if len(seen.sizes) != 30 {
					t.Errorf("batches of %v, want 30 of one", seen.sizes)
				}
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
		"Batch.Size is -1, want 1 to 65536":        {Batch: &consumer.Batch{Handler: many, Size: -1}},
		"Batch.Size is 65537, want 1 to 65536": {Batch: &consumer.Batch{Handler: many, Size: 65_537},
			Budget: broker.Budget{Messages: 1 << 20}},
		"Batch.Bytes is -1, want at least 1": {Batch: &consumer.Batch{Handler: many, Bytes: -1}},
		"Batch.Linger is -1ns, negative":     {Batch: &consumer.Batch{Handler: many, Linger: -1}},
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
		{errors.Join(&consumer.BatchError{Errs: make([]error, 2)}, refused), &consumer.BatchError{}, []string{
			"batch of 2", "inner first no message of the batch failed\nrefused", "outer first no message of the batch failed\nrefused",
		}},
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

// What stands beside a BatchError is said of all messages, and what is only around it of none; nothing that is joined is lost.
func TestBatchErrors(t *testing.T) {
	bad, full := errors.New("bad"), errors.New("disk is full")
	first := &consumer.BatchError{Errs: []error{bad, nil, consumer.Skip("old")}}
	well := &consumer.BatchError{Errs: make([]error, 3)}
	short := &consumer.BatchError{Errs: []error{consumer.Skip("old")}}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":                    {nil, "ack ack ack"},
		"for all":                {full, "full full full"},
		"joined for all":         {errors.Join(full, bad), "bad+full bad+full bad+full"},
		"each":                   {first, "bad ack skip"},
		"wrapped":                {fmt.Errorf("writing: %w", first), "bad ack skip"},
		"joined with nothing":    {errors.Join(first, nil), "bad ack skip"},
		"joined":                 {errors.Join(first, full), "bad+full full full"},
		"joined before":          {fmt.Errorf("closing: %w, after %w", full, first), "bad+full full full"},
		"joined, and wrapped":    {fmt.Errorf("writing: %w", errors.Join(well, full)), "full full full"},
		"two":                    {errors.Join(well, first), "bad ack skip"},
		"two, one of them short": {errors.Join(first, short), "bad+other other other"},
		"short":                  {short, "other other other"},
		"a nil pointer":          {(*consumer.BatchError)(nil), "other other other"},
		"a nil pointer, joined":  {errors.Join(first, (*consumer.BatchError)(nil)), "bad+other other other"},
	} {
		var got []string
		for _, err := range consumer.BatchErrors(c.err, 3) {
			var is []string
			for what, target := range map[string]error{"bad": bad, "full": full} {
				if errors.Is(err, target) {
					is = append(is, what)
				}
			}
			slices.Sort(is)
			switch {
			case err == nil:
				is = []string{"ack"}
			case consumer.IsSkip(err):
				is = []string{"skip"}
			case len(is) == 0 || strings.Contains(err.Error(), "told of 1") || strings.Contains(err.Error(), "nil *BatchError"):
				is = append(is, "other")
			}
			got = append(got, strings.Join(is, "+"))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
