package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// What follows in a lane goes to its worker several at once, where handlers are short: each is handled after the one before it,
// and none behind one that failed, whatever failed it, until that is settled.
func TestRunOfLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, keys = 2000, 2
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produceKeyed(t, b, messages, keys)
		book, most := newOrderBook(), 0
		var mu sync.Mutex
		failed := map[string]bool{}
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Observers: []consumer.Observer{func(e consumer.Event) {
			if h, ok := e.(consumer.Handled); ok {
				mu.Lock()
				defer mu.Unlock()
				most = max(most, h.N)
			}
		}}, Handler: book.handle(func(m *consumer.Message) error {
			_, n := keyAndNumber(m)
			mu.Lock()
			again := failed[string(m.Value)]
			failed[string(m.Value)] = true
			mu.Unlock()
			switch {
			case again:
			case n%101 == 100:
				panic("it panics")
			case n%103 == 100:
				runtime.Goexit()
			case n%53 == 50:
				return consumer.Defer(time.Second, nil)
			case n%37 == 30:
				return errors.New("it fails")
			}
			return nil
		})})
		time.Sleep(20 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, messages, keys)
		wantUnsettled(t, b, 0)
		if most < 20 {
			t.Errorf("%d messages at most were handled at once, of two keys", most)
		}
	})
}

// A worker that was replaced for a stuck handler leaves the rest of its run to another: nobody would end a handler that it starts
// then, however long that takes.
func TestReplacedWorkerLeavesItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, stuck = 300, 150
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produceKeyed(t, b, messages, 1)
		book := newOrderBook()
		var first sync.Map
		handle := func(ctx context.Context, m *consumer.Message) error {
			_, n := keyAndNumber(m)
			if _, again := first.LoadOrStore(n, true); again {
				return nil
			}
			switch n {
			case stuck: // whatever its context says
				time.Sleep(time.Minute)
			case stuck + 1:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Timeout: time.Second, StuckAfter: 2 * time.Second,
			Handler: func(ctx context.Context, m *consumer.Message) error {
				return book.handle(func(m *consumer.Message) error { return handle(ctx, m) })(ctx, m)
			}})
		time.Sleep(10 * time.Minute)
		if s := r.Stats(); s.InFlight != 0 || s.Stuck != 0 || s.Handled != messages {
			t.Errorf("stats %+v", s)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, messages, 1)
		wantUnsettled(t, b, 0)
	})
}

// A slowAck is a source that takes its time with one ack, the first after it is armed.
type slowAck struct {
	*membroker.Source
	armed atomic.Bool
}

func (s *slowAck) AckEmitting(c *broker.Claim, es []broker.Emission) error {
	if s.armed.CompareAndSwap(true, false) {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Source.AckEmitting(c, es)
}

// What of a run has returned is acked by others while the next one of it runs. When that returns before they are through, it is
// acked behind them all the same: else outputs of a key would stand in the wrong order, and what is lost after one ack of two
// would come again behind what was acked.
func TestRunIsAckedInOrder(t *testing.T) {
	const messages, slow = 300, 150 // and one behind that, of the same run
	revoke := func(t *testing.T, b *membroker.Broker, _ *running) {
		if err := b.Revoke("group", "in", 0); err != nil {
			t.Error(err)
		}
	}
	for name, others := range map[string]map[int]func(t *testing.T, b *membroker.Broker, r *running){
		"the watchdog":                     {slow: nil},
		"a revocation":                     {slow: revoke},
		"a revocation beside the watchdog": {slow: nil, slow + 10: revoke},
		"a stop":                           {slow: func(_ *testing.T, _ *membroker.Broker, r *running) { r.stop() }},
	} {
		for how, ends := range map[string]func() error{
			"nil":    func() error { return nil },
			"skip":   func() error { return consumer.Skip("it has nothing to say") },
			"panic":  func() error { panic("it panics") },
			"goexit": func() error { runtime.Goexit(); return nil },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Atomic: true})
					produceKeyed(t, b, messages, 1)
					src := &slowAck{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
					book := newOrderBook()
					started := make(chan *running, 1)
					var slept sync.Map
					handle := func(ctx context.Context, m *consumer.Message) error {
						if err := consumer.Emit(ctx, emitted(m, "")); err != nil {
							return err
						}
						_, n := keyAndNumber(m)
						do, waits := others[n]
						if _, again := slept.LoadOrStore(n, true); again || !waits {
							return nil
						}
						if n == slow {
							src.armed.Store(true)
						}
						if do != nil {
							do(t, b, <-started)
						}
						time.Sleep(55 * time.Millisecond)
						if len(others) > 1 && n == slow {
							return nil // or the other one is of another run
						}
						return ends()
					}
					r := start(t, b, consumer.Config{Source: src, Order: consumer.OrderKey,
						Handler: func(ctx context.Context, m *consumer.Message) error {
							return book.handle(func(m *consumer.Message) error { return handle(ctx, m) })(ctx, m)
						}})
					started <- r
					time.Sleep(time.Minute)
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
					if src.armed.Load() {
						t.Error("nobody acked beside the slow one")
					}
					wantInOrder(t, b)
				})
			})
		}
	}
}

// wantInOrder looks at the outputs of a key: each behind those of the messages before it.
func wantInOrder(t *testing.T, b *membroker.Broker) {
	t.Helper()
	last := -1
	for _, m := range b.Messages("out") {
		_, n := keyAndNumber(&m)
		if n <= last {
			t.Errorf("the output of %d stands behind that of %d", n, last)
		}
		last = max(last, n)
	}
}
