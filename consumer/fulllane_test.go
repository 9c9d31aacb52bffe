package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// II.3: a key that fails for ever, with a fifth of the traffic. Its lane fills; what becomes of it is the policy's, and others go
// on.
func TestPoisonedKey(t *testing.T) {
	for _, full := range []consumer.LanePolicy{consumer.LaneBlock, consumer.LaneDeadLetter} {
		t.Run(string(full), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages, limit = 5000, 50
				for i := range messages {
					key := fmt.Sprint("k", i%200)
					if i%5 == 0 {
						key = "poison"
					}
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte(key)}); err != nil {
						t.Fatal(err)
					}
				}
				var good, poisoned, crowd atomic.Int64
				r := start(t, b, consumer.Config{
					Order: consumer.OrderKey, Lane: consumer.Lane{Limit: limit, Full: full}, Budget: broker.Budget{Messages: 400},
					Retry:      consumer.Retry{MaxAttempts: 1000},
					DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if string(m.Key) == "poison" {
							poisoned.Add(1)
							if full == consumer.LaneDeadLetter {
								return consumer.RetryAfter(errors.New("poison"), time.Hour)
							}
							return errors.New("poison")
						}
						good.Add(1)
						return nil
					}})
				for range 6000 {
					time.Sleep(10 * time.Millisecond)
					crowd.Store(max(crowd.Load(), int64(r.Stats().Waiting)))
				}
				events := eventsOf[consumer.LaneFull](r.journal)
				s := r.Stats()
				if len(events) == 0 || events[0].Waiting < limit {
					t.Errorf("events %+v", events)
				}
				if crowd.Load() > 2*(limit+128) { // in two partitions
					t.Errorf("%d waited, the limit is %d", crowd.Load(), limit)
				}
				switch full {
				case consumer.LaneDeadLetter:
					if good.Load() != messages*4/5 || len(b.Messages("dead")) < messages/5-2*limit {
						t.Errorf("%d good ones handled, %d dead letters: %+v", good.Load(), len(b.Messages("dead")), s)
					}
				case consumer.LaneBlock:
					if n := good.Load(); n == messages*4/5 || n < limit*4 || len(b.Messages("dead")) > 0 {
						t.Errorf("%d good ones handled, %d dead letters: %+v", good.Load(), len(b.Messages("dead")), s)
					}
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if n := r.Stats().InFlight; n != 0 {
					t.Errorf("%d messages were never settled", n)
				}
			})
		})
	}
}

// A lane that is full for long has no more in it for that: else one key would have the whole budget in the end, and no other
// partition any of it.
func TestFullLaneStaysWithinItsLimit(t *testing.T) {
	onPartitions(t, 2, func(t *testing.T, b *membroker.Broker) {
		const limit, chunk = 8, 8
		poison := broker.Outgoing{Topic: "in", Key: []byte("poison"), Value: []byte("v")}
		if err := b.Fill(0, 500, poison); err != nil {
			t.Fatal(err)
		}
		var good atomic.Int64
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: limit}, Chunk: chunk,
			Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 32},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Partition == 0 {
					return errors.New("poison")
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(time.Hour)
		if s := r.Stats(); s.Waiting >= limit+chunk || s.FullLanes != 1 {
			t.Errorf("%d wait, the limit is %d; %d lanes are full", s.Waiting, limit, s.FullLanes)
		}
		if err := b.ProduceTo(1, broker.Outgoing{Topic: "in", Key: []byte("good"), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if good.Load() != 1 {
			t.Errorf("%d of the other partition were handled, want 1: %+v", good.Load(), r.Stats())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// What fails in a lane that became full while it ran is a dead letter as what waited for its next attempt is then.
func TestFailsInAFullLane(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produceKeyed(t, b, 60, 1)
		first := true
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 20, Full: consumer.LaneDeadLetter},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(context.Context, *consumer.Message) error {
				if !first {
					return nil
				}
				first = false
				time.Sleep(10 * time.Second) // the lane fills behind it
				return consumer.RetryAfter(errors.New("bad"), time.Hour)
			}})
		time.Sleep(20 * time.Second)
		if len(eventsOf[consumer.LaneFull](r.journal)) == 0 {
			t.Fatal("the lane was never full: nothing was shown")
		}
		if n := len(b.Messages("dead")); n != 1 {
			t.Errorf("%d dead letters, want that of the one that failed", n)
		}
		if e := eventsOf[consumer.Failed](r.journal); len(e) != 1 || e[0].Verdict != consumer.VerdictDeadLetter {
			t.Errorf("failures: %+v", e)
		}
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A full lane that empties lets its partition go on.
func TestFullLaneThaws(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produceKeyed(t, b, 3000, 3)
		book := newOrderBook()
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 20},
			Handler: book.handle(func(*consumer.Message) error {
				time.Sleep(time.Millisecond)
				return nil
			})})
		time.Sleep(2 * time.Minute)
		if len(eventsOf[consumer.LaneFull](r.journal)) == 0 {
			t.Error("no lane was ever full")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, 3000, 3)
	})
}

