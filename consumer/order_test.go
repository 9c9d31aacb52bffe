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

// Messages of a key are handled one at a time and in order, also through retries; those of other keys beside them.
func TestKeyOrder(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages, keys = 3000, 97
		produceKeyed(t, b, messages, keys)
		book := newOrderBook()
		var failures atomic.Int64
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey,
			Retry: consumer.Retry{MaxAttempts: 100},
			Handler: book.handle(func(m *consumer.Message) error {
				time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
				if rand.IntN(50) == 0 {
					failures.Add(1)
					return errors.New("dice")
				}
				return nil
			})})
		time.Sleep(10 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, messages, keys)
		wantUnsettled(t, b, 0)
		if book.most < 32 || failures.Load() == 0 {
			t.Errorf("at most %d keys ran at once, %d failures", book.most, failures.Load())
		}
		if s := r.Stats(); s.Lanes != 0 || s.Waiting != 0 || s.InFlight != 0 || s.Handled != messages {
			t.Errorf("stats %+v", s)
		}
	})
}

// Of a partition, one after the other; partitions beside each other. Where there are none, subjects.
func TestPartitionOrder(t *testing.T) {
	for name, cfg := range map[string]membroker.Config{
		"partitioned": {Topics: map[string]int{"in": 4}}, "leased": {Topics: map[string]int{"in.0": 1, "in.1": 1, "in.2": 1, "in.3": 1},
			Leased: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(cfg)
				const messages, lanes = 2000, 4
				for i := range messages {
					lane := i % lanes
					o := broker.Outgoing{Topic: "in", Value: fmt.Appendf(nil, "%d %d", lane, i/lanes)}
					if cfg.Leased {
						o.Topic = fmt.Sprintf("in.%d", lane)
					}
					if err := b.ProduceTo(map[bool]int{true: -1, false: lane}[cfg.Leased], o); err != nil {
						t.Fatal(err)
					}
				}
				book := newOrderBook()
				r := start(t, b, consumer.Config{
					Source: b.Source(membroker.SourceConfig{}), Order: consumer.OrderPartition,
					Handler: book.handle(func(*consumer.Message) error { time.Sleep(time.Millisecond); return nil }),
				})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				book.check(t, messages, lanes)
				if book.most != lanes {
					t.Errorf("%d partitions ran at once, want %d", book.most, lanes)
				}
			})
		})
	}
}

// A message without a key is ordered with nothing; an empty key is a key.
func TestNoKeyNoOrder(t *testing.T) {
	for name, key := range map[string][]byte{"nil": nil, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				for range 100 {
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: key, Value: []byte("v")}); err != nil {
						t.Fatal(err)
					}
				}
				var running, most atomic.Int64
				r := start(t, b, consumer.Config{
					Order: consumer.OrderKey, Pool: consumer.Pool{Min: 20, Max: 20},
					Handler: func(context.Context, *consumer.Message) error {
						if n := running.Add(1); n > most.Load() {
							most.Store(n)
						}
						time.Sleep(100 * time.Millisecond)
						running.Add(-1)
						return nil
					}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int64{true: 20, false: 1}[key == nil]; most.Load() != want {
					t.Errorf("%d ran at once, want %d", most.Load(), want)
				}
				told, counted := len(eventsOf[consumer.Unordered](r.journal)), r.Stats().Unordered
				if key == nil && (told != 1 || counted != 100) || key != nil && (told != 0 || counted != 0) {
					t.Errorf("told %d times of messages without a key, counted %d", told, counted)
				}
			})
		})
	}
}

// The order is kept from one process to the next: what waits behind a running message goes back when that is settled, not before,
// and nothing that was given back is overtaken.
func TestOrderOverStops(t *testing.T) {
	for name, cfg := range kinds {
		for _, order := range []consumer.Order{consumer.OrderKey, consumer.OrderPartition} {
			t.Run(name+" "+string(order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg.Topics = map[string]int{"in": 1}
					b := membroker.New(cfg)
					const messages = 1500
					keys := map[consumer.Order]int{consumer.OrderKey: 23, consumer.OrderPartition: 1}[order]
					produceKeyed(t, b, messages, keys)
					book := newOrderBook()
					handler := book.handle(func(*consumer.Message) error {
						time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
						if rand.IntN(40) == 0 {
							return errors.New("dice")
						}
						return nil
					})
					for stop := 0; ; stop++ {
						r := start(t, b, consumer.Config{Order: order,
							Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Max: time.Second}}, Handler: handler})
						time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond)
						left := b.Unsettled("group")
						if err := r.end(); err != nil {
							t.Fatal(err)
						}
						if n := r.Stats().InFlight; n != 0 {
							t.Fatalf("%d messages were never settled", n)
						}
						if left == 0 || stop > 2000 {
							t.Logf("%d stops", stop)
							break
						}
					}
					book.check(t, messages, keys)
				})
			})
		}
	}
}

