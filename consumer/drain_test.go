package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/pool"
	"github.com/rs/zerolog"
)

func TestDrainFinishesWhatRunsAndGivesBackTheRest(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		var l ledger
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 4, Max: 4},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				select {
				case <-time.After(10 * time.Second):
				case <-ctx.Done():
					t.Error("a handler's context ended within DrainTimeout")
				}
				l.add(m)
				return nil
			}})
		time.Sleep(5 * time.Second)
		begin := time.Now()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 4*time.Second || d > 6*time.Second {
			t.Errorf("the drain took %v, want the 5 s that the handlers still needed", d)
		}
		l.check(t, 4)
		wantUnsettled(t, b, 96)

		var states []consumer.State
		for _, e := range eventsOf[consumer.StateChanged](r.journal) {
			states = append(states, e.State)
		}
		want := []consumer.State{consumer.Opening, consumer.Running, consumer.Stopping, consumer.Draining, consumer.Closing,
			consumer.Stopped}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}

		// What was given back comes at once, not after a lease, and with no attempt used up.
		next := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Runs != 0 {
				t.Errorf("a message that never ran comes with %d runs", m.Runs)
			}
			l.add(m)
			return nil
		}})
		time.Sleep(2 * time.Second)
		if err := next.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, 100)
		wantUnsettled(t, b, 0)
	})
}

// f06: the stop comes while a handler hangs.
func TestDrainTimeoutEndsContextsAndNeverDeadLetters(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		r := start(t, b, consumer.Config{
			DrainTimeout: 3 * time.Second,
			Retry:        consumer.Retry{MaxAttempts: 1},
			DeadLetter:   &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), consumer.ErrShutdown) {
					t.Errorf("cause %v, want ErrShutdown", context.Cause(ctx))
				}
				return consumer.Permanent(ctx.Err())
			}})
		time.Sleep(time.Second)
		begin := time.Now()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("the drain took %v, want DrainTimeout", d)
		}
		if n := len(b.Messages("dead")); n != 0 {
			t.Errorf("a cancelled handler's message was dead-lettered")
		}
		wantUnsettled(t, b, 1)
		if e := eventsOf[consumer.Failed](r.journal); len(e) != 0 {
			t.Errorf("a cancelled run was counted as failed: %+v", e)
		}
	})
}

func TestHandlerThatIgnoresItsContextDoesNotHoldTheStop(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		release := make(chan struct{})
		r := start(t, b, consumer.Config{
			DrainTimeout: 3 * time.Second, CancelGrace: time.Second,
			Handler: func(context.Context, *consumer.Message) error { <-release; return nil },
		})
		time.Sleep(time.Second)
		begin := time.Now()
		if err := r.end(); !errors.Is(err, consumer.ErrStuck) {
			t.Errorf("Run returned %v, want ErrStuck", err)
		} else if err.Error() != "consumer: handlers did not return: 1" {
			t.Errorf("Run returned %q, which does not say it once", err)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("the stop took %v, want DrainTimeout and CancelGrace", d)
		}
		wantUnsettled(t, b, 1)
		close(release)
		synctest.Wait()
		wantUnsettled(t, b, 1) // a late result is void
	})
}

