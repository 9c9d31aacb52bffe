package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// codeError is an error of a handler's own, whose methods need it not to be nil.
type codeError struct{ code string }

func (e *codeError) Error() string { return "code " + e.code }

// askedError is one that panics when it is asked what it is.
type askedError struct{ codeError }

func (e *askedError) Error() string        { return "asked" }
func (e *askedError) Is(target error) bool { return target.Error() == e.code }

// valueError panics when it is shown.
type valueError struct{}

func (valueError) Error() string { panic("no text") }

// TestErrorThatPanics: an error that cannot be read, as a nil pointer of a type of its own, costs an attempt and not the process,
// and its message ends in the dead letters.
func TestErrorThatPanics(t *testing.T) {
	for name, err := range map[string]error{
		"nil pointer": (*codeError)(nil), "nil pointer, asked": (*askedError)(nil), "panics": valueError{},
		"wrapped":   consumer.Permanent((*codeError)(nil)),
		"joined":    errors.Join(errors.New("one"), (*codeError)(nil)),
		"overdue":   consumer.RetryAfter((*askedError)(nil), time.Second),
		"in a call": &consumer.PanicError{Value: (*askedError)(nil)},
	} {
		for kind, cfg := range map[string]consumer.Config{
			"single": {Handler: func(context.Context, *consumer.Message) error { return err }},
			"panic":  {Handler: func(context.Context, *consumer.Message) error { panic(err) }},
			"told": {
				Handler: func(context.Context, *consumer.Message) error { return err },
				Around: func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) {
					return ctx, func(os []consumer.Outcome) { _ = os[0].Err.Error() }
				},
			},
			"late": {Timeout: time.Second, Handler: func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return err }},
			"batch": {Batch: &consumer.Batch{Handler: func(_ context.Context, ms []*consumer.Message) error {
				return &consumer.BatchError{Errs: append(make([]error, len(ms)-1), err)}
			}}},
			"whole batch": {Batch: &consumer.Batch{Handler: func(context.Context, []*consumer.Message) error { return err }}},
			"lane": {Order: consumer.OrderKey, Batch: &consumer.Batch{ByKey: true,
				Handler: func(_ context.Context, ms []*consumer.Message) error {
					return &consumer.BatchError{Errs: append(make([]error, len(ms)-1), err)}
				}}},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) { diesOf(t, b, cfg) })
			})
		}
	}
}

// diesOf has a consumer end a message as a dead letter, and stop at once.
func diesOf(t *testing.T, b *membroker.Broker, cfg consumer.Config) {
	cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
	if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	r := start(t, b, cfg)
	time.Sleep(time.Minute)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if n := len(b.Messages("dead")); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	wantUnsettled(t, b, 0)
}

// strange is a publisher of one's own that fails a few times, with an error of its own.
type strange struct {
	broker.Publisher
	fails func() error
	left  *atomic.Int64
}

func (p strange) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if p.left.Add(-1) >= 0 {
		return p.fails()
	}
	return p.Publisher.Publish(ctx, ms)
}

func (p strange) Find(context.Context, string) error {
	if p.left.Add(-1) >= 0 {
		return p.fails()
	}
	return nil
}

func (p strange) Create(context.Context, string) error { return nil }

// TestPublishErrorThatPanics: such an error of a publisher costs a try, and neither the process nor the message.
func TestPublishErrorThatPanics(t *testing.T) {
	bad := (*askedError)(nil)
	for name, fails := range map[string]func() error{
		"returned": func() error { return bad },
		"of one":   func() error { return &broker.PublishError{Errs: []error{bad}} },
		"panic":    func() error { panic(bad) },
	} {
		for kind, cfg := range map[string]func(p strange) consumer.Config{
			"dead letter": func(p strange) consumer.Config {
				return consumer.Config{DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
					Handler: func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) }}
			},
			"output": func(p strange) consumer.Config {
				return consumer.Config{Output: p, Retry: consumer.Retry{MaxAttempts: 9},
					Handler: func(ctx context.Context, _ *consumer.Message) error {
						return consumer.Emit(ctx, broker.Outgoing{Topic: "dead"})
					}}
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) {
					produce(t, b, 1)
					p := strange{b.Publisher(), fails, new(atomic.Int64)}
					p.left.Store(4)
					r := start(t, b, cfg(p))
					time.Sleep(5 * time.Minute)
					if err := r.end(); err != nil {
						t.Error(err)
					}
					if n := len(b.Messages("dead")); n != 1 {
						t.Errorf("%d were published, want 1", n)
					}
					wantUnsettled(t, b, 0)
				})
			})
		}
	}
}