// The order is kept when partitions go to and fro between two processes, with warning and without.
func TestOrderOverRebalances(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 3}, Lease: 2 * time.Second})
				const messages, keys = 3000, 53
				produceKeyed(t, b, messages, keys)
				book := newOrderBook()
				random := rand.New(rand.NewPCG(seed, 0))
				var rs []*running
				for range 2 {
					rs = append(rs, startHeld(t, b, consumer.Config{
						Order: consumer.OrderKey, Retry: consumer.Retry{MaxAttempts: 1000, Backoff: consumer.Backoff{Max: time.Second}},
						Handler: book.handle(func(*consumer.Message) error {
							time.Sleep(time.Duration(rand.Int64N(int64(15 * time.Millisecond))))
							if rand.IntN(40) == 0 {
								return errors.New("dice")
							}
							return nil
						})}, holdSome))
				}
				for range 60 {
					time.Sleep(200 * time.Millisecond)
					_ = b.Revoke("group", "in", int32(random.IntN(3)))
				}
				time.Sleep(5 * time.Minute)
				for _, r := range rs {
					if err := r.end(); err != nil {
						t.Error(err)
					}
					if s := r.Stats(); s.InFlight != 0 || s.Lanes != 0 || s.Waiting != 0 {
						t.Errorf("left: %+v", s)
					}
				}
				book.check(t, messages, keys)
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// A claim that is lost and comes back at once: what still runs of it keeps its lane shut for what the new claim brings.
func TestLanesOutliveClaims(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 2}})
				const messages, keys = 1000, 17
				produceKeyed(t, b, messages, keys)
				book := newOrderBook()
				random := rand.New(rand.NewPCG(seed, 0))
				r := start(t, b, consumer.Config{Order: consumer.OrderKey, Handler: book.handle(func(*consumer.Message) error {
					time.Sleep(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
					return nil
				})})
				for range 40 {
					time.Sleep(25 * time.Millisecond)
					_ = b.Bounce("group", "in", int32(random.IntN(2)))
				}
				time.Sleep(5 * time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				book.check(t, messages, keys)
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// A stuck handler costs a worker, which is replaced, and its key, which waits for it; its result counts. Nothing else.
func TestStuckInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages, keys = 200, 10
		produceKeyed(t, b, messages, keys)
		book := newOrderBook()
		release := make(chan struct{})
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Pool: consumer.Pool{Min: 2, Max: 2}, Timeout: time.Second, StuckAfter: time.Second,
			Handler: book.handle(func(m *consumer.Message) error {
				if string(m.Value) == "k3 5" {
					<-release
				}
				return nil
			})})
		time.Sleep(20 * time.Second)
		s := r.Stats() // of those behind it some may be in its worker's hand, as one run, and wait in no lane
		if s.Handled != messages-messages/keys+5 || s.InFlight != messages/keys-5 || s.Stuck != 1 || s.Lanes != 1 ||
			s.Waiting > messages/keys-6 {
			t.Errorf("stats %+v", s)
		}
		close(release)
		time.Sleep(10 * time.Second)
		if s := r.Stats(); s.Handled != messages || s.Stuck != 0 || s.Failed != 0 || s.Pool.Live != 2 {
			t.Errorf("stats %+v", s)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, messages, keys)
	})
}

// II.16: a key whose lane is never empty does not keep the only worker.
func TestHotKeySharesItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		for i := range 2000 {
			key := "hot"
			if i%100 == 99 {
				key = fmt.Sprint("cold", i)
			}
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
		var hot, last atomic.Int64
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Pool: consumer.Pool{Min: 1, Max: 1}, Lane: consumer.Lane{Limit: 4000},
			Handler: func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Millisecond)
				if string(m.Key) == "hot" {
					hot.Add(1)
				} else {
					last.Store(hot.Load())
				}
				return nil
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if hot.Load() != 1980 || last.Load() > 1500 {
			t.Errorf("the last of 20 other keys came after %d of %d of the hot one", last.Load(), hot.Load())
		}
	})
}