// A worker that got no processor since it was handed something is no handler that hangs: what it was handed is in other hands.
func TestWorkerThatHasNotBegunIsNotStuck(t *testing.T) {
	for name, cfg := range ways {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages = 200
				produceKeyed(t, b, messages, 20)
				var l ledger
				var handed atomic.Int64
				release := make(chan struct{})
				cfg.Pool = consumer.Pool{Min: 4, Max: 4}
				r := startHeld(t, b, handling(cfg, func(_ context.Context, m *consumer.Message) error { l.add(m); return nil }), func() {
					if handed.Add(1) == 2 {
						<-release
					}
				})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Errorf("Run returned %v, and no handler hangs", err)
				}
				if e := eventsOf[consumer.Drained](r.journal); len(e) != 1 || e[0].Stuck != 0 {
					t.Errorf("told: %+v", e)
				}
				l.check(t, messages)
				wantUnsettled(t, b, 0)
				close(release)
				synctest.Wait()
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// Of the workers that did not return at a stop those are counted whose handlers hang, whether the watchdog had given them up or
// not, also when their claim was lost meanwhile, and no other.
func TestStopCountsTheHandlersThatHang(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  consumer.Config
		lost bool
	}{
		"running":         {},
		"lost":            {lost: true},
		"given up":        {cfg: consumer.Config{Timeout: time.Second, StuckAfter: time.Second, MaxStuck: 10}},
		"one given up":    {cfg: consumer.Config{Timeout: time.Second, StuckAfter: time.Second, MaxStuck: 1}},
		"keys in order":   {cfg: consumer.Config{Order: consumer.OrderKey, Timeout: time.Second, StuckAfter: time.Second, MaxStuck: 1}},
		"each as a batch": {cfg: consumer.Config{Batch: &consumer.Batch{Size: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				release := make(chan struct{})
				var handed, hanging atomic.Int64
				cfg := tc.cfg
				cfg.Pool, cfg.DrainTimeout, cfg.CancelGrace = consumer.Pool{Min: 6, Max: 6}, 3*time.Second, time.Second
				r := startHeld(t, b, handling(cfg, func(_ context.Context, m *consumer.Message) error {
					if string(m.Value) == "hangs" && hanging.Add(1) <= 2 {
						<-release
					}
					return nil
				}), func() {
					if handed.Add(1) == 1 {
						<-release
					}
				})
				for i, payload := range []string{"harmless", "hangs", "hangs", "harmless"} {
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{byte(i)}, Value: []byte(payload)}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(500 * time.Millisecond)
				if tc.lost {
					for p := range int32(2) {
						_ = b.Steal("group", "in", p) // of the broker without partitions there is none
					}
					time.Sleep(time.Second)
				}
				if err := r.end(); !errors.Is(err, consumer.ErrStuck) {
					t.Errorf("Run returned %v, want ErrStuck", err)
				}
				if e := eventsOf[consumer.Drained](r.journal); len(e) != 1 || e[0].Stuck != 2 {
					t.Errorf("told: %+v, want 2 that hang", e)
				}
				close(release)
			})
		})
	}
}

// Who stops it must learn which handlers hang, without a Timeout too: where they are, and with what message.
func TestStopNamesTheHandlersThatItLeavesBehind(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		release := make(chan struct{})
		var out bytes.Buffer
		r := start(t, b, consumer.Config{
			Name: "orders", Logger: zerolog.New(zerolog.SyncWriter(&out)), Pool: consumer.Pool{Max: 20,
				Policy: pool.Fixed()}, DrainTimeout: 3 * time.Second,
			Handler: func(ctx context.Context, m *consumer.Message) error {
				switch string(m.Value) {
				case "hangs":
					<-release
				case "obeys":
					<-ctx.Done()
				}
				return ctx.Err()
			},
		})
		hang := func(payload string, n int) {
			for range n {
				if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte(payload)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		produce(t, b, 3)
		hang("obeys", 1)
		hang("hangs", 1)
		hang("hangs", 11)
		if err := r.end(); !errors.Is(err, consumer.ErrStuck) {
			t.Errorf("Run returned %v, want ErrStuck", err)
		}
		told := eventsOf[consumer.Stuck](r.journal)
		if len(told) != 10 {
			t.Fatalf("%d handlers were told of, want 10 of 12", len(told))
		}
		for i, e := range told {
			if string(e.Message.Value) != "hangs" || e.Replaced || !strings.Contains(e.Stack, "TestStopNamesTheHandlers") {
				t.Errorf("message %q, replaced %v, stack:\n%s", e.Message.Value, e.Replaced, e.Stack)
			}
			// or as much later as its run was handed on by the watchdog: a second of the test's, DrainTimeout, CancelGrace
			want := 5 * time.Second
			if i == 0 {
				want = 6 * time.Second
			}
			if d := e.For - want; d < -300*time.Millisecond || d > 0 {
				t.Errorf("the handler of offset %d ran for %v, want %v", e.Message.Offset, e.For, want)
			}
		}
		if got := strings.Count(out.String(), `"event":"stuck"`); got != 10 || !strings.Contains(out.String(), `"stuck":12`) {
			t.Errorf("%d lines name a handler; the log:\n%s", got, out.String())
		}
		close(release)
		synctest.Wait()
	})
}

