package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// Each message has its own outcome: acked, retried with its runs, dead-lettered, skipped, deferred; and too large ones are no
// part of it.
func TestBatchOutcomes(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i, v := range []string{"ok", "error", "permanent", "skip", "defer", "large" + strings.Repeat("x", 100), "ok"} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{byte(i)}, Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		calls := map[string]int{}
		r := start(t, b, consumer.Config{
			MaxMessageBytes: 50, Retry: consumer.Retry{MaxAttempts: 2},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Handler: func(_ context.Context, ms []*consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				e := &consumer.BatchError{Errs: make([]error, len(ms))}
				for i, m := range ms {
					calls[string(m.Value)]++
					switch string(m.Value) {
					case "error":
						e.Errs[i] = errors.New("error")
					case "permanent":
						e.Errs[i] = consumer.Permanent(errors.New("permanent"))
					case "skip":
						e.Errs[i] = consumer.Skip("not wanted")
					case "defer":
						if calls["defer"] < 5 {
							e.Errs[i] = consumer.Defer(time.Second, nil)
						}
					}
				}
				return e
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if calls["ok"] != 2 || calls["error"] != 2 || calls["permanent"] != 1 || calls["skip"] != 1 || calls["defer"] != 5 ||
			len(calls) != 5 {
			t.Errorf("calls %v", calls)
		}
		wantUnsettled(t, b, 0)
		s := r.Stats()
		if s.Handled != 3 || s.Skipped != 1 || s.DeadLettered != 3 || s.Retried != 1 || s.Deferred != 4 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
		for _, m := range b.Messages("dead") {
			if v, _ := m.Headers.Get(broker.HeaderErrorClass); string(m.Value) == "error" && string(v) != "error" {
				t.Errorf("%s: class %s", m.Value, v)
			}
		}
	})
}

// A plain error, a panic, Goexit and a BatchError of the wrong length fail the whole batch; nothing is lost.
func TestBatchFailures(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("no") },
		"panic":  func() error { panic("no") },
		"length": func() error { return &consumer.BatchError{Errs: []error{nil}} },
		"goexit": nil,
		"length, with words": func() error {
			return &consumer.BatchError{Errs: append(make([]error, 20), consumer.Skip("one of them"))}
		},
		"joined": func() error { // it was content with each, and then the file could not be closed
			return fmt.Errorf("writing: %w", errors.Join(&consumer.BatchError{Errs: make([]error, 20)}, errors.New("disk is full")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 200)
				var l ledger
				r := start(t, b, consumer.Config{Batch: &consumer.Batch{Size: 20,
					Handler: func(_ context.Context, ms []*consumer.Message) error {
						if ms[0].Runs == 0 {
							if fail == nil {
								runtime.Goexit()
							}
							return fail()
						}
						for _, m := range ms {
							l.add(m)
						}
						return nil
					}}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				l.check(t, 200)
				wantUnsettled(t, b, 0)
				if s := r.Stats(); s.Failed < 200 || s.Handled != 200 { // what fails may come again beside what has not come yet
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// A stuck batch handler loses its worker and its batch; the messages come again.
func TestBatchStuck(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		var l ledger
		release := make(chan struct{})
		r := start(t, b, consumer.Config{Timeout: time.Second, StuckAfter: time.Second, Pool: consumer.Pool{Max: 2},
			Batch: &consumer.Batch{Size: 10, Handler: func(_ context.Context, ms []*consumer.Message) error {
				for _, m := range ms {
					if string(m.Value) == "37" && m.Runs == 0 {
						<-release
						return nil
					}
				}
				for _, m := range ms {
					l.add(m)
				}
				return nil
			}}})
		time.Sleep(20 * time.Second)
		l.check(t, 100)
		if s := r.Stats(); s.Stuck != 1 {
			t.Errorf("stats %+v", s)
		}
		close(release)
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Stuck != 0 || s.Handled != 100 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// The guard keeps messages from a batch handler, all of a batch if need be, and none of them is acked for that.
func TestOversizeInBatches(t *testing.T) {
	for name, large := range map[string]func(i int) bool{
		"all":  func(int) bool { return true },
		"some": func(i int) bool { return i%3 > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages = 30
				good := 0
				for i := range messages {
					value := make([]byte, 2000)
					if !large(i) {
						value = value[:10]
						good++
					}
					if err := b.Produce(broker.Outgoing{Topic: "in", Value: value}); err != nil {
						t.Fatal(err)
					}
				}
				var seen atomic.Int64
				r := start(t, b, consumer.Config{
					MaxMessageBytes: 1000, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Batch: &consumer.Batch{Size: 10, Handler: func(_ context.Context, ms []*consumer.Message) error {
						seen.Add(int64(len(ms)))
						return nil
					}}})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if dead := len(b.Messages("dead")); seen.Load() != int64(good) || dead != messages-good {
					t.Errorf("%d handled and %d dead letters, want %d and %d", seen.Load(), dead, good, messages-good)
				}
				wantUnsettled(t, b, 0)
			})
		})
	}
}

// A lateSource says of each ack of many what it is told to.
type lateSource struct {
	broker.Source
	err error
}

func (s *lateSource) Ack(c *broker.Claim, tokens []uint64) error {
	if err := s.Source.Ack(c, tokens); err != nil || len(tokens) == 1 {
		return err
	}
	return s.err
}

// Of a batch of which some settles came too late, these are counted as lost.
func TestLostOfABatch(t *testing.T) {
	for name, of := range map[string]struct {
		err  error
		lost int64
	}{
		"some":           {&broker.LostError{N: 3}, 3},
		"told as many":   {fmt.Errorf("too late: %w", &broker.LostError{N: 1 << 20}), 10},
		"unknown":        {broker.ErrLost, 10},
		"settled before": {broker.ErrSettled, 0},
		"of its own":     {errors.New("no"), 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produce(t, b, 10)
				r := start(t, b, consumer.Config{
					Source: &lateSource{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), of.err},
					Batch:  &consumer.Batch{Size: 10, Handler: func(context.Context, []*consumer.Message) error { return nil }},
				})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				told := eventsOf[consumer.Lost](r.journal)
				if s := r.Stats(); s.Lost != of.lost || len(told) != 1 || told[0].N != int(of.lost) {
					t.Errorf("%d lost, told %v, want %d", s.Lost, told, of.lost)
				}
			})
		})
	}
}
