package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// onPartitions runs a test on a broker whose claims come and go.
func onPartitions(t *testing.T, partitions int, f func(t *testing.T, b *membroker.Broker)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, membroker.New(membroker.Config{Topics: map[string]int{"in": partitions}, Lease: time.Minute}))
	})
}

// II.7: what is queued of a revoked claim goes back at once, while its running handlers go on and are acked.
func TestRevocationReachesWhatIsQueued(t *testing.T) {
	onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		var l ledger
		slow := start(t, b, consumer.Config{
			Pool:   consumer.Pool{Min: 2, Max: 2},
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, RevokeWait: 30 * time.Second}),
			Handler: func(ctx context.Context, m *consumer.Message) error {
				select {
				case <-time.After(10 * time.Second):
					l.add(m)
					return nil
				case <-ctx.Done():
					t.Errorf("context ended while revoking: %v", context.Cause(ctx))
					return ctx.Err()
				}
			}})
		time.Sleep(5 * time.Second)
		begin := time.Now()
		var first atomic.Int64
		quick := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			first.CompareAndSwap(0, int64(time.Since(begin)))
			l.add(m)
			return nil
		}})
		time.Sleep(100 * time.Millisecond)
		if n := slow.Stats().InFlight; n > 2 {
			if err := b.Revoke("group", "in", 0); err != nil { // the join did not move it
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if n := slow.Stats().InFlight; n != 2 {
			t.Errorf("%d messages are still held, want the 2 that run", n)
		}
		time.Sleep(20 * time.Second)
		if d := time.Duration(first.Load()); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("the next owner began after %v, want when the running handlers were done", d)
		}
		l.check(t, 100)
		wantUnsettled(t, b, 0)
		if e := eventsOf[consumer.GivenBack](slow.journal); len(e) == 0 || e[0].Reason != "revoked" {
			t.Errorf("given back: %+v", e)
		}
		for _, r := range []*running{slow, quick} {
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestStolenClaimEndsContextsAndLateAckIsLost(t *testing.T) {
	onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var cause atomic.Value
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Retry:      consumer.Retry{MaxAttempts: 1},
			Handler: func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				cause.Store(context.Cause(ctx))
				return nil
			}})
		time.Sleep(time.Second)
		if err := b.Steal("group", "in", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err, _ := cause.Load().(error); !errors.Is(err, broker.ErrLost) {
			t.Errorf("the context's cause is %v, want broker.ErrLost", err)
		}
		if e := eventsOf[consumer.Lost](r.journal); len(e) != 1 || e[0].N != 1 || !errors.Is(e[0].Err, broker.ErrLost) {
			t.Errorf("lost: %+v", e)
		}
		if n := len(b.Messages("dead")); n != 0 {
			t.Errorf("%d dead letters of a lost claim", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 1)
	})
}

