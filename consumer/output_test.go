package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// What is known of who publishes outputs, and cannot be helped, is no warning; a source that is atomic in vain is told of.
func TestEmittingBeforeTheAckIsNoWarning(t *testing.T) {
	topics := map[string]int{"in": 1}
	for name, want := range map[string]struct {
		broker  membroker.Config
		another bool
		told    bool
	}{
		"leased":                    {membroker.Config{Topics: topics, Leased: true}, false, false},
		"atomic":                    {membroker.Config{Topics: topics, Atomic: true}, false, false},
		"atomic, to another broker": {membroker.Config{Topics: topics, Atomic: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(want.broker)
				p := b.Publisher()
				if want.another {
					p = membroker.New(membroker.Config{}).Publisher()
				}
				r := start(t, b, consumer.Config{Output: p, Handler: func(context.Context, *consumer.Message) error { return nil }})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				told := false
				for _, e := range eventsOf[consumer.SourceEvent](r.journal) {
					if e.Kind == broker.Warning {
						t.Errorf("warned: %v", e.Err)
					}
					told = told || e.Kind == broker.Notice && strings.Contains(e.Err.Error(), "before the ack")
				}
				if told != want.told {
					t.Errorf("a notice: %t, want %t", told, want.told)
				}
			})
		})
	}
}

// A publisher of dead letters that the source does not know, such as a wrapper that is no broker.Wrapper, takes them out of the
// transactions: that is told of.
func TestLettersBeforeTheAckAreToldOf(t *testing.T) {
	for name, want := range map[string]struct {
		wrap func(p *membroker.Publisher) broker.Publisher
		told bool
	}{
		"the broker's own": {func(p *membroker.Publisher) broker.Publisher { return p }, false},
		"a wrapper":        {func(p *membroker.Publisher) broker.Publisher { return oldTool{p} }, false},
		"no wrapper":       {func(p *membroker.Publisher) broker.Publisher { return struct{ broker.Publisher }{p} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Atomic: true})
				r := start(t, b, consumer.Config{
					DeadLetter: &consumer.DeadLetter{Publisher: want.wrap(b.Publisher()), Topic: "dead"},
					Handler:    func(context.Context, *consumer.Message) error { return nil },
				})
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				told := false
				for _, e := range eventsOf[consumer.SourceEvent](r.journal) {
					told = told || e.Kind == broker.Notice && strings.Contains(e.Err.Error(), "dead letters are published before the ack")
				}
				if told != want.told {
					t.Errorf("a notice: %t, want %t", told, want.told)
				}
			})
		})
	}
}

// Who cannot emit is told why, and what to do.
func TestEmitWithoutTransactions(t *testing.T) {
	err := consumer.Emit(t.Context(), broker.Outgoing{Topic: "out"})
	if !errors.Is(err, consumer.ErrCannotEmit) || !strings.Contains(err.Error(), "context") {
		t.Errorf("outside of a handler: %v", err)
	}
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var got error
		r := start(t, b, consumer.Config{Handler: func(ctx context.Context, _ *consumer.Message) error {
			got = consumer.Emit(ctx, broker.Outgoing{Topic: "out"})
			return nil
		}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil || !errors.Is(got, consumer.ErrCannotEmit) || !strings.Contains(got.Error(), "Config.Output") {
			t.Errorf("no Output: %v; %v", got, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["leased"])
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		produce(t, b, 2)
		r := start(t, b, consumer.Config{Output: p, Handler: func(ctx context.Context, m *consumer.Message) error {
			return consumer.Emit(ctx, emitted(m, "a"), emitted(m, "b"))
		}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		ids := map[string]bool{}
		for _, m := range b.Messages("out") {
			id, _ := m.Headers.Get(broker.HeaderID)
			ids[string(id)] = true
		}
		if len(ids) != 4 || ids[""] {
			t.Errorf("IDs of four outputs: %v", ids)
		}
	})
}

// An output that Config.Output cannot publish is the failure of its message: that is not acked without it.
func TestOutputThatIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Lease: time.Minute, Leased: true})
		p := &publisher{Publisher: b.Publisher()}
		defer func() { _ = p.Close(context.Background()) }()
		p.set(errors.New("no route"))
		produce(t, b, 2)
		r := start(t, b, consumer.Config{
			Output: p, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Retry: consumer.Retry{MaxAttempts: 100, Backoff: consumer.Backoff{Initial: time.Second, Max: time.Second, Jitter: -1}},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				return consumer.Emit(ctx, emitted(m, "a"), emitted(m, "b"))
			}})
		time.Sleep(10 * time.Second)
		wantUnsettled(t, b, 2)
		if err := consumer.EmitBy(t.Context(), p, broker.Outgoing{Topic: "out"}); err == nil {
			t.Error("a publisher of the handler's own failed, and EmitBy said nothing")
		}
		p.set(nil)
		time.Sleep(2 * time.Second)
		wantUnsettled(t, b, 0)
		wantOut(t, b, "0a", "0b", "1a", "1b")

		p.set(&broker.PublishError{Errs: []error{errors.New("no route"), broker.ErrRefused}}) // the second would never be stored
		produce(t, b, 1)
		time.Sleep(time.Second / 2)
		if dead := b.Messages("dead"); len(dead) != 1 {
			t.Errorf("%d dead letters, want that of the output that is refused", len(dead))
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// An output whose topic is not there fails as anything else does: what came before the topic was made is tried again.
func TestOutputWithoutTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}, Leased: true, Strict: true})
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		produce(t, b, 1)
		runs := 0
		r := start(t, b, consumer.Config{
			Output: p, DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Retry: consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: time.Second, Max: time.Second}},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				runs++
				return consumer.Emit(ctx, emitted(m, "a"))
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		letters := b.Messages("dead")
		if runs != 3 || len(letters) != 1 {
			t.Fatalf("%d runs and %d dead letters, want 3 and 1", runs, len(letters))
		}
		if why, _ := letters[0].Headers.Get(broker.HeaderError); !strings.Contains(string(why), `"out" does not exist`) ||
			strings.Contains(string(why), "for good") { // it was tried again
			t.Errorf("the letter says %s", why)
		}
	})
}

