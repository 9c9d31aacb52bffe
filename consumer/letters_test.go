package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// publisher wraps one, and does to publishes what the test says.
type publisher struct {
	broker.Publisher
	mu  sync.Mutex
	err error // what Publish returns instead
	n   int   // calls
}

func (p *publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	p.mu.Lock()
	p.n++
	err := p.err
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.Publisher.Publish(ctx, ms)
}

func (p *publisher) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// f38, II.11: the dead-letter topic is down: workers go on, nothing is acked before its letter is confirmed, and nothing is lost.
func TestDeadLetterTopicDownHoldsNoWorker(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages, bad = 400, 40
		produce(t, b, messages)
		p := &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		var good atomic.Int32
		r := start(t, b, consumer.Config{
			Pool:       consumer.Pool{Min: 2, Max: 2},
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Value[len(m.Value)-1] == '3' {
					return consumer.Permanent(errors.New("bad"))
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(10 * time.Second)
		if good.Load() != messages-bad {
			t.Errorf("%d good messages were handled while the dead-letter topic was down, want %d", good.Load(), messages-bad)
		}
		wantUnsettled(t, b, bad)
		if n := r.Stats().LettersDelayed; n != bad {
			t.Errorf("%d letters are said to be delayed, want %d", n, bad)
		}
		p.set(nil)
		time.Sleep(time.Minute)
		if n := len(b.Messages("dead")); n != bad {
			t.Errorf("%d dead letters, want %d", n, bad)
		}
		if n := r.Stats().LettersDelayed; n != 0 {
			t.Errorf("all are stored, and %d are said to be delayed", n)
		}
		wantUnsettled(t, b, 0)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The stop comes while letters wait for their topic: they go back, to be tried by the next process.
func TestDrainGivesUnpublishedLettersBack(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 3)
		p := &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
		})
		time.Sleep(time.Second)
		begin := time.Now()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("the drain waited %v for a topic that is down", d)
		}
		if n := r.Stats().InFlight; n != 0 {
			t.Errorf("%d messages were never settled", n)
		}
		wantUnsettled(t, b, 3)
	})
}

// II.24: too large with all its headers: they are cut. Refused still: held with an alarm, never dropped.
func TestRefusedDeadLetterIsCutThenHeld(t *testing.T) {
	for name, value := range map[string]int{
		"cut": 10_000, "cut with its error": 19_000, "cut with its stack": 18_000, "held": 1 << 20,
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				big := membroker.New(membroker.Config{Topics: map[string]int{"dead": 1}, MaxMessageBytes: 20_000})
				err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, value),
					Headers: []broker.Header{{Key: "long", Value: make([]byte, 15_000)}}})
				if err != nil {
					t.Fatal(err)
				}
				r := start(t, b, consumer.Config{
					DrainTimeout: time.Second,
					Retry:        consumer.Retry{MaxAttempts: 1},
					DeadLetter: &consumer.DeadLetter{Publisher: big.Publisher(), Topic: "dead",
						Headers: []consumer.HeaderStyle{consumer.SpringHeaders}},
					Handler: func(context.Context, *consumer.Message) error {
						if name == "cut with its stack" {
							panic(strings.Repeat("bad ", 1000))
						}
						return consumer.Permanent(errors.New(strings.Repeat("bad ", 1000)))
					},
				})
				time.Sleep(10 * time.Second)
				dead, delayed := big.Messages("dead"), eventsOf[consumer.DeadLetterDelayed](r.journal)
				if name != "held" {
					if len(dead) != 1 || len(dead[0].Value) != value {
						t.Fatalf("%d dead letters", len(dead))
					}
					if text, _ := dead[0].Headers.Get(broker.HeaderError); !strings.Contains(string(text), "bad bad") {
						t.Errorf("the error is %q", text)
					}
					if _, ok := dead[0].Headers.Get("long"); ok {
						t.Error("the long header was kept")
					}
					wantUnsettled(t, b, 0)
				} else {
					if len(dead) != 0 || len(delayed) != 1 || !delayed[0].Refused {
						t.Errorf("%d dead letters, %+v", len(dead), delayed)
					}
					wantUnsettled(t, b, 1)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What is refused for another reason than its size keeps its headers: when the topic is there, or the right, they are with it.
func TestLetterRefusedForAWhileKeepsItsHeaders(t *testing.T) {
	for name, why := range map[string]error{
		"no topic": fmt.Errorf("%w: %w", broker.ErrNoTopic, broker.ErrRefused), "no right": broker.ErrRefused,
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				err := b.Produce(broker.Outgoing{Topic: "in", Headers: []broker.Header{{Key: "tenant", Value: []byte("acme")}}})
				if err != nil {
					t.Fatal(err)
				}
				p := &publisher{Publisher: b.Publisher()}
				p.set(&broker.PublishError{Errs: []error{why}})
				r := start(t, b, consumer.Config{
					DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
					Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
				})
				time.Sleep(90 * time.Second)
				p.set(nil)
				time.Sleep(90 * time.Second)
				dead := b.Messages("dead")
				if len(dead) != 1 {
					t.Fatalf("%d dead letters, want 1", len(dead))
				}
				if v, _ := dead[0].Headers.Get("tenant"); string(v) != "acme" {
					t.Errorf("the letter's header is %q, want that of its message", v)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// f39: the process dies between the letter's publish and the ack: the letter comes twice, under one id, and never not at all.
func TestLetterPublishedTwiceHasOneID(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var mu sync.Mutex
		var ids []string
		record := recorder{func(ms []broker.Outgoing) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, ms[0].ID)
			return nil
		}}
		for range 2 {
			src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
			killed := recorder{func(ms []broker.Outgoing) error { err := record.do(ms); src.Kill(); return err }}
			r := start(t, b, consumer.Config{
				Source: src, DeadLetter: &consumer.DeadLetter{Publisher: killed, Topic: "dead"},
				Handler: func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
			})
			time.Sleep(2 * time.Minute)
			_ = r.end() // the source was killed
		}
		if len(ids) != 2 || ids[0] != ids[1] || ids[0] == "" {
			t.Errorf("ids %q, want one twice", ids)
		}
		wantUnsettled(t, b, 1)
	})
}

