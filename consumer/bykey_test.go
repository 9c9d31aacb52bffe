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

// With ByKey a batch has messages of one key only, also where there is none, and is as full as they allow.
func TestBatchByKey(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages, keys = 1200, 7
		produceKeyed(t, b, messages, keys)
		for i := range 50 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: fmt.Appendf(nil, "none %d", i)},
				broker.Outgoing{Topic: "in", Key: []byte{}, Value: fmt.Appendf(nil, "empty %d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		var seen batches
		r := start(t, b, consumer.Config{Batch: &consumer.Batch{ByKey: true, Size: 20, Linger: time.Second,
			Handler: func(_ context.Context, ms []*consumer.Message) error {
				for _, m := range ms {
					if string(m.Key) != string(ms[0].Key) || (m.Key == nil) != (ms[0].Key == nil) {
						t.Errorf("%s and %s in a batch", ms[0].Value, m.Value)
					}
				}
				time.Sleep(time.Millisecond)
				seen.take(ms)
				return nil
			}}})
		time.Sleep(30 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		seen.check(t, messages+100)
		if n := len(seen.sizes); n > 130 { // 65 full ones, and an incomplete one for each key and partition
			t.Errorf("%d batches", n)
		}
		wantUnsettled(t, b, 0)
	})
}

// With an order and ByKey a batch is consecutive messages of a lane, in their order, and no other of the lane runs beside it.
func TestBatchByKeyInOrder(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderKey, consumer.OrderPartition} {
		t.Run(string(order), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages, keys = 2000, 5
				for i := range messages { // runs of a key, so that batches can be had in the order of partitions, too
					key := fmt.Sprintf("k%d", i/40%keys)
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key),
						Value: fmt.Appendf(nil, "%s %d", key, i/40/keys*40+i%40)}); err != nil {
						t.Fatal(err)
					}
				}
				book := newOrderBook()
				var seen batches
				r := start(t, b, consumer.Config{Order: order,
					Batch: &consumer.Batch{ByKey: true, Size: 16, Linger: 100 * time.Millisecond,
						Handler: func(_ context.Context, ms []*consumer.Message) error {
							book.batch(ms, nil)
							seen.take(ms)
							return nil
						}}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				book.check(t, messages, keys)
				if n := len(seen.sizes); n > messages/8 {
					t.Errorf("%d batches for %d messages", n, messages)
				}
				if s := r.Stats(); s.InFlight != 0 || s.Lanes != 0 || s.Waiting != 0 || s.Pool.Backlog != 0 {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// What comes while the batch of its lane gathers joins it, and may complete it before its time.
func TestBatchByKeyIsJoined(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		seen := batches{begin: time.Now()}
		r := start(t, b, consumer.Config{Order: consumer.OrderKey,
			Batch: &consumer.Batch{ByKey: true, Size: 10, Linger: time.Minute,
				Handler: func(_ context.Context, ms []*consumer.Message) error {
					seen.take(ms)
					return nil
				}}})
		for i := range 25 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(seen.sizes) != 2 || seen.sizes[0] != 10 || seen.sizes[1] != 10 || seen.at[1] > 3*time.Second {
			t.Errorf("batches of %v after %v", seen.sizes, seen.at)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 5)
	})
}

// A partition that goes elsewhere takes what gathers of it along, and the pool does not go on waiting for it.
func TestBatchByKeyIsRevoked(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produceKeyed(t, b, 60, 3)
				var seen batches
				r := start(t, b, consumer.Config{Order: order,
					Batch: &consumer.Batch{ByKey: true, Size: 500, Linger: 10 * time.Second,
						Handler: func(_ context.Context, ms []*consumer.Message) error {
							seen.take(ms)
							return nil
						}}})
				for range 3 {
					time.Sleep(time.Second)
					if err := b.Revoke("group", "in", 0); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				// At least thrice 60: what the next claim brings before the lanes of the last one are released goes back with them.
				if s := r.Stats(); s.InFlight != 60 || s.GivenBack < 180 || s.GivenBack != s.Received-60 || s.Pool.In != 60 {
					t.Errorf("gathering again: %+v", s)
				}
				time.Sleep(time.Minute)
				seen.check(t, 60)
				if s := r.Stats(); len(seen.sizes) != 3 || s.Pool.In != 60 || s.InFlight != 0 {
					t.Errorf("batches of %v, stats %+v", seen.sizes, s)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// batch notes a call with messages of one key: they are begun as one, and end one after the other, as errs say.
func (b *orderBook) batch(ms []*consumer.Message, errs []error) {
	b.begin(ms[0])
	time.Sleep(5 * time.Millisecond)
	for i, m := range ms {
		if i > 0 {
			if key, n := keyAndNumber(m); string(ms[0].Key) != string(m.Key) || n != b.number(ms[i-1])+1 {
				b.mu.Lock()
				b.inversions = append(b.inversions, fmt.Sprintf("%s %d follows %s in a batch", key, n, ms[i-1].Value))
				b.mu.Unlock()
			}
		}
		if errs != nil && errs[i] != nil {
			b.end(m, false)
			return
		}
		b.end(m, true)
	}
}

func (b *orderBook) number(m *consumer.Message) int { _, n := keyAndNumber(m); return n }

// The first of a batch in an order that fails ends it: those before it are done, those behind it come again after it, one by one,
// with no attempt used up.
func TestBatchByKeyPartialSuccess(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i := range 10 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		var calls []string
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Retry: consumer.Retry{MaxAttempts: 2}, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(),
				Topic: "dead"},
			Batch: &consumer.Batch{ByKey: true, Size: 10, Linger: time.Second,
				Handler: func(_ context.Context, ms []*consumer.Message) error {
					call, e := "", &consumer.BatchError{Errs: make([]error, len(ms))}
					for i, m := range ms {
						call += fmt.Sprintf("%s/%d ", m.Value, m.Runs)
						switch string(m.Value) {
						case "3":
							e.Errs[i] = errors.New("bad")
						case "1":
							e.Errs[i] = consumer.Skip("not wanted")
						case "7":
							e.Errs[i] = errors.New("bad too")
							if m.Runs > 0 {
								e.Errs[i] = nil
							}
						}
					}
					calls = append(calls, strings.TrimSpace(call))
					return e
				}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		want := []string{"0/0 1/0 2/0 3/0 4/0 5/0 6/0 7/0 8/0 9/0", "3/1", "4/0", "5/0", "6/0", "7/0", "7/1", "8/0", "9/0"}
		if fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("calls %q,\nwant  %q", calls, want)
		}
		if s := r.Stats(); s.Handled != 8 || s.Skipped != 1 || s.DeadLettered != 1 || s.Failed != 3 || s.InFlight != 0 || s.Lanes != 0 {
			t.Errorf("stats %+v", s)
		}
		wantUnsettled(t, b, 0)
	})
}

// A stop, and a partition that goes elsewhere, while batches by key gather: what gathers and what waits behind it goes back, in
// order, and nothing is lost.
func TestBatchByKeyGoesBack(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produceKeyed(t, b, 60, 3)
				r := start(t, b, consumer.Config{Order: order,
					Batch: &consumer.Batch{ByKey: true, Size: 500, Linger: time.Hour, Handler: func(context.Context, []*consumer.Message) error {
						t.Error("an incomplete batch was handed over")
						return nil
					}}})
				time.Sleep(time.Second)
				if s := r.Stats(); s.InFlight != 60 || s.Waiting != 0 || r.Oldest().IsZero() {
					t.Errorf("stats %+v, oldest %v", s, r.Oldest())
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if s := r.Stats(); s.InFlight != 0 || s.GivenBack != 60 || s.Lanes != 0 || s.Pool.Backlog != 0 {
					t.Errorf("stats %+v", s)
				}
				wantUnsettled(t, b, 60)
			})
		})
	}
}

