package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// askAfter is how long after its begin a handler asks: also before the watchdog's first look at a message that is alone with its
// worker, which comes late.
var askAfter = []time.Duration{
	0, 5 * time.Millisecond, 50 * time.Millisecond, 90 * time.Millisecond, 105 * time.Millisecond, 200 * time.Millisecond,
	600 * time.Millisecond, 800 * time.Millisecond,
}

// TestDeadline: a handler's context tells when Timeout ends it: whether it is asked at the beginning or later, the same each
// time, never later than the end, and at most 40 ms earlier; in batches, too.
func TestDeadline(t *testing.T) {
	for _, batch := range []bool{false, true} {
		onEach(t, func(t *testing.T, b *membroker.Broker) {
			produce(t, b, 20)
			var asked sync.Map
			handle := func(ctx context.Context, m *consumer.Message) error {
				if m.Runs > 0 {
					return nil
				}
				begun := time.Now()
				time.Sleep(askAfter[m.Offset%int64(len(askAfter))])
				end, ok := ctx.Deadline()
				asked.Store(string(m.Value), true)
				if early := begun.Add(time.Second).Sub(end); !ok || early > 0 || early < -40*time.Millisecond {
					t.Errorf("message %d asks %v after its begin: its time is over in %v, %v", m.Offset, time.Since(begun),
						time.Until(end), ok)
				}
				child, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				<-child.Done()
				if late := time.Since(end); late < 0 || late > 60*time.Millisecond {
					t.Errorf("message %d: it ends %v after its deadline", m.Offset, late)
				}
				if again, _ := ctx.Deadline(); !again.Equal(end) || !errors.Is(context.Cause(ctx), consumer.ErrTimeout) {
					t.Errorf("message %d: the deadline was %v, and is %v; cause %v", m.Offset, end, again, context.Cause(ctx))
				}
				return ctx.Err()
			}
			cfg := consumer.Config{Pool: consumer.Pool{Min: 2, Max: 2}, Timeout: time.Second, Handler: handle}
			if batch {
				cfg.Handler = nil
				cfg.Batch = &consumer.Batch{Size: 4, Handler: func(ctx context.Context, ms []*consumer.Message) error {
					return handle(ctx, ms[0])
				}}
			}
			r := start(t, b, cfg)
			time.Sleep(time.Minute)
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			n := 0
			asked.Range(func(any, any) bool { n++; return true })
			if want := 20; n < want && !batch {
				t.Errorf("%d messages asked, want %d", n, want)
			}
			wantUnsettled(t, b, 0)
		})
	}
}

// TestDeadlineIsOfOneMessage: what quick handlers in a row are told is of each, and nothing of it is left when they have
// returned: what they made of their context has ended. It would never end by itself otherwise, for it has no timer of its own.
func TestDeadlineIsOfOneMessage(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 300)
		var mu sync.Mutex
		var children []context.Context
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: 10 * time.Second,
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if ctx.Err() != nil {
					t.Errorf("message %d begins with a context that has ended", m.Offset)
				}
				begun := time.Now()
				if m.Offset%3 == 0 {
					time.Sleep(3 * time.Second)
				}
				if end, ok := ctx.Deadline(); m.Offset%2 == 0 && (!ok || end.Sub(begun) < 10*time.Second ||
					end.Sub(begun) > 10*time.Second+40*time.Millisecond) {
					t.Errorf("message %d has %v", m.Offset, end.Sub(begun))
				}
				if m.Offset%2 == 0 {
					child, cancel := context.WithTimeout(ctx, time.Hour)
					_ = cancel // it forgets to
					mu.Lock()
					children = append(children, child)
					mu.Unlock()
				}
				return nil
			}})
		time.Sleep(time.Hour / 2)
		mu.Lock()
		open := 0
		for _, c := range children {
			if c.Err() == nil {
				open++
			}
		}
		if len(children) == 0 || open > 0 {
			t.Errorf("%d of %d have not ended", open, len(children))
		}
		mu.Unlock()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// TestDeadlineHasAClass: a handler that minds the deadline by itself, as a connection does, is back before the context ends, and
// has timed out all the same.
func TestDeadlineHasAClass(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		r := start(t, b, consumer.Config{Timeout: time.Second,
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if m.Runs > 0 {
					return nil
				}
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end))
				return errors.New("i/o timeout")
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if all := eventsOf[consumer.Failed](r.journal); len(all) != 1 || all[0].Class != "timeout" {
			t.Errorf("failed: %+v", all)
		}
	})
}

// TestDeadlineWithoutTimeout: there is none.
func TestDeadlineWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produce(t, b, 1)
		r := start(t, b, consumer.Config{Handler: func(ctx context.Context, _ *consumer.Message) error {
			if end, ok := ctx.Deadline(); ok {
				t.Errorf("it has one: %v", end)
			}
			return nil
		}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