// II.1: what waits for its retry goes back with its runs, so that the next process does not begin anew.
func TestDrainGivesParkedMessagesBackWithTheirRuns(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 10, Backoff: consumer.Backoff{Initial: time.Minute, Max: time.Minute}},
			Handler: func(context.Context, *consumer.Message) error {
				return consumer.RetryAfter(errors.New("boom"), time.Minute)
			},
		})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 1)
		var runs atomic.Int32
		runs.Store(-1)
		next := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			runs.Store(m.Runs)
			return nil
		}})
		time.Sleep(2 * time.Minute)
		if err := next.end(); err != nil {
			t.Fatal(err)
		}
		if runs.Load() != 1 {
			t.Errorf("the next process sees %d runs, want 1", runs.Load())
		}
	})
}

// In an order by key a message without one is behind nothing, and nothing behind it: a stop gives it back with the rest of its
// delay, as without an order.
func TestDrainKeepsTheDelayOfWhatHasNoLane(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Leased: true, Lease: time.Minute})
				produce(t, b, 1)
				var runs []time.Duration
				begin := time.Now()
				cfg := consumer.Config{Order: order, Handler: func(context.Context, *consumer.Message) error {
					if runs = append(runs, time.Since(begin)); len(runs) == 1 {
						return consumer.RetryAfter(errors.New("429"), time.Hour)
					}
					return nil
				}}
				for _, lasts := range []time.Duration{time.Minute, 2 * time.Hour} {
					r := start(t, b, cfg)
					time.Sleep(lasts)
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
				}
				if len(runs) != 2 || runs[1] < time.Hour || runs[1] > time.Hour+time.Second {
					t.Errorf("runs after %v, want the second after an hour", runs)
				}
				wantUnsettled(t, b, 0)
			})
		})
	}
}

func TestSourceFailureEndsTheConsumerWithItsError(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 10)
		fatal := errors.New("the topic is gone")
		var l ledger
		r := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			time.Sleep(time.Second)
			l.add(m)
			return nil
		}})
		time.Sleep(500 * time.Millisecond)
		b.Fail(membroker.OpReceive, 1, fatal)
		produce(t, b, 1)
		<-r.done
		if !errors.Is(r.err, fatal) {
			t.Errorf("Run returned %v, want the source's error", r.err)
		}
		if s := r.Stats(); s.InFlight != 0 {
			t.Errorf("%d messages were never settled", s.InFlight)
		}
	})
}

// f13: the broker is not there at the start.
func TestOpenWaitsForTheBrokerOrFailsInTime(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		b.Down()
		r := start(t, b, consumer.Config{Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Minute)
		if r.Ready() {
			t.Error("ready without a broker")
		}
		b.Up()
		time.Sleep(10 * time.Second)
		if !r.Ready() {
			t.Error("not ready although the broker is up")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}

		b.Down()
		r = start(t, b, consumer.Config{OpenTimeout: 5 * time.Second,
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		<-r.done
		if !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("Run returned %v, want a deadline error", r.err)
		}
	})
}

func TestStopWhileOpeningIsClean(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		b.Down()
		r := start(t, b, consumer.Config{Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// Stops at many moments of a busy life: nothing is lost, nothing is handled twice, nothing is left.
func TestStopAtAnyMoment(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 3000)
		var l ledger
		for i := 0; b.Unsettled("group") > 0 || i == 0; i++ {
			if i > 500 {
				t.Fatal("no progress")
			}
			r := start(t, b, consumer.Config{
				Pool: consumer.Pool{Min: 1, Max: 16},
				Handler: func(_ context.Context, m *consumer.Message) error {
					if m.Runs == 0 && m.Offset%50 == 7 {
						return consumer.RetryAfter(errors.New("once"), 20*time.Millisecond)
					}
					time.Sleep(time.Duration(m.Offset%7) * time.Millisecond)
					l.add(m)
					return nil
				}})
			time.Sleep(time.Duration(i*3%97+5) * time.Millisecond)
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
			if s := r.Stats(); s.InFlight != 0 {
				t.Fatalf("%d messages were never settled", s.InFlight)
			}
		}
		l.check(t, 3000)
	})
}

