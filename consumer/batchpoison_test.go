package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// One message of a batch makes its handler panic, or return one error for all. The others fail with it, again and again, but
// none of them becomes a dead letter because of that: its last attempt is a batch of its own.
func TestPoisonInBatchIsTheOnlyLetter(t *testing.T) {
	for name, fails := range map[string]func() error{
		"panics":            func() error { panic("poison") },
		"returns one error": func() error { return errors.New("poison") },
	} {
		for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderPartition} {
			t.Run(name+", order "+string(order), func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) { poisonInBatch(t, b, order, fails) })
			})
		}
	}
}

// What refuses a batch has enough to do: it is called again with a batch, however often it has refused, and not once for each
// message. A poison that comes after that takes no other message with it.
func TestRefusedBatchStaysABatch(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const size = 20
		for i := range size { // of one key, and so of one partition
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte(strconv.Itoa(i))}); err != nil {
				t.Fatal(err)
			}
		}
		var calls, small atomic.Int32 // of several workers
		r := start(t, b, consumer.Config{
			Retry:      consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: time.Second, Max: time.Second, Jitter: -1}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Size: size, Handler: func(_ context.Context, ms []*consumer.Message) error {
				switch n := calls.Add(1); {
				case n > 10:
					if slices.ContainsFunc(ms, func(m *consumer.Message) bool { return string(m.Value) == "7" }) {
						return errors.New("poison")
					}
					return nil
				case len(ms) < size:
					small.Add(1)
				}
				return consumer.Overloaded(errors.New("busy"), 0)
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if n := small.Load(); n > 0 {
			t.Errorf("%d of the first %d calls were with less than the batch that was refused", n, min(calls.Load(), 10))
		}
		wantUnsettled(t, b, 0)
		if got := out(b, "dead"); !slices.Equal(got, []string{"7"}) {
			t.Errorf("dead letters %q, want the one that is bad", got)
		}
	})
}

// What is refused again and again does not hold the whole budget: others are received beside it.
func TestRefusedBatchesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["leased"])
		var others atomic.Int32
		r := start(t, b, consumer.Config{
			Budget: broker.Budget{Messages: 40, Bytes: 1 << 20}, Pool: consumer.Pool{Max: 4},
			Retry:      consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: 5 * time.Second, Max: 5 * time.Second}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Size: 10, Linger: time.Millisecond, Handler: func(_ context.Context, ms []*consumer.Message) error {
				errs := make([]error, len(ms))
				for i, m := range ms {
					if string(m.Value) == "refused" {
						errs[i] = consumer.Overloaded(errors.New("busy"), 0)
					} else {
						others.Add(1)
					}
				}
				return &consumer.BatchError{Errs: errs}
			}}})
		for range 100 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("refused")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for range 20 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("other")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := others.Load(); n != 20 {
			t.Errorf("%d of 20 others were handled beside what is refused", n)
		}
		_ = r.end()
	})
}

// The same where each of its attempts is in another process.
func TestPoisonInBatchOfSeveralProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) { poisonInProcesses(t, b, consumer.OrderNone, 3) })
}

// The same in an order, where the first of a batch is taken for the bad one, until it is alone.
func TestPoisonInLaneOfSeveralProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) { poisonInProcesses(t, b, consumer.OrderPartition, 30) })
}

// poisonInProcesses runs one process after the other, each for one attempt.
func poisonInProcesses(t *testing.T, b *membroker.Broker, order consumer.Order, processes int) {
	const attempts = 3
	produce(t, b, 100)
	for range processes {
		r := start(t, b, consumer.Config{
			Order:      order,
			Retry:      consumer.Retry{MaxAttempts: attempts, Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Size: 5, ByKey: order != consumer.OrderNone,
				Handler: func(_ context.Context, ms []*consumer.Message) error {
					for _, m := range ms {
						if string(m.Value) == "7" {
							return errors.New("poison")
						}
					}
					return nil
				}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
	}
	wantUnsettled(t, b, 0)
	if got := out(b, "dead"); !slices.Equal(got, []string{"7"}) {
		t.Errorf("dead letters %q, want the one that is bad", got)
	}
}

// The same where time decides, and not the attempts: the last attempt is when the time is over.
func TestPoisonInBatchIsTheOnlyLetterByTime(t *testing.T) {
	for name, tc := range map[string]struct {
		order  consumer.Order
		byKey  bool
		giveUp time.Duration
	}{
		"after several attempts":                   {consumer.OrderNone, false, 10 * time.Second},
		"before the first backoff is over":         {consumer.OrderNone, false, 100 * time.Millisecond},
		"in an order":                              {consumer.OrderPartition, false, 10 * time.Second},
		"in an order and by key":                   {consumer.OrderKey, true, 10 * time.Second},
		"by key, before the first backoff is over": {consumer.OrderKey, true, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				for i := range 200 {
					o := broker.Outgoing{Topic: "in", Key: fmt.Appendf(nil, "k%d", i/20), Value: []byte(strconv.Itoa(i))}
					if err := b.Produce(o); err != nil {
						t.Fatal(err)
					}
				}
				var first, last time.Time
				r := start(t, b, consumer.Config{
					Order: tc.order,
					Retry: consumer.Retry{MaxAttempts: 100, GiveUpAfter: tc.giveUp,
						Backoff: consumer.Backoff{Initial: time.Second, Max: time.Second}},
					DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Batch: &consumer.Batch{Size: 20, Linger: 500 * time.Millisecond, ByKey: tc.byKey,
						Handler: func(_ context.Context, ms []*consumer.Message) error {
							if !slices.ContainsFunc(ms, func(m *consumer.Message) bool { return string(m.Value) == "7" }) {
								return nil
							}
							if last = time.Now(); first.IsZero() {
								first = last
							}
							return errors.New("poison")
						}}})
				time.Sleep(5 * time.Minute)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				wantUnsettled(t, b, 0)
				if got := out(b, "dead"); !slices.Equal(got, []string{"7"}) {
					t.Errorf("dead letters %q, want the one that is bad", got)
				}
				if tried := last.Sub(first); tried > tc.giveUp+time.Second {
					t.Errorf("tried for %v, want %v", tried, tc.giveUp)
				}
			})
		})
	}
}

func poisonInBatch(t *testing.T, b *membroker.Broker, order consumer.Order, fails func() error) {
	const messages, size, attempts = 200, 50, 3
	produce(t, b, messages)
	var mu sync.Mutex
	runs, together := map[string]int{}, 0
	r := start(t, b, consumer.Config{
		Order:      order,
		Retry:      consumer.Retry{MaxAttempts: attempts, Backoff: consumer.Backoff{Initial: time.Second, Jitter: -1}},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Batch: &consumer.Batch{Size: size, Handler: func(_ context.Context, ms []*consumer.Message) error {
			mu.Lock()
			poisoned := false
			for _, m := range ms {
				runs[string(m.Value)]++
				poisoned = poisoned || string(m.Value) == "7"
			}
			together = max(together, len(ms))
			mu.Unlock()
			if poisoned {
				return fails()
			}
			return nil
		}}})
	time.Sleep(5 * time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	wantUnsettled(t, b, 0)
	if got := out(b, "dead"); !slices.Equal(got, []string{"7"}) {
		t.Errorf("dead letters %q, want the one that is bad", got)
	}
	for v, n := range runs {
		if n > attempts {
			t.Errorf("message %s ran %d times", v, n)
		}
	}
	if len(runs) != messages || order == consumer.OrderNone && together != size {
		t.Errorf("%d messages ran, up to %d together", len(runs), together)
	}
}