// A lane that is full because its first message fails again and again is no reason to restart.
func TestFullLaneIsHealthy(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produceKeyed(t, b, 3000, 2)
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 20},
			Retry:   consumer.Retry{MaxAttempts: 1 << 20},
			Handler: func(context.Context, *consumer.Message) error { return errors.New("never") }})
		r.wantHealthy(t, "a key fails", 10*time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A lane is full of messages of a topic that was made anew, behind one of the old topic. When that is done with, the claim goes
// on that is held: the new one, and not that of the message.
func TestFullLaneOfATopicMadeAnewThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute})
		produceKeyed(t, b, 1, 1)
		var handled atomic.Int64
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 2},
			Handler: func(context.Context, *consumer.Message) error {
				if handled.Add(1) == 1 {
					time.Sleep(time.Second) // whatever becomes of its context
				}
				return nil
			}})
		synctest.Wait()
		if err := b.Recreate("in"); err != nil {
			t.Fatal(err)
		}
		produceKeyed(t, b, 2, 1)
		time.Sleep(2 * time.Second)
		produceKeyed(t, b, 1, 1)
		time.Sleep(5 * time.Second)
		if n := handled.Load(); n != 4 {
			t.Errorf("%d of 4 messages were handled", n)
		}
		if len(eventsOf[consumer.LaneFull](r.journal)) == 0 {
			t.Error("no lane was ever full")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Of many sources each has a small part of the budget. A lane is full before it has all of it: else a key that fails would stop
// all others of its source for ever.
func TestPoisonedKeyOfOneOfManySources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{})
		for _, key := range strings.Split(strings.Repeat("poison ", 20)+"good", " ") {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
		var sources []consumer.Input
		for i := range 10 {
			topic := "in"
			if i > 0 {
				topic = fmt.Sprint("in", i)
			}
			sources = append(sources, consumer.Input{Source: b.Source(membroker.SourceConfig{Topics: []string{topic}, Group: topic})})
		}
		var good atomic.Int64
		r := start(t, b, consumer.Config{
			Sources: sources, Order: consumer.OrderKey, Lane: consumer.Lane{Full: consumer.LaneDeadLetter},
			Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 40}, Retry: consumer.Retry{MaxAttempts: 1000},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Key) == "poison" {
					return consumer.RetryAfter(errors.New("poison"), time.Hour)
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(time.Minute)
		if n := good.Load(); n != 1 {
			t.Errorf("the message of another key was handled %d times, with %d dead letters: %+v", n, len(b.Messages("dead")), r.Stats())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A lane that can never be full is refused where that has to make room.
func TestLaneIsFullBeforeTheBudget(t *testing.T) {
	b := membroker.New(membroker.Config{})
	cfg := consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Order: consumer.OrderKey,
		Lane: consumer.Lane{Limit: 100, Full: consumer.LaneDeadLetter}, Budget: broker.Budget{Messages: 100},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Handler:    func(context.Context, *consumer.Message) error { return nil },
	}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "Lane.Limit is 100") {
		t.Errorf("a limit that is never reached: %v", err)
	}
	cfg.Lane.Limit = 99
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// A lane is full, and is so no more before its claim is held: the claim goes on at once, and not when the hold has run out.
func TestALaneThawsBeforeItsClaimIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var handled, full atomic.Int64
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 4}, Pool: consumer.Pool{Max: 16},
			Observers: []consumer.Observer{func(e consumer.Event) {
				if _, is := e.(consumer.LaneFull); is {
					full.Add(1)
					time.Sleep(time.Second) // all that waits is handled meanwhile
				}
			}},
			Handler: func(context.Context, *consumer.Message) error {
				time.Sleep(10 * time.Millisecond)
				handled.Add(1)
				return nil
			}})
		for range 3 {
			for range 8 {
				if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("key")}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second)
		}
		if n := handled.Load(); n != 24 || full.Load() < 2 {
			t.Errorf("%d of 24 handled, and a lane was full %d times", n, full.Load())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The figures say of what is in hand what it waits for: the one before it, a limit, or its next attempt.
func TestFiguresTellWhatWaits(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for _, key := range append(slices.Repeat([]string{"slow"}, 40), "limited", "bad") {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
		var limited atomic.Bool
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 39}, Retry: consumer.Retry{MaxAttempts: 2},
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch string(m.Key) {
				case "slow":
					time.Sleep(time.Minute)
				case "bad":
					if m.Runs == 0 {
						return consumer.RetryAfter(errors.New("bad"), time.Hour)
					}
				case "limited":
					if limited.CompareAndSwap(false, true) {
						return consumer.Defer(time.Hour, nil)
					}
				}
				return nil
			}})
		time.Sleep(30 * time.Second)
		s := r.Stats()
		if s.Claims == 0 || s.FullLanes != 1 || s.Waiting != 39 || s.PutOff != 1 || s.Parked != s.PutOff+1 && s.Parked != s.PutOff {
			t.Errorf("%d claims, %d full lanes, %d wait in lanes, %d parked, %d of them put off", s.Claims, s.FullLanes, s.Waiting,
				s.Parked, s.PutOff)
		}
		events := eventsOf[consumer.LaneFull](r.journal)
		if len(events) != 1 || events[0].First == nil || string(events[0].First.Key) != "slow" {
			t.Errorf("told %+v, want the first that waits behind the slow one", events)
		}
		time.Sleep(3 * time.Hour)
		if s := r.Stats(); s.FullLanes != 0 || s.PutOff != 0 || s.Parked != 0 || s.InFlight != 0 {
			t.Errorf("in the end %d full lanes, %d put off of %d parked, %d in flight", s.FullLanes, s.PutOff, s.Parked, s.InFlight)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := r.Stats().Claims; n != 0 {
			t.Errorf("%d claims after its end", n)
		}
	})
}

