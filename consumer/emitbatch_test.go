package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A message that fails in a batch for all of which something was emitted uses up its attempts, whatever stands before it: with an
// order, too, where those are handled again before it.
func TestPoisonInEmittingBatch(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		for _, byKey := range []bool{false, true} {
			for _, poison := range []byte{0, 2, 4} {
				t.Run(fmt.Sprintf("%s, by key %v, %d", order, byKey, poison), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { poisonInEmittingBatch(t, order, byKey, poison) })
				})
				t.Run(fmt.Sprintf("%s, by key %v, %d is put off", order, byKey, poison), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { putOffInEmittingBatch(t, order, byKey, poison) })
				})
			}
		}
	}
}

func poisonInEmittingBatch(t *testing.T, order consumer.Order, byKey bool, poison byte) {
	const messages, most = 5, 100
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}})
	var mu sync.Mutex
	var good []byte
	runs := 0
	handler := func(ctx context.Context, ms []*consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if runs++; runs > most { // it would go on for ever, and take no time
			return nil
		}
		if err := consumer.Emit(ctx, broker.Outgoing{Topic: "out"}); err != nil {
			return err
		}
		errs := make([]error, len(ms))
		for i, m := range ms {
			if m.Value[0] == poison {
				errs[i] = errors.New("no")
			}
		}
		if errors.Join(errs...) != nil {
			return &consumer.BatchError{Errs: errs}
		}
		for _, m := range ms {
			good = append(good, m.Value[0])
		}
		return nil
	}
	r := start(t, b, consumer.Config{
		Order: order, Output: b.Publisher(), Retry: consumer.Retry{MaxAttempts: 3},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Batch:      &consumer.Batch{Size: messages, ByKey: byKey, Handler: handler}})
	for i := range byte(messages) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("key"), Value: []byte{i}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	s := r.Stats()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	want := slices.DeleteFunc([]byte{0, 1, 2, 3, 4}, func(v byte) bool { return v == poison })
	if slices.Sort(good); !slices.Equal(good, want) {
		t.Errorf("%v handled, want %v", good, want)
	}
	if s.DeadLettered != 1 || s.InFlight != 0 || runs > most {
		t.Errorf("%d dead-lettered, %d in flight after %d runs", s.DeadLettered, s.InFlight, runs)
	}
	if s.Deferred != 0 {
		t.Errorf("%d deferred, and no handler has asked for that", s.Deferred)
	}
}

// One that is put off does not have the others go round and round until its time has come.
func putOffInEmittingBatch(t *testing.T, order consumer.Order, byKey bool, late byte) {
	const messages, most = 5, 100
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}})
	runs, begun := 0, time.Now()
	r := start(t, b, consumer.Config{Order: order, Output: b.Publisher(), Pool: consumer.Pool{Min: 1, Max: 1},
		Batch: &consumer.Batch{Size: messages, ByKey: byKey, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			if runs++; runs > most { // it would go on for ever, and take no time
				return nil
			}
			if err := consumer.Emit(ctx, broker.Outgoing{Topic: "out"}); err != nil {
				return err
			}
			errs := make([]error, len(ms))
			for i, m := range ms {
				if m.Value[0] == late && time.Since(begun) < 10*time.Second {
					errs[i] = consumer.Defer(time.Second, nil)
				}
			}
			return &consumer.BatchError{Errs: errs}
		}}})
	for i := range byte(messages) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("key"), Value: []byte{i}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if s := r.Stats(); s.Handled != messages {
		t.Errorf("%d handled, want %d", s.Handled, messages)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if runs > most {
		t.Errorf("%d runs", runs)
	}
}

// unanswered publishes, and says once that there was no answer.
type unanswered struct {
	broker.Publisher
	said bool
}

func (p *unanswered) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := p.Publisher.Publish(ctx, ms)
	if err == nil && !p.said {
		p.said, err = true, errors.New("no answer")
	}
	return err
}

// What is emitted for all of a batch is none that was there before when the batch begins with the same message and has others: a
// broker that drops repeats would drop what was made of these.
func TestEmitForOtherBatch(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { emitForOtherBatch(t, order) })
		})
	}
}

