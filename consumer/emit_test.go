package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// onAtomic runs a test on a broker whose sources are atomic, and on one whose sources are not: there Config.Output publishes.
func onAtomic(t *testing.T, f func(t *testing.T, b *membroker.Broker, c consumer.Config)) {
	for name, cfg := range map[string]membroker.Config{
		"atomic": {Topics: map[string]int{"in": 2, "out": 1}, Lease: time.Minute, Atomic: true},
		"leased": {Topics: map[string]int{"in": 1, "out": 1}, Lease: time.Minute, Leased: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(cfg)
				c := consumer.Config{}
				if !cfg.Atomic {
					p := b.Publisher()
					defer func() { _ = p.Close(context.Background()) }()
					c.Output = p
				}
				f(t, b, c)
			})
		})
	}
}

// out is what is in a topic, sorted.
func out(b *membroker.Broker, topic string) (values []string) {
	for _, m := range b.Messages(topic) {
		values = append(values, string(m.Value))
	}
	slices.Sort(values)
	return values
}

func wantOut(t *testing.T, b *membroker.Broker, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := out(b, "out"); !slices.Equal(got, want) {
		t.Errorf("out has %d %v, want %d %v", len(got), got, len(want), want)
	}
}

func emitted(m *consumer.Message, what string) broker.Outgoing {
	return broker.Outgoing{Topic: "out", Value: []byte(string(m.Value) + what)}
}

// What is emitted with an ack lies in memory that the outputs share: none is taken for each call.
func TestEmitTakesNoMemoryOfItsOwn(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Atomic: true})
	p := b.Publisher()
	defer func() { _ = p.Close(context.Background()) }()
	produce(t, b, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	each := make(chan float64, 1)
	c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
		Pool: consumer.Pool{Max: 1}, Handler: func(ctx context.Context, m *consumer.Message) error {
			each <- testing.AllocsPerRun(1000, func() {
				if err := consumer.EmitBy(ctx, p, broker.Outgoing{Topic: "out", Value: m.Value}); err != nil {
					t.Error(err)
				}
			})
			stop()
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if n := <-each; n > 0 {
		t.Errorf("emitting takes memory %v times for each output", n)
	}
}

// What a run that failed emitted is dropped, whichever way it failed; a retry emits anew.
func TestEmitOfFailedRunIsDropped(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produce(t, b, 40)
		var mu sync.Mutex
		runs := map[string]int{}
		c.Timeout = 5 * time.Second
		c.Handler = func(ctx context.Context, m *consumer.Message) error {
			mu.Lock()
			runs[string(m.Value)]++
			run := runs[string(m.Value)]
			mu.Unlock()
			if err := consumer.Emit(ctx, emitted(m, fmt.Sprintf("-%d", run))); err != nil {
				t.Error(err)
			}
			if run > 1 {
				return nil
			}
			switch n := m.Offset % 5; n {
			case 0:
				return errors.New("failed")
			case 1:
				panic("failed")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			case 3:
				return consumer.Defer(time.Second, nil)
			default:
				return nil
			}
		}
		r := start(t, b, c)
		time.Sleep(5 * time.Minute)
		var want []string
		mu.Lock()
		for v, n := range runs {
			want = append(want, fmt.Sprintf("%s-%d", v, n))
		}
		mu.Unlock()
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantOut(t, b, want...)
	})
}

// What was emitted of messages that are skipped, given back at a stop, or dead-lettered is not there; the dead letter is, once.
func TestEmitOfUnhandledIsDropped(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produce(t, b, 30)
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		c.DeadLetter = &consumer.DeadLetter{Publisher: p, Topic: "dead"}
		c.DrainTimeout, c.CancelGrace = time.Second, time.Second
		hang := make(chan struct{})
		var mu sync.Mutex
		var permanent []string
		c.Handler = func(ctx context.Context, m *consumer.Message) error {
			if err := consumer.Emit(ctx, emitted(m, "")); err != nil {
				t.Error(err)
			}
			switch m.Offset % 3 {
			case 0:
				return consumer.Skip("not today")
			case 1:
				mu.Lock()
				permanent = append(permanent, string(m.Value))
				mu.Unlock()
				return consumer.Permanent(errors.New("never"))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-hang:
				return nil
			}
		}
		r := start(t, b, c)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantOut(t, b)
		dead := out(b, "dead")
		mu.Lock()
		defer mu.Unlock()
		if slices.Sort(permanent); len(permanent) == 0 || !slices.Equal(dead, permanent) {
			t.Errorf("dead letters: %v, want %v", dead, permanent)
		}
	})
}

// A dead letter goes with the ack where the source is atomic: it is there once also where the answer to the commit gets lost.
func TestDeadLetterGoesWithAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}, Lease: time.Minute, Atomic: true})
		b.Fail(membroker.OpSettle, 3, errors.New("told to fail"))
		p := b.Publisher()
		if err := p.Close(t.Context()); err != nil { // what goes with the ack needs no publish
			t.Fatal(err)
		}
		produce(t, b, 5)
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("never")) },
		})
		time.Sleep(time.Minute)
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if got := out(b, "dead"); len(got) != 5 {
			t.Errorf("dead letters: %v", got)
		}
	})
}