// Batches by key in an order, with failures, rebalances and retries: no inversion, nothing lost.
func TestBatchByKeyStorm(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 3}})
				const messages, keys = 4000, 23
				produceKeyed(t, b, messages, keys)
				book, moves := newOrderBook(), rand.New(rand.NewPCG(seed, 0))
				handler := func(_ context.Context, ms []*consumer.Message) error {
					errs := make([]error, len(ms))
					for i := range ms {
						if rand.IntN(60) == 0 || i > 0 && errs[i-1] != nil {
							errs[i] = errors.New("dice")
						}
					}
					book.batch(ms, errs)
					return &consumer.BatchError{Errs: errs}
				}
				var rs []*running
				for range 2 {
					rs = append(rs, startHeld(t, b, consumer.Config{
						Order: consumer.OrderKey, Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Max: time.Second}},
						Batch: &consumer.Batch{ByKey: true, Size: 30, Linger: 50 * time.Millisecond, Handler: handler},
					}, holdSome))
				}
				for range 40 {
					time.Sleep(100 * time.Millisecond)
					_ = b.Revoke("group", "in", int32(moves.IntN(3)))
				}
				time.Sleep(10 * time.Minute)
				for _, r := range rs {
					if err := r.end(); err != nil {
						t.Error(err)
					}
					if s := r.Stats(); s.InFlight != 0 || s.Lanes != 0 || s.Waiting != 0 || s.Pool.Backlog != 0 {
						t.Errorf("left: %+v", s)
					}
				}
				wantUnsettled(t, b, 0)
				book.check(t, messages, keys)
			})
		})
	}
}

// A message that its handler put off is nobody's fault: what stands behind it is in its batch again the next time.
func TestByKeyPutOffStaysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		for i := range n {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("key"), Value: []byte{byte('0' + i)}}); err != nil {
				t.Fatal(err)
			}
		}
		var sizes []int
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Pool: consumer.Pool{Max: 1},
			Batch: &consumer.Batch{Size: n, ByKey: true, Handler: func(_ context.Context, ms []*consumer.Message) error {
				if sizes = append(sizes, len(ms)); len(sizes) == 1 {
					return &consumer.BatchError{Errs: append([]error{consumer.Defer(time.Second, nil)}, make([]error, len(ms)-1)...)}
				}
				return nil
			}}})
		time.Sleep(10 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sizes, []int{n, n}) {
			t.Errorf("calls of %v messages, want two of all", sizes)
		}
	})
}