func emitForOtherBatch(t *testing.T, order consumer.Order) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Leased: true, Lease: time.Minute})
	r := start(t, b, consumer.Config{
		Output: &unanswered{Publisher: b.Publisher()},
		Order:  order,
		Retry:  consumer.Retry{Backoff: consumer.Backoff{Initial: time.Second, Jitter: -1}},
		Batch: &consumer.Batch{Size: 10, Linger: 100 * time.Millisecond,
			Handler: func(ctx context.Context, ms []*consumer.Message) error {
				var all []byte
				for _, m := range ms {
					all = append(all, m.Value...)
				}
				return consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: all})
			}}})
	put := func(v byte) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{v}, Value: []byte{v}}); err != nil {
			t.Fatal(err)
		}
	}
	put('a')
	put('b')
	time.Sleep(1150 * time.Millisecond) // they are here again, and wait for others
	put('c')
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	wantUnsettled(t, b, 0)
	if got := out(b, "out"); !slices.Equal(got, []string{"ab", "abc"}) {
		t.Errorf("out has %q", got)
	}
}

// An output of one message of a batch that the broker refuses, or does not confirm, is that message's failure and no other's.
func TestEmitInBatchesHasItsOwnOutcome(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		t.Run(string(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { emitInBatchesHasItsOwnOutcome(t, order) })
		})
	}
}

func emitInBatchesHasItsOwnOutcome(t *testing.T, order consumer.Order) {
	const messages = 10
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}})
	p := &slow{Publisher: b.Publisher(), outcome: func(o *broker.Outgoing, try, _ int) error {
		switch {
		case o.Value[0] == '3':
			return fmt.Errorf("too large: %w", broker.ErrRefused)
		case o.Value[0] == '7' && try < 3:
			return errors.New("no answer")
		}
		return nil
	}}
	runs := map[string]int{}
	r := start(t, b, consumer.Config{
		Output: p, Order: order, Pool: consumer.Pool{Max: 1},
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
		Batch: &consumer.Batch{Size: messages, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				runs[string(m.Value)]++
				if err := consumer.EmitFor(ctx, m, emitted(m, "")); err != nil {
					return err
				}
			}
			return nil
		}}})
	for i := range byte(messages) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{i}, Value: []byte{'0' + i}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if got := out(b, "dead"); !slices.Equal(got, []string{"3"}) {
		t.Errorf("dead letters %q, want that whose output is refused", got)
	}
	wantOut(t, b, "0", "1", "2", "4", "5", "6", "7", "8", "9")
	for v, n := range runs {
		if want := map[string]int{"7": 3}[v]; n != max(1, want) {
			t.Errorf("%s was handled %d times, want %d", v, n, max(1, want))
		}
	}
}

// Where an output of one message is not there, the whole batch is handled again, and what is emitted for all of it must not be
// there already: a message would be in two sums.
func TestOutputLostBesideTheWhole(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("by key %v", byKey), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { outputLostBesideTheWhole(t, byKey) })
		})
	}
}

func outputLostBesideTheWhole(t *testing.T, byKey bool) {
	const messages = 5
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "sums": 1}})
	lost := 0
	p := &slow{Publisher: b.Publisher(), outcome: func(o *broker.Outgoing, try, _ int) error {
		if string(o.Value) == "3" && try < 2 {
			lost++
			return errors.New("no answer")
		}
		return nil
	}}
	r := start(t, b, consumer.Config{
		Output: p, Pool: consumer.Pool{Max: 1}, Order: consumer.OrderKey,
		Batch: &consumer.Batch{Size: messages, ByKey: byKey, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			sum := ""
			for _, m := range ms {
				sum += string(m.Value)
				if err := consumer.EmitFor(ctx, m, emitted(m, "")); err != nil {
					return err
				}
			}
			return consumer.Emit(ctx, broker.Outgoing{Topic: "sums", Value: []byte(sum)})
		}}})
	for i := range byte(messages) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("a"), Value: []byte{'1' + i}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	in := strings.Split(strings.Join(out(b, "sums"), ""), "")
	slices.Sort(in)
	if want := []string{"1", "2", "3", "4", "5"}; !slices.Equal(in, want) || lost == 0 {
		t.Errorf("the sums have %q, want each message once; %d outputs were lost", out(b, "sums"), lost)
	}
}