// What waited in a full lane under a claim that has ended makes room as what was handled does: the next claim, which was held for
// that lane, goes on at once.
func TestFullLaneOfAnEndedClaimThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
		produceKeyed(t, b, 20, 2)
		var handled, parked, held atomic.Bool
		var new atomic.Int64
		slow, look := make(chan struct{}), make(chan struct{})
		r := start(t, b, consumer.Config{Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 8}, Pool: consumer.Pool{Min: 4},
			Observers: []consumer.Observer{func(e consumer.Event) {
				if _, back := e.(consumer.GivenBack); back && held.CompareAndSwap(false, true) {
					<-look // what is parked goes back before what waits in the other lane
				}
			}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch {
				case string(m.Key) == "k0" && handled.CompareAndSwap(false, true):
					<-slow
				case string(m.Key) == "k1" && parked.CompareAndSwap(false, true):
					return consumer.RetryAfter(errors.New("later"), time.Hour)
				default:
					new.Add(1)
				}
				return nil
			}})
		time.Sleep(time.Second)
		if err := b.Recreate("in"); err != nil {
			t.Fatal(err)
		}
		produceKeyed(t, b, 2, 2)
		time.Sleep(time.Second)
		if s := r.Stats(); s.FullLanes == 0 || s.Received != 22 {
			t.Errorf("no lane was full when the new claim's messages came: %+v", s)
		}
		close(look)
		synctest.Wait()
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k2")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := new.Load(); n != 2 {
			t.Errorf("%d of the new messages were handled after a second, want the 2 that wait for nothing", n)
		}
		close(slow)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLaneIsFullByWhatFailed: messages come into a lane while those before them run as a batch. The first of the batch fails, and
// the others wait in the lane again: by these it reaches its limit, and that is told.
func TestLaneIsFullByWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, first, more = 10, 9, 6
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produce := func(n int) {
			for range n {
				if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("a"), Value: []byte("x")}); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: limit},
			Batch: &consumer.Batch{Size: first, ByKey: true, Handler: func(_ context.Context, ms []*consumer.Message) error {
				if len(ms) < first {
					return nil
				}
				produce(more)
				time.Sleep(time.Second)
				errs := make([]error, len(ms))
				errs[0] = consumer.RetryAfter(errors.New("not now"), time.Hour)
				return &consumer.BatchError{Errs: errs}
			}}})
		produce(first)
		time.Sleep(time.Minute)
		events := eventsOf[consumer.LaneFull](r.journal)
		if len(events) != 1 || events[0].Waiting != first-1+more || events[0].First.Offset != 1 {
			t.Errorf("told %+v, want that %d wait, message 1 first", events, first-1+more)
		}
		if s := r.Stats(); s.Waiting != first-1+more {
			t.Errorf("%d wait, want %d", s.Waiting, first-1+more)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
