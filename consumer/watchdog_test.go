package consumer_test

import (
	"context"
	"errors"
	"fmt"
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

// II.6: what has returned is acked although a slow neighbour of the same run still runs, and what stands behind it goes on
// elsewhere.
func TestSlowMessageDelaysNeitherAcksNorNeighbours(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var l ledger
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 2, Max: 2},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Value) == "500" {
					time.Sleep(time.Minute)
				}
				l.add(m)
				return nil
			}})
		time.Sleep(time.Second) // the handlers are known to be quick: runs of many messages
		produce(t, b, 1000)
		time.Sleep(10 * time.Second)
		wantUnsettled(t, b, 1)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// II.4: the timeout ends the context of the message that is late, and of no other.
func TestTimeoutEndsOneContextOnly(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 200)
		var l ledger
		var late atomic.Int32
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: time.Second,
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if ctx.Err() != nil {
					t.Errorf("message %s begins with a context that has ended: %v", m.Value, context.Cause(ctx))
				}
				if m.Runs == 0 && strings.HasSuffix(string(m.Value), "9") {
					begin := time.Now()
					<-ctx.Done()
					if d := time.Since(begin); d < time.Second || d > 1100*time.Millisecond {
						t.Errorf("the context ended after %v, want Timeout", d)
					}
					if !errors.Is(context.Cause(ctx), consumer.ErrTimeout) {
						t.Errorf("cause %v, want ErrTimeout", context.Cause(ctx))
					}
					if late.Add(1)%2 == 0 {
						panic("late")
					}
					return ctx.Err()
				}
				l.add(m)
				return nil
			}})
		time.Sleep(2 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, 200)
		failed := eventsOf[consumer.Failed](r.journal)
		if late.Load() != 20 || len(failed) != 20 {
			t.Fatalf("%d were late, %d failed, want 20", late.Load(), len(failed))
		}
		for _, f := range failed {
			if f.Class != "timeout" && f.Class != "panic" || !errors.Is(f.Err, consumer.ErrTimeout) {
				t.Errorf("failure: class %s, %v", f.Class, f.Err)
			}
		}
	})
}

// A message that is alone with its worker is looked at less often than one with others behind it, and its time is over no later.
func TestTimeoutOfOneMessageIsExact(t *testing.T) {
	for _, timeout := range []time.Duration{5, 30, 150, 1000, 30_000} {
		timeout *= time.Millisecond
		t.Run(timeout.String(), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 1)
				r := start(t, b, consumer.Config{
					Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: timeout,
					Handler: func(ctx context.Context, m *consumer.Message) error {
						if m.Runs > 0 {
							return nil
						}
						begin := time.Now()
						<-ctx.Done()
						if d := time.Since(begin); d < timeout || d > timeout+20*time.Millisecond {
							t.Errorf("the context ended after %v, want %v and 20 ms at most", d, timeout)
						}
						return ctx.Err()
					}})
				time.Sleep(2 * time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if failed := eventsOf[consumer.Failed](r.journal); len(failed) != 1 || failed[0].Class != "timeout" {
					t.Errorf("failures: %+v, want one timeout", failed)
				}
			})
		})
	}
}

// b22, II.8: a handler that never returns loses its message and its worker, not the consumer.
func TestStuckHandlerIsReplacedAndItsLateResultIsVoid(t *testing.T) {
	for name, result := range map[string]error{"success": nil, "failure": errors.New("late")} {
		t.Run(name, func(t *testing.T) { stuckHandlerIsReplaced(t, result) })
	}
}