// A message that is skipped is no failure: what was emitted for all of its batch is there, and the batch is not handled again.
// Where all are skipped, it is dropped.
func TestSkippedInEmittingBatch(t *testing.T) {
	for _, order := range []consumer.Order{consumer.OrderNone, consumer.OrderKey} {
		for _, byKey := range []bool{false, true} {
			for _, skipped := range []int{1, 5} {
				t.Run(fmt.Sprintf("%s, by key %v, %d skipped", order, byKey, skipped), func(t *testing.T) {
					onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
						c.Order = order
						skippedInEmittingBatch(t, b, c, byKey, skipped)
					})
				})
			}
		}
	}
}

func skippedInEmittingBatch(t *testing.T, b *membroker.Broker, c consumer.Config, byKey bool, skipped int) {
	const messages, most = 5, 100
	var calls int
	var mu sync.Mutex
	var want []string
	c.Batch = &consumer.Batch{Size: messages, ByKey: byKey,
		Handler: func(ctx context.Context, ms []*consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls > most { // it would go on for ever, and take no time
				return nil
			}
			errs := make([]error, len(ms))
			n := 0
			for i, m := range ms {
				if int(m.Value[0]) < skipped {
					errs[i] = consumer.Skip("told to")
					n++
				}
			}
			sum := fmt.Sprintf("%d of %d", n, len(ms))
			if n < len(ms) {
				want = append(want, sum)
			}
			if err := consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: []byte(sum)}); err != nil {
				t.Error(err)
			}
			return &consumer.BatchError{Errs: errs}
		}}
	r := start(t, b, c)
	for i := range byte(messages) {
		key := []byte("key")
		if !byKey {
			key = []byte{i}
		}
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: key, Value: []byte{i}}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	s := r.Stats()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if calls > messages || s.Skipped != int64(skipped) || s.Handled != int64(messages-skipped) {
		t.Errorf("%d calls, %d skipped, %d handled", calls, s.Skipped, s.Handled)
	}
	wantUnsettled(t, b, 0)
	wantOut(t, b, want...)
}

// What is emitted for a batch and refused is no fault of a message that is skipped.
func TestRefusedBesideSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}})
		produce(t, b, 3)
		p := recorder{func([]broker.Outgoing) error { return &broker.PublishError{Errs: []error{broker.ErrRefused}} }}
		r := start(t, b, consumer.Config{Output: p, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Size: 3, Handler: func(ctx context.Context, ms []*consumer.Message) error {
				return errors.Join(consumer.Emit(ctx, broker.Outgoing{Topic: "out"}),
					&consumer.BatchError{Errs: []error{nil, consumer.Skip("told to"), nil}})
			}}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if s := r.Stats(); s.DeadLettered != 2 || s.Skipped != 1 {
			t.Errorf("%d dead-lettered, %d skipped, want 2 and 1", s.DeadLettered, s.Skipped)
		}
	})
}

// In batches what is emitted for one message goes with that one; what is emitted for all of them is there only where none failed.
func TestEmitInBatches(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produce(t, b, 60)
		var mu sync.Mutex
		runs, sums := map[string]int{}, 0
		c.Batch = &consumer.Batch{Size: 10, Linger: 100 * time.Millisecond,
			Handler: func(ctx context.Context, ms []*consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				errs := make([]error, len(ms))
				failed := false
				for i, m := range ms {
					runs[string(m.Value)]++
					if err := consumer.EmitFor(ctx, m.Clone(), emitted(m, fmt.Sprintf("-%d", runs[string(m.Value)]))); err != nil {
						t.Error(err)
					}
					if m.Offset%7 == 3 && runs[string(m.Value)] == 1 {
						errs[i], failed = errors.New("failed"), true
					}
				}
				if ms[0].Offset%20 < 10 { // some batches have something for all of them
					if err := consumer.Emit(ctx, broker.Outgoing{Topic: "sums", Value: fmt.Appendf(nil, "%d", len(ms))}); err != nil {
						t.Error(err)
					}
					if !failed {
						sums += len(ms)
					}
				}
				if failed {
					return &consumer.BatchError{Errs: errs}
				}
				return nil
			}}
		r := start(t, b, c)
		time.Sleep(5 * time.Minute)
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		var want []string
		for v, n := range runs {
			want = append(want, fmt.Sprintf("%s-%d", v, n))
		}
		wantOut(t, b, want...)
		got := 0
		for _, v := range out(b, "sums") {
			n := 0
			fmt.Sscan(v, &n)
			got += n
		}
		if got != sums || sums == 0 {
			t.Errorf("sums say %d messages, and %d were in batches that did not fail", got, sums)
		}
	})
}

