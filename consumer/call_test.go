package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// What a consumer holds is told message by message: what is in handlers, since when, what waits for its next attempt and why, and
// of which claim all that is.
func TestWhatIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "empty": 2}, Lease: time.Minute})
		produce(t, b, 10)
		begin := time.Now()
		open := make(chan struct{})
		r := start(t, b, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in", "empty"}}), Pool: consumer.Pool{Min: 4, Max: 4},
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch string(m.Value) {
				case "0":
					return errors.New("no tea")
				case "1":
					return consumer.Defer(time.Minute, nil)
				}
				<-open
				return nil
			}})
		time.Sleep(10 * time.Second)

		parked := r.Parked(10)
		if len(parked) != 2 {
			t.Fatalf("parked: %+v", parked)
		}
		if p := parked[0]; !p.Deferred || p.Offset != 1 || p.Attempt != 1 || p.Due.Sub(begin) > time.Minute+time.Second {
			t.Errorf("deferred: %+v", p)
		}
		if p := parked[1]; p.Deferred || p.Topic != "in" || p.Offset != 0 || p.Attempt != 2 || p.Class != "error" ||
			p.Err.Error() != "no tea" ||
			p.Due.Sub(begin) < time.Hour {
			t.Errorf("failed: %+v", p)
		}
		if one := r.Parked(1); len(one) != 1 || one[0] != parked[0] {
			t.Errorf("the first of them: %+v", one)
		}
		calls := r.Calls(10)
		if len(calls) != 4 || len(r.Calls(1)) != 1 || len(r.Calls(-1)) != 0 {
			t.Fatalf("calls: %+v", calls)
		}
		for i, call := range calls {
			if call.Offset != int64(i+2) || call.Topic != "in" || call.Attempt != 1 || call.Messages != 1 || call.Stuck ||
				call.Since.Sub(begin) > time.Second {
				t.Errorf("call %d: %+v", i, call)
			}
		}
		claims := r.Claims()
		if len(claims) != 3 {
			t.Fatalf("claims: %+v", claims)
		}
		if c := claims[2]; c.Topic != "in" || c.Held != 10 || c.Running != 4 || c.Leaving != "" || c.Window < 0 ||
			c.Oldest.Before(begin) || c.Source != 0 {
			t.Errorf("claim: %+v", c)
		}
		for i, c := range claims[:2] {
			if c.Topic != "empty" || int(c.Partition) != i || c.Held != 0 || !c.Oldest.IsZero() {
				t.Errorf("claim of which nothing has come: %+v", c)
			}
		}
		r.stop()
		synctest.Wait()
		if c := r.Claims()[2]; c.Leaving != "drain" || c.Held != 4 || c.Running != 4 {
			t.Errorf("while it drains: %+v", c)
		}
		close(open)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(r.Claims())+len(r.Calls(1))+len(r.Parked(1)) != 0 {
			t.Errorf("at the end: %+v %+v %+v", r.Claims(), r.Calls(1), r.Parked(1))
		}
	})
}

// A handler that goes on after its claim has ended is told of until it returns, and named where a stop leaves it behind: that is
// the one that somebody looks for.
func TestCallOfALostClaimIsHere(t *testing.T) {
	onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		open, produced := make(chan struct{}), time.Now()
		r := start(t, b, consumer.Config{DrainTimeout: time.Second,
			Handler: func(context.Context, *consumer.Message) error { <-open; return nil }})
		time.Sleep(time.Second)
		if err := b.Steal("group", "in", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if calls := r.Calls(5); len(calls) != 1 || calls[0].Topic != "in" || time.Since(calls[0].Since) < 10*time.Second {
			t.Errorf("calls: %+v", calls)
		}
		if at := r.Oldest(); !at.Equal(produced) {
			t.Errorf("the oldest is of %v, with %d in flight, want %v", at, r.Stats().InFlight, produced)
		}
		if err := r.end(); !errors.Is(err, consumer.ErrStuck) {
			t.Errorf("Run: %v", err)
		}
		if e := eventsOf[consumer.Stuck](r.journal); len(e) != 1 || e[0].Message.Topic != "in" {
			t.Errorf("stuck: %+v", e)
		}
		close(open)
		synctest.Wait()
		if calls := r.Calls(5); len(calls) != 0 || !r.Oldest().IsZero() {
			t.Errorf("it has returned: %+v, %v", calls, r.Oldest())
		}
	})
}

// A handler that the watchdog gave up is told of until it returns, and the batch that a handler has as one call.
func TestStuckCallIsHere(t *testing.T) {
	for name, order := range map[string]consumer.Order{"unordered": consumer.OrderNone, "ordered": consumer.OrderPartition} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute})
				if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte("v")}); err != nil {
					t.Fatal(err)
				}
				open := make(chan struct{})
				r := start(t, b, consumer.Config{
					Order: order, Timeout: time.Second, StuckAfter: time.Second,
					Retry:   consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
					Handler: func(context.Context, *consumer.Message) error { <-open; return nil },
				})
				time.Sleep(1500 * time.Millisecond)
				if calls := r.Calls(5); len(calls) != 1 || calls[0].Stuck {
					t.Errorf("before it is stuck: %+v", calls)
				}
				time.Sleep(10 * time.Second)
				if calls := r.Calls(5); len(calls) != 1 || !calls[0].Stuck || calls[0].Offset != 0 ||
					time.Since(calls[0].Since) < 11*time.Second {
					t.Errorf("stuck: %+v", calls)
				}
				close(open)
				time.Sleep(time.Second)
				if calls := r.Calls(5); len(calls) != 0 {
					t.Errorf("it has returned: %+v", calls)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The messages of a batch are one call.
func TestBatchIsOneCall(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 6)
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 2, Max: 2},
			Batch: &consumer.Batch{Size: 3, Handler: func(context.Context, []*consumer.Message) error {
				time.Sleep(15 * time.Second)
				return nil
			}}})
		time.Sleep(10 * time.Second)
		calls, running := r.Calls(10), 0
		for _, c := range calls {
			running += c.Messages
		}
		for _, c := range r.Claims() {
			running -= c.Running
		}
		if len(calls) < 2 || calls[0].Messages != 3 || running != 0 {
			t.Errorf("calls: %+v, claims: %+v", calls, r.Claims())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A call that is put off handles nothing, and does not count as done: else handlers would seem to take half as long as they do,
// to the pool and to who scales by it.
func TestWhatIsPutOffIsNotDone(t *testing.T) {
	for name, cfg := range ways {
		if cfg.Batch != nil { // what waits for another batch counts as another arrival, too
			continue
		}
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages = 40
				produceKeyed(t, b, messages, messages)
				var mu sync.Mutex
				put := map[string]int{}
				r := start(t, b, handling(cfg, func(_ context.Context, m *consumer.Message) error {
					mu.Lock()
					put[string(m.Value)]++
					n := put[string(m.Value)]
					mu.Unlock()
					if n <= 3 {
						return consumer.Defer(time.Second, nil)
					}
					time.Sleep(100 * time.Millisecond)
					return nil
				}))
				time.Sleep(10 * time.Minute)
				if s := r.Stats(); s.Pool.Done != messages || s.Pool.In != messages || s.Handled != messages || s.Deferred != 3*messages {
					t.Errorf("of %d messages, put off %d times, %d are handled, and %d done", s.Pool.In, s.Deferred, s.Handled, s.Pool.Done)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