func stuckHandlerIsReplaced(t *testing.T, result error) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 50)
		release := make(chan struct{})
		var l ledger
		var stuckOnce sync.Once
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: time.Second, StuckAfter: 2 * time.Second,
			Handler: func(_ context.Context, m *consumer.Message) error {
				stuck := false
				stuckOnce.Do(func() { stuck = true })
				if stuck {
					<-release
					return result
				}
				l.add(m)
				return nil
			}})
		time.Sleep(time.Minute)
		l.check(t, 50) // the stuck one too, by another run
		wantUnsettled(t, b, 0)
		e := eventsOf[consumer.Stuck](r.journal)
		if len(e) != 1 || !e[0].Replaced || !strings.Contains(e[0].Stack, "TestStuckHandler") || e[0].For < 3*time.Second {
			t.Errorf("stuck: %+v", e)
		}
		if n := r.Stats().Stuck; n != 1 {
			t.Errorf("%d stuck, want 1", n)
		}
		close(release)
		synctest.Wait()
		if n := r.Stats().Stuck; n != 0 {
			t.Errorf("%d stuck after the handler returned, want 0", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Handled != 50 || s.Failed != 1 || s.InFlight != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestStuckHandlersAreCapped(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 20)
		release := make(chan struct{})
		var calls atomic.Int32
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 2, Max: 2}, Timeout: time.Second, StuckAfter: time.Second, MaxStuck: 3, DrainTimeout: -1,
			Handler: func(context.Context, *consumer.Message) error { calls.Add(1); <-release; return nil },
		})
		time.Sleep(5 * time.Minute)
		if n := calls.Load(); n != 5 {
			t.Errorf("%d handlers were started, want 2 workers and 3 replacements", n)
		}
		if n := r.Stats().Stuck; n != 3 {
			t.Errorf("%d stuck, want MaxStuck 3", n)
		}
		if err := r.end(); !errors.Is(err, consumer.ErrStuck) {
			t.Errorf("Run returned %v, want ErrStuck", err)
		}
		close(release)
	})
}

// A stuck handler has returned, but an observer holds up its worker before the pool knows of that. One that is given up in this
// moment is replaced as soon as the pool does.
func TestStuckHandlerIsReplacedOnceThePoolKnows(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		onEach(t, func(t *testing.T, b *membroker.Broker) {
			produceKeyed(t, b, 20, 20)
			hang := []chan struct{}{make(chan struct{}), make(chan struct{})}
			var calls atomic.Int32
			var l ledger
			r := start(t, b, consumer.Config{
				Order: order, Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: time.Second, StuckAfter: time.Second, MaxStuck: 1,
				Observers: []consumer.Observer{func(e consumer.Event) {
					if h, ok := e.(consumer.Handled); ok && h.Took > time.Second {
						time.Sleep(5 * time.Second)
					}
				}},
				Handler: func(_ context.Context, m *consumer.Message) error {
					if n := int(calls.Add(1)); n <= len(hang) {
						<-hang[n-1]
					}
					l.add(m)
					return nil
				}})
			time.Sleep(3 * time.Second)
			close(hang[0]) // the other one has run for a second, and is given up in another
			time.Sleep(time.Minute)
			if s := r.Stats(); s.Stuck != 1 || s.Pool.Live != 1 || s.Pool.Busy != 0 || s.Handled < 19 {
				t.Errorf("%s: %d handled, %d stuck, %d of %d workers are busy", order, s.Handled, s.Stuck, s.Pool.Busy, s.Pool.Live)
			}
			close(hang[1])
			synctest.Wait() // it has returned, before the stop asks who has not
			if err := r.end(); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second) // the observer's
		})
	}
}

// A handler whose error says that its time was over is not told so twice.
func TestTimeoutIsSaidOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		r := start(t, b, consumer.Config{
			Timeout: time.Second, Retry: consumer.Retry{MaxAttempts: 1},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				return fmt.Errorf("warehouse: %w", context.Cause(ctx))
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		letters := b.Messages("dead")
		if len(letters) != 1 {
			t.Fatalf("%d dead letters", len(letters))
		}
		if why, _ := letters[0].Headers.Get(broker.HeaderError); string(why) != "warehouse: consumer: handler timed out" {
			t.Errorf("the letter says %q", why)
		}
	})
}