// What was emitted for a message of a batch that is skipped is dropped, in order of keys and without.
func TestEmitOfSkippedInBatches(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("by key %v", byKey), func(t *testing.T) {
			onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
				produceKeyed(t, b, 60, 3)
				if byKey {
					c.Order = consumer.OrderKey
				}
				var mu sync.Mutex
				var want []string
				c.Batch = &consumer.Batch{Size: 5, Linger: 100 * time.Millisecond, ByKey: byKey,
					Handler: func(ctx context.Context, ms []*consumer.Message) error {
						mu.Lock()
						defer mu.Unlock()
						errs := make([]error, len(ms))
						for i, m := range ms {
							if err := consumer.EmitFor(ctx, m, emitted(m, "")); err != nil {
								t.Error(err)
							}
							if m.Offset%4 == 1 {
								errs[i] = consumer.Skip("told to")
							} else {
								want = append(want, string(m.Value))
							}
						}
						return &consumer.BatchError{Errs: errs}
					}}
				r := start(t, b, c)
				time.Sleep(time.Minute)
				wantUnsettled(t, b, 0)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				wantOut(t, b, want...)
			})
		})
	}
}

// What stands behind a message of its lane that failed is handled again, so what was emitted for it is dropped: else its outputs
// stand before those of the one that failed, and once more behind them.
func TestEmitBehindAFailure(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produceKeyed(t, b, 5, 1)
		runs := map[string]int{}
		c.Order = consumer.OrderKey
		c.Batch = &consumer.Batch{ByKey: true, Size: 5, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				if runs[string(m.Value)]++; string(m.Value) == "k0 2" && runs["k0 2"] == 1 {
					errs[i] = errors.New("failed")
					continue
				}
				if err := consumer.EmitFor(ctx, m, emitted(m, "")); err != nil {
					t.Error(err)
				}
			}
			return &consumer.BatchError{Errs: errs}
		}}
		r := start(t, b, c)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantUnsettled(t, b, 0)
		var got []string
		for _, m := range b.Messages("out") {
			got = append(got, string(m.Value))
		}
		if want := []string{"k0 0", "k0 1", "k0 2", "k0 3", "k0 4"}; !slices.Equal(got, want) || runs["k0 4"] != 2 {
			t.Errorf("out has %q, want %q; the last was handled %d times", got, want, runs["k0 4"])
		}
	})
}

// Who emits nothing for a whole batch, with an Emit of an empty list, ties no message of it to the others: what did not fail is
// acked, and not handled again.
func TestEmitNothingForABatch(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produce(t, b, 3)
		var mu sync.Mutex
		runs := map[string]int{}
		c.Retry.MaxAttempts = 100
		c.Batch = &consumer.Batch{Size: 10, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			errs := make([]error, len(ms))
			for i, m := range ms {
				if runs[string(m.Value)]++; string(m.Value) == "1" && runs["1"] < 3 {
					errs[i] = errors.New("failed")
				}
			}
			var outs []broker.Outgoing
			if err := consumer.Emit(ctx, outs...); err != nil {
				t.Error(err)
			}
			if some, _ := consumer.HasEmitted(ctx); some {
				t.Error("something was emitted")
			}
			return &consumer.BatchError{Errs: errs}
		}}
		r := start(t, b, c)
		time.Sleep(time.Minute)
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if runs["0"] != 1 || runs["1"] != 3 || runs["2"] != 1 {
			t.Errorf("runs %v, want one of each, and three of 1", runs)
		}
	})
}