// An output that was published, and whose message comes again since the ack got lost, has the same ID: the broker drops the
// second.
func TestEmitAgainHasSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := kinds["leased"]
		cfg.Lease = time.Second
		b := membroker.New(cfg)
		p := b.Publisher()
		defer func() { _ = p.Close(context.Background()) }()
		produce(t, b, 3)
		runs := 0
		handler := func(ctx context.Context, m *consumer.Message) error {
			runs++
			return consumer.Emit(ctx, emitted(m, ""))
		}
		b.Fail(membroker.OpSettle, 1000, errors.New("told to fail"))
		c := consumer.Config{Output: p, Handler: handler, Pool: consumer.Pool{Max: 1}, CloseTimeout: time.Second}
		r := start(t, b, c)
		time.Sleep(time.Second / 2)
		_ = r.end()
		b.Fail(membroker.OpSettle, 0, nil)
		time.Sleep(3 * time.Second)
		r = start(t, b, c)
		time.Sleep(5 * time.Second)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		wantUnsettled(t, b, 0)
		if runs < 6 {
			t.Fatalf("%d runs: nothing came again, so that nothing was shown", runs)
		}
		wantOut(t, b, out(b, "in")...)
	})
}

// slowToMiss is a publisher that finds out after ten seconds that a topic does not exist.
type slowToMiss struct{ broker.Publisher }

func (p slowToMiss) Publish(ctx context.Context, ms []broker.Outgoing) error {
	for _, m := range ms {
		if m.Topic == "away" {
			time.Sleep(10 * time.Second)
			return fmt.Errorf("publishing: %w", broker.ErrNoTopic)
		}
	}
	return p.Publisher.Publish(ctx, ms)
}

// Outputs to a topic that does not exist do not hold all workers: what emits elsewhere goes on.
func TestOutputsToNoTopicLeaveTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}, Lease: time.Minute, Leased: true})
		p := slowToMiss{b.Publisher()}
		defer func() { _ = p.Close(context.Background()) }()
		produce(t, b, 60)
		r := start(t, b, consumer.Config{
			Output: p, Pool: consumer.Pool{Min: 4, Max: 4}, Retry: consumer.Retry{MaxAttempts: 100},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if m.Offset%3 == 0 {
					return consumer.Emit(ctx, broker.Outgoing{Topic: "away"})
				}
				return consumer.Emit(ctx, broker.Outgoing{Topic: "out"})
			}})
		time.Sleep(19 * time.Second) // ten seconds for the first of them, and ten for the next that asks
		if got := len(b.Messages("out")); got != 40 {
			t.Errorf("%d of 40 outputs to the other topic are there", got)
		}
		wantUnsettled(t, b, 20)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// late is a publisher that does not find a topic before its time.
type late struct {
	broker.Publisher
	since time.Time
}

func (p late) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if time.Now().Before(p.since) {
		return fmt.Errorf("publishing: %w", broker.ErrNoTopic)
	}
	return p.Publisher.Publish(ctx, ms)
}