// TestLeaving: a handler that only waits is told of a stop when it begins, while its context goes on, and what it puts off then
// goes back at once, no attempt counted.
func TestLeaving(t *testing.T) {
	if consumer.Leaving(t.Context()) != nil {
		t.Error("a context of no handler is leaving")
	}
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 4)
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 4, Max: 4},
			Handler: func(ctx context.Context, _ *consumer.Message) error {
				select {
				case <-consumer.Leaving(ctx):
				case <-ctx.Done():
					t.Error("a handler's context ended before it was told")
				}
				return consumer.Defer(0, nil)
			}})
		time.Sleep(time.Hour)
		if s := r.Stats(); s.Deferred != 0 {
			t.Errorf("%d were told before the stop", s.Deferred)
		}
		begin := time.Now()
		if err := r.end(); err != nil || time.Since(begin) > time.Second {
			t.Errorf("stopped after %v: %v", time.Since(begin), err)
		}
		wantUnsettled(t, b, 4)
		if failed := eventsOf[consumer.Failed](r.journal); len(failed) > 0 {
			t.Errorf("an attempt was counted: %+v", failed[0])
		}
	})
}

// TestLeavingAtRevocation: a handler that only waits is told when its partition goes to another process, and its message is there
// then at once, no attempt counted; those of other partitions are told nothing.
func TestLeavingAtRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["partitioned"])
		for partition := range 2 {
			if err := b.ProduceTo(partition, broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		var told [2]atomic.Int32
		waits := func(ctx context.Context, m *consumer.Message) error {
			select {
			case <-consumer.Leaving(ctx):
				if ctx.Err() != nil {
					t.Error("a handler's context ended before it was told")
				}
				told[m.Partition].Add(1)
			case <-ctx.Done():
				t.Error("a handler's context ended, and it was not told")
			}
			return consumer.Defer(0, nil)
		}
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 2, Max: 2}, Handler: waits})
		time.Sleep(time.Hour)
		if n := told[0].Load() + told[1].Load(); n != 0 {
			t.Fatalf("%d were told before anything moved", n)
		}
		var there atomic.Int32
		other := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			there.Add(1 << m.Partition)
			if m.Runs != 0 || m.Attempt > 1 {
				t.Errorf("an attempt was counted: %d runs, attempt %d", m.Runs, m.Attempt)
			}
			return nil
		}})
		time.Sleep(time.Hour) // its join moves a partition
		moved := 1 &^ int(there.Load()&1)
		if told[moved].Load() != 1 || there.Load() != 1<<moved || told[1-moved].Load() != 0 {
			t.Errorf("told were %d and %d, and partitions %02b came to the other", told[0].Load(), told[1].Load(), there.Load())
		}
		err := r.end()
		time.Sleep(time.Hour)
		if err := errors.Join(err, other.end()); err != nil || there.Load() != 3 {
			t.Errorf("partitions %02b came to the other in the end: %v", there.Load(), err)
		}
		if failed := eventsOf[consumer.Failed](r.journal); len(failed) > 0 {
			t.Errorf("an attempt was counted: %+v", failed[0])
		}
		wantUnsettled(t, b, 0)
	})
}

// TestStopBesideAHandlerThatWasGivenUp: a handler whose message was taken from it, for it ran beyond its limit, has CancelGrace
// at a stop as the others have.
func TestStopBesideAHandlerThatWasGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		var began atomic.Int32
		r := start(t, b, handling(consumer.Config{Timeout: time.Second, StuckAfter: time.Second},
			func(context.Context, *consumer.Message) error {
				if began.Add(1) == 1 {
					time.Sleep(2500 * time.Millisecond)
				}
				return nil
			}))
		produce(t, b, 1)
		time.Sleep(2200 * time.Millisecond)
		if got := began.Load(); got != 2 {
			t.Fatalf("it began %d times, want 2: the first was given up", got)
		}
		if err := r.end(); err != nil {
			t.Errorf("Run returned %v, though the handler returned within CancelGrace", err)
		}
		wantUnsettled(t, b, 0)
	})
}