// Outputs that would never be stored are refused while the handler can still fail.
func TestEmitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute, Atomic: true})
		produce(t, b, 1)
		var got error
		r := start(t, b, consumer.Config{Handler: func(ctx context.Context, _ *consumer.Message) error {
			got = consumer.Emit(ctx, broker.Outgoing{Topic: "__consumer_offsets"})
			return nil
		}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if !errors.Is(got, broker.ErrRefused) {
			t.Errorf("emitting to a topic of the broker's own: %v", got)
		}
	})
}

// TestEmitRefusedIsPermanent: an output that would never be stored is no reason to try five times, with transactions or without.
// Of a batch only its message is given up, though its handler returns the error as that of all.
func TestEmitRefusedIsPermanent(t *testing.T) {
	for _, atomically := range []bool{false, true} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprint(atomically, batch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { emitsTooLarge(t, atomically, batch) })
			})
		}
	}
}

func emitsTooLarge(t *testing.T, atomically, batch bool) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Lease: time.Minute, Atomic: atomically,
		MaxMessageBytes: 1000})
	produce(t, b, 3)
	calls := 0
	emit := func(ctx context.Context, m *consumer.Message) error {
		o := emitted(m, "x")
		if string(m.Value) == "1" {
			calls++
			o.Value = make([]byte, 2000)
		}
		return consumer.EmitFor(ctx, m, o)
	}
	cfg := consumer.Config{Handler: emit, Output: b.Publisher(),
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}}
	if batch {
		cfg.Handler, cfg.Batch = nil, &consumer.Batch{Handler: func(ctx context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				if err := emit(ctx, m); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	r := start(t, b, cfg)
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if dead := b.Messages("dead"); len(dead) != 1 || string(dead[0].Value) != "1" || !batch && calls != 1 {
		t.Errorf("%d dead letters after %d calls", len(dead), calls)
	}
	if n := len(b.Messages("out")); n != 2 {
		t.Errorf("%d outputs, want 2", n)
	}
}

// What is emitted when the call is over, or was given up, or for a message that the call does not handle, is refused and not
// dropped in silence.
func TestEmitTooLate(t *testing.T) {
	onAtomic(t, func(t *testing.T, b *membroker.Broker, c consumer.Config) {
		produce(t, b, 1)
		var handlers atomic.Pointer[context.Context]
		var begun atomic.Int32
		c.Timeout, c.StuckAfter = time.Second, time.Second
		c.Handler = func(ctx context.Context, m *consumer.Message) error {
			if begun.Add(1) == 1 { // it does not heed its timeout, and another run begins meanwhile
				time.Sleep(10 * time.Second)
				if err := consumer.Emit(ctx, emitted(m, "stuck")); err == nil {
					t.Error("emitted by a handler that was given up")
				}
				return nil
			}
			handlers.Store(&ctx)
			other := m.Clone()
			other.Token++
			if err := consumer.EmitFor(ctx, other, emitted(m, "other")); err == nil {
				t.Error("emitted for another message")
			}
			return consumer.EmitFor(ctx, m.Clone(), emitted(m, ""))
		}
		r := start(t, b, c)
		time.Sleep(20 * time.Second)
		if err := consumer.Emit(*handlers.Load(), broker.Outgoing{Topic: "out", Value: []byte("late")}); err == nil {
			t.Error("emitted after the handler has returned")
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if err := consumer.Emit(*handlers.Load(), broker.Outgoing{Topic: "out", Value: []byte("late")}); err == nil {
			t.Error("emitted after the end")
		}
		wantOut(t, b, "0")
	})
}

// What a retry topic holds goes there with the ack, and comes back from there with its output once.
func TestEmitThroughRetryTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "retry": 1, "out": 1}, Lease: time.Minute, Atomic: true})
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		produce(t, b, 10)
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{Topics: &consumer.RetryTopics{
				Steps: []consumer.RetryStep{{Topic: "retry", Delay: time.Second}}, Publisher: p,
				Source: b.Source(membroker.SourceConfig{Group: "retries", Topics: []string{"retry"}}),
			}, Backoff: consumer.Backoff{Initial: time.Second, Max: time.Second, Jitter: -1}},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if err := consumer.Emit(ctx, emitted(m, fmt.Sprint("-", m.Runs))); err != nil {
					t.Error(err)
				}
				if m.Runs < 2 {
					return errors.New("not yet")
				}
				return nil
			},
		})
		time.Sleep(2 * time.Minute)
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if n := len(out(b, "retry")); n != 20 {
			t.Errorf("%d copies in the retry topic, want 20", n)
		}
		var want []string
		for _, v := range out(b, "in") {
			want = append(want, v+"-2")
		}
		wantOut(t, b, want...)
	})
}

// TestEmitAgainWhatWasRefused: a handler that deals with a refusal, by emitting something else, has its message acked with that;
// nothing of the call that was refused is stored.
func TestEmitAgainWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Atomic: true, MaxMessageBytes: 1000})
		produce(t, b, 1)
		r := start(t, b, consumer.Config{Handler: func(ctx context.Context, _ *consumer.Message) error {
			small := broker.Outgoing{Topic: "out", Value: []byte("small")}
			large := broker.Outgoing{Topic: "out", Value: make([]byte, 2000)}
			if err := consumer.Emit(ctx, small, large); !errors.Is(err, broker.ErrRefused) {
				t.Errorf("emitting what is too large: %v", err)
			}
			return consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: []byte("where the large one is")})
		}})
		time.Sleep(time.Minute)
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantOut(t, b, "where the large one is")
	})
}