// What waits behind a handler that runs on after its claim was lost frees the budget at once: it comes again anyway. The lane is
// kept shut by what runs.
func TestLostLaneFreesBudget(t *testing.T) {
	for name, c := range map[string]struct{ messages, slow int }{
		"behind the first":       {50, 0},
		"in the middle of a run": {400, 150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produceKeyed(t, b, c.messages, 1)
				book := newOrderBook()
				var slept atomic.Bool
				r := start(t, b, consumer.Config{Order: consumer.OrderKey, Handler: book.handle(func(m *consumer.Message) error {
					if _, n := keyAndNumber(m); n == c.slow && slept.CompareAndSwap(false, true) {
						time.Sleep(time.Minute) // whatever its context says
					}
					return nil
				})})
				time.Sleep(time.Second)
				// Of the run that the slow one is in, those before it are handled, too, though it has not ended.
				if s := r.Stats(); s.Handled != int64(c.slow) || s.InFlight < 2 {
					t.Fatalf("%d are handled before the slow one and %d in flight, want %d and more than 1", s.Handled, s.InFlight, c.slow)
				}
				if err := b.Steal("group", "in", 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				if s := r.Stats(); s.InFlight != 1 || s.Lanes != 1 || s.Waiting != 0 {
					t.Errorf("stats %+v", s)
				}
				time.Sleep(2 * time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				book.check(t, c.messages, 1)
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// A handler that outlives its lease has its message come again. What waits behind it comes after that, and not in between.
func TestOrderOverLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Leased: true, Lease: 2 * time.Second})
		produceKeyed(t, b, 20, 1)
		book := newOrderBook()
		var slept, healed atomic.Bool
		var early atomic.Int32
		source := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		r := start(t, b, consumer.Config{Source: source, Order: consumer.OrderKey, Handler: book.handle(func(*consumer.Message) error {
			if slept.CompareAndSwap(false, true) {
				time.Sleep(7 * time.Second)
			} else if !healed.Load() {
				early.Add(1)
			}
			return nil
		})})
		time.Sleep(time.Second)
		source.Cut(membroker.Both)
		time.Sleep(8 * time.Second)
		healed.Store(true)
		source.Heal()
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if r.Stats().Lost == 0 {
			t.Error("no lease was lost")
		}
		if early.Load() > 0 {
			t.Errorf("%d messages behind the one whose lease was lost were handled before they came again", early.Load())
		}
		book.check(t, 20, 1)
		wantUnsettled(t, b, 0)
	})
}

// A message of a topic that was made anew waits behind one of the old topic with its key, which does not come again. So it keeps
// its place when that one's ack says that it is lost: given back, it would come after what has been received behind it meanwhile,
// and that would find the key free.
func TestOrderOverATopicMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute})
		produceKeyed(t, b, 1, 1)
		book := newOrderBook()
		var slept atomic.Bool
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Handler: book.handle(func(*consumer.Message) error {
			if slept.CompareAndSwap(false, true) {
				time.Sleep(time.Second) // whatever becomes of its context
			}
			return nil
		})})
		synctest.Wait()
		if err := b.Recreate("in"); err != nil {
			t.Fatal(err)
		}
		produceKeyed(t, b, 20, 1)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Lost != 1 || s.GivenBack != 0 || s.Received != 21 {
			t.Errorf("%d lost, %d given back of %d received; want 1, 0, 21", s.Lost, s.GivenBack, s.Received)
		}
		book.check(t, 20, 1)
		wantUnsettled(t, b, 0)
	})
}

// Where processes share messages no engine can keep an order over them; that is said at the start.
func TestOrderWithinOneProcessIsWarnedOf(t *testing.T) {
	for leased, want := range map[bool]int{false: 0, true: 1} {
		synctest.Test(t, func(t *testing.T) {
			b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Leased: leased})
			r := start(t, b, consumer.Config{Order: consumer.OrderKey,
				Handler: func(context.Context, *consumer.Message) error { return nil }})
			time.Sleep(time.Second)
			n := 0
			for _, e := range eventsOf[consumer.SourceEvent](r.journal) {
				if e.Kind == broker.Warning && strings.Contains(e.Err.Error(), "within this process only") {
					n++
				}
			}
			if n != want {
				t.Errorf("leased %v: %d warnings, want %d", leased, n, want)
			}
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOrderIsChecked(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	_, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{}), Handler: func(context.Context, *consumer.Message) error { return nil },
		Order: "random", Lane: consumer.Lane{Limit: -1, Full: "drop"}, Retry: consumer.Retry{Topics: retries(b)},
	})
	for _, want := range []string{`Order is "random"`, "Lane.Limit is -1", `Lane.Full is "drop"`,
		"Retry.Topics is set: what waits there has lost its place. Remove Retry.Topics to keep the order, or Order to keep them"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	_, err = consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{}), Handler: func(context.Context, *consumer.Message) error { return nil },
		Order: consumer.OrderKey, Lane: consumer.Lane{Full: consumer.LaneDeadLetter},
	})
	if err == nil || !strings.Contains(err.Error(), "and there is no DeadLetter") {
		t.Error(err)
	}
}

// A lane's next message is handled by the worker that has done the one before it, while others are idle: to wake one of them for
// each would take many times as long as a short handler does.
func TestLaneStaysWithItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 500
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produceKeyed(t, b, messages, 1)
		var mu sync.Mutex
		var last context.Context
		handled, switches := 0, 0
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Pool: consumer.Pool{Min: 8, Max: 8},
			Handler: func(ctx context.Context, _ *consumer.Message) error { // a worker has one context for a claim
				mu.Lock()
				defer mu.Unlock()
				if handled++; last != nil && last != ctx {
					switches++
				}
				last = ctx
				return nil
			}})
		time.Sleep(10 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if handled != messages || switches > messages/10 {
			t.Errorf("%d messages were handled, and the worker changed %d times", handled, switches)
		}
	})
}