type recorder struct {
	do func([]broker.Outgoing) error
}

func (r recorder) Publish(_ context.Context, ms []broker.Outgoing) error { return r.do(ms) }
func (r recorder) Close(context.Context) error                           { return nil }

// b24: a poisoned message blocks neither the others nor itself.
func TestPoisonedMessageBlocksNobody(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		var good atomic.Int32
		r := start(t, b, consumer.Config{
			Pool:       consumer.Pool{Min: 1, Max: 1},
			Retry:      consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: 10 * time.Second, Jitter: -1}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Value) == "0" {
					return fmt.Errorf("run %d: %w", m.Runs+1, errors.New("poison"))
				}
				good.Add(1)
				return nil
			}})
		time.Sleep(time.Second)
		if good.Load() != 99 {
			t.Errorf("%d good messages were handled beside the poison, want 99", good.Load())
		}
		time.Sleep(time.Minute)
		if n := len(b.Messages("dead")); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
	})
}

// A consumer that would read its own dead letters is refused: each would be handled, fail and be published again.
func TestOwnDeadLettersAreRefused(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1, "dead": 1, "other": 1}})
	source := func(b *membroker.Broker, topics ...string) broker.Source {
		return b.Source(membroker.SourceConfig{Topics: topics})
	}
	base := consumer.Config{Handler: func(context.Context, *consumer.Message) error { return nil },
		DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}}
	for name, c := range map[string]struct {
		sources []broker.Source
		refused bool
	}{
		"reads them":          {[]broker.Source{source(b, "orders", "dead")}, true},
		"reads others":        {[]broker.Source{source(b, "orders", "other")}, false},
		"one of several does": {[]broker.Source{source(b, "orders"), source(b, "dead")}, true},
		"of another broker": {[]broker.Source{source(membroker.New(membroker.Config{Topics: map[string]int{"dead": 1}}), "dead")},
			false},
		"a source that is none": {[]broker.Source{nil}, false},
	} {
		cfg := base
		for _, s := range c.sources {
			cfg.Sources = append(cfg.Sources, consumer.Input{Source: s})
		}
		_, err := consumer.New(cfg)
		if said := err != nil && strings.Contains(err.Error(),
			`DeadLetter.Topic is "dead", which the consumer itself reads`); said != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A letter whose headers were cut since they were too large keeps the count of its replays, which ends a circle.
func TestCutLettersKeepTheirReplays(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		big := broker.Header{Key: "big", Value: make([]byte, 9<<20)}
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("1"),
			Headers: []broker.Header{big, {Key: broker.HeaderReplays, Value: []byte("4")}}}); err != nil {
			t.Fatal(err)
		}
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
		})
		time.Sleep(10 * time.Second)
		ms := b.Messages("dead")
		if len(ms) != 1 {
			t.Fatalf("%d letters", len(ms))
		}
		if v, ok := ms[0].Headers.Get(broker.HeaderReplays); !ok || string(v) != "4" {
			t.Errorf("replays: %q", v)
		}
		if _, ok := ms[0].Headers.Get("big"); ok {
			t.Error("the header that is too large is there")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