// Who looks again for a topic that did not exist looks for all that goes there together: one output of a message that is there,
// and another that is not, would be a failed run.
func TestOutputsToATopicThatIsMadeGoTogether(t *testing.T) {
	emit := func(ctx context.Context, m *consumer.Message) error {
		o := broker.Outgoing{Topic: "out", Value: m.Value}
		return consumer.EmitFor(ctx, m, o, o)
	}
	for name, cfg := range map[string]consumer.Config{
		"of a message": {Handler: emit},
		"of a batch": {Batch: &consumer.Batch{Size: 3, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				if err := emit(ctx, m); err != nil {
					return err
				}
			}
			return nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1, "dead": 1}})
				produce(t, b, 1)
				cfg.Output = late{b.Publisher(), time.Now().Add(5 * time.Second)}
				cfg.Retry = consumer.Retry{MaxAttempts: 3} // one finds out, one is told, one looks again
				cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
				r := start(t, b, cfg)
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				wantUnsettled(t, b, 0)
				wantOut(t, b, "0", "0")
				if dead := out(b, "dead"); len(dead) > 0 {
					t.Errorf("dead letters %q", dead)
				}
			})
		})
	}
}

// The late result of a stuck handler is void, and so is what it emitted: else that stands behind what the retry emitted.
func TestOutputsOfAStuckHandlerAreVoid(t *testing.T) {
	var runs atomic.Int32
	handle := func(ctx context.Context, m *consumer.Message) error {
		if runs.Add(1) > 1 {
			return consumer.EmitFor(ctx, m, broker.Outgoing{Topic: "out", Value: []byte("second")})
		}
		err := consumer.EmitFor(ctx, m, broker.Outgoing{Topic: "out", Value: []byte("first")})
		time.Sleep(time.Minute) // whatever its context says
		return err
	}
	for name, c := range map[string]consumer.Config{
		"a message": {Handler: handle},
		"a batch": {Batch: &consumer.Batch{Size: 1, Handler: func(ctx context.Context, ms []*consumer.Message) error {
			return handle(ctx, ms[0])
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs.Store(0)
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
				produce(t, b, 1)
				var mu sync.Mutex
				var got []string
				c.Timeout, c.StuckAfter = time.Second, time.Second
				c.Output = recorder{func(ms []broker.Outgoing) error {
					mu.Lock()
					defer mu.Unlock()
					for _, m := range ms {
						got = append(got, string(m.Value))
					}
					return nil
				}}
				r := start(t, b, c)
				time.Sleep(2 * time.Minute)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				wantUnsettled(t, b, 0)
				if want := []string{"second"}; !slices.Equal(got, want) {
					t.Errorf("published %q, want %q", got, want)
				}
			})
		})
	}
}

// A publisher of one's own that publishes to two places joins what they say. Each error counts for the message that it is of, and
// one that is of none for all: what the second one has not taken is not there, and its message is not acked.
func TestJoinedPublishErrors(t *testing.T) {
	no := errors.New("no connection")
	for name, joined := range map[string]error{
		"two that tell of each": errors.Join(&broker.PublishError{Errs: []error{no, nil}},
			&broker.PublishError{Errs: []error{nil, no}}),
		"one that does, and one that does not": errors.Join(&broker.PublishError{Errs: []error{no, nil}}, no),
		"one that does not, wrapped with one that does": fmt.Errorf("twice: %w",
			errors.Join(no, &broker.PublishError{Errs: []error{nil, nil}})),
		"one that tells of others": errors.Join(&broker.PublishError{Errs: []error{no, nil}},
			&broker.PublishError{Errs: []error{nil, nil, nil}}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(kinds["leased"])
				produce(t, b, 2)
				var mu sync.Mutex
				var stored []string
				calls := 0
				r := start(t, b, consumer.Config{
					Output: recorder{func(ms []broker.Outgoing) error {
						mu.Lock()
						defer mu.Unlock()
						if calls++; calls == 1 && len(ms) == 2 {
							return joined
						}
						for _, m := range ms {
							stored = append(stored, string(m.Value))
						}
						return nil
					}},
					Batch: &consumer.Batch{Size: 2, Handler: func(ctx context.Context, ms []*consumer.Message) (err error) {
						for _, m := range ms {
							err = errors.Join(err, consumer.EmitFor(ctx, m, emitted(m, "")))
						}
						return err
					}},
				})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Error(err)
				}
				wantUnsettled(t, b, 0)
				if slices.Sort(stored); !slices.Equal(stored, []string{"0", "1"}) {
					t.Errorf("stored are %q, want what was emitted for both", stored)
				}
			})
		})
	}
}