// What a handler gives up because its context has ended goes back, and the event says why it has.
func TestCancelledHandlersSayWhy(t *testing.T) {
	for reason, end := range map[string]func(*testing.T, *membroker.Broker, *running){
		"lost": func(t *testing.T, b *membroker.Broker, _ *running) {
			if err := b.Steal("group", "in", 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		},
		"shutdown": func(t *testing.T, _ *membroker.Broker, r *running) {
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 1)
				var calls atomic.Int32
				r := start(t, b, consumer.Config{DrainTimeout: time.Second, Handler: func(ctx context.Context, _ *consumer.Message) error {
					if calls.Add(1) > 1 {
						return nil
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}})
				time.Sleep(time.Second)
				end(t, b, r)
				if e := eventsOf[consumer.GivenBack](r.journal); len(e) != 1 || e[0].N != 1 || e[0].Reason != reason {
					t.Errorf("given back: %+v, want one for the reason %q", e, reason)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A message parked here when its claim is revoked goes back with its runs.
func TestRevocationGivesParkedMessagesBack(t *testing.T) {
	onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 5)
		var again atomic.Int32
		r := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Runs == 1 {
				again.Add(1)
			}
			return consumer.RetryAfter(errors.New("boom"), 30*time.Second)
		}})
		time.Sleep(time.Second)
		if n := r.Stats().Parked; n != 5 {
			t.Fatalf("%d messages are parked, want 5", n)
		}
		if err := b.Revoke("group", "in", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if e := eventsOf[consumer.GivenBack](r.journal); len(e) != 1 || e[0].N != 5 || e[0].Reason != "revoked" {
			t.Errorf("given back: %+v", e)
		}
		if n := again.Load(); n != 5 { // the next owner is the same again, long before the 30 s are over
			t.Errorf("%d came to the next owner with their one run, want 5", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 5)
	})
}

// Members come and go while handlers work, fail and die: nothing is lost, and nothing stays held.
func TestChurnOfClaims(t *testing.T) {
	onPartitions(t, 8, func(t *testing.T, b *membroker.Broker) {
		const messages = 4000
		produce(t, b, messages)
		var l ledger
		handler := func(ctx context.Context, m *consumer.Message) error {
			if m.Runs == 0 && m.Offset%41 == 3 {
				return errors.New("once")
			}
			select {
			case <-time.After(time.Duration(m.Offset%11) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			l.add(m)
			return nil
		}
		cfg := consumer.Config{Pool: consumer.Pool{Max: 8}, Handler: handler,
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: 50 * time.Millisecond}}}
		steady := start(t, b, cfg)
		for i := 0; i == 0 || b.Unsettled("group") > 0; i++ {
			if i > 1000 {
				t.Fatalf("%d of %d messages unsettled: no progress", b.Unsettled("group"), messages)
			}
			r := start(t, b, cfg)
			time.Sleep(60 * time.Millisecond)
			_ = b.Bounce("group", "in", int32(i%8)) // may have no owner in this moment
			time.Sleep(60 * time.Millisecond)
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			if n := r.Stats().InFlight; n != 0 {
				t.Fatalf("%d messages were never settled", n)
			}
		}
		if err := steady.end(); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.n) != messages {
			t.Errorf("%d of %d messages were handled", len(l.n), messages)
		}
	})
}

// Slow handlers hoard nothing: what the first replica cannot start soon is there for the second.
func TestReplicasShareABacklogOfSlowWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"in": 1}, Lease: time.Minute})
		produce(t, b, 1000)
		var counts [2]atomic.Int32
		replica := func(i int) *running {
			return start(t, b, consumer.Config{
				Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Prefetch: 8}),
				Pool:   consumer.Pool{Min: 8, Max: 8},
				Handler: func(context.Context, *consumer.Message) error {
					time.Sleep(time.Second)
					counts[i].Add(1)
					return nil
				}})
		}
		first := replica(0)
		time.Sleep(5 * time.Second)
		second := replica(1)
		time.Sleep(2 * time.Minute)
		if a, b := counts[0].Load(), counts[1].Load(); a+b != 1000 || b < 400 {
			t.Errorf("the first replica handled %d, the second, 5 s later, %d", a, b)
		}
		for _, r := range []*running{first, second} {
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

// What waits for the end of claims is one goroutine, however many they are.
func TestManyClaimsNeedNoGoroutines(t *testing.T) {
	const partitions = 500
	onPartitions(t, partitions, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 4*partitions)
		var l ledger
		of := consumer.Config{Pool: consumer.Pool{Min: 1, Max: 4}, Handler: func(_ context.Context, m *consumer.Message) error {
			l.add(m)
			return nil
		}}
		before := runtime.NumGoroutine()
		first := start(t, b, of)
		time.Sleep(time.Second)
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d goroutines for %d partitions", n, partitions)
		}
		second := start(t, b, of) // half of them are revoked
		time.Sleep(time.Second)
		produce(t, b, 4*partitions)
		time.Sleep(time.Second)
		if n := runtime.NumGoroutine() - before; n > 100 {
			t.Errorf("%d goroutines for %d partitions of two consumers", n, partitions)
		}
		if err := errors.Join(first.end(), second.end()); err != nil {
			t.Error(err)
		}
	})
}
