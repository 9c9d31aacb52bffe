package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A slow is a publisher that takes a while for each call, and says of each message what outcome does.
type slow struct {
	broker.Publisher
	outcome func(o *broker.Outgoing, try, of int) error // of: how many are published together

	mu    sync.Mutex
	calls []int // how many messages each had
	tries map[string]int
	good  []string
}

func (p *slow) Publish(ctx context.Context, ms []broker.Outgoing) error {
	time.Sleep(100 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, len(ms))
	errs := make([]error, len(ms))
	for i := range ms {
		v := string(ms[i].Value)
		if p.tries == nil {
			p.tries = map[string]int{}
		}
		p.tries[v]++
		if p.outcome != nil {
			errs[i] = p.outcome(&ms[i], p.tries[v], len(ms))
		}
		if errs[i] == nil {
			p.good = append(p.good, v)
			errs[i] = p.Publisher.Publish(ctx, ms[i:i+1])
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return &broker.PublishError{Errs: errs}
	}
	return nil
}

func (p *slow) most() int { return slices.Max(p.calls) }

// What fails while the dead letters are slow goes there together, in the order in which it failed, and is acked together.
func TestLettersGoTogether(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages = 3000
		produce(t, b, messages)
		p := &slow{Publisher: b.Publisher()}
		r := start(t, b, consumer.Config{
			Pool:       consumer.Pool{Min: 1, Max: 1},
			Budget:     broker.Budget{Messages: 1000, Bytes: 1 << 20},
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead", Concurrency: 1},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
		})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.Messages("dead")); n != messages {
			t.Errorf("%d dead letters, want %d", n, messages)
		}
		if len(p.calls) > 30 || p.most() > 512 {
			t.Errorf("%d calls, the largest of %d messages", len(p.calls), p.most())
		}
		if n := len(eventsOf[consumer.DeadLettered](r.journal)); n != messages {
			t.Errorf("%d events, want %d", n, messages)
		}
		wantUnsettled(t, b, 0)
		var failed []string
		for _, e := range eventsOf[consumer.Failed](r.journal) {
			failed = append(failed, string(e.Message.Value))
		}
		if !slices.Equal(failed, p.good) {
			t.Error("the letters have another order than the failures")
		}
	})
}

// Each letter of a call has its own outcome: what is confirmed is acked and never published again, what is refused loses its
// headers, and what is unconfirmed is tried again.
func TestLettersHaveTheirOwnOutcomes(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i := range 90 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: fmt.Appendf(nil, "%d", i),
				Headers: []broker.Header{{Key: "own", Value: []byte("h")}}}); err != nil {
				t.Fatal(err)
			}
		}
		p := &slow{Publisher: b.Publisher(), outcome: func(o *broker.Outgoing, try, _ int) error {
			switch n := o.Value[len(o.Value)-1] % 3; {
			case n == 1 && slices.ContainsFunc(o.Headers, func(h broker.Header) bool { return h.Key == "own" }):
				return fmt.Errorf("too large: %w", broker.ErrRefused)
			case n == 2 && try < 4:
				return errors.New("no answer")
			}
			return nil
		}}
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead", Concurrency: 1},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
		})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		for v, n := range p.tries {
			if want := map[byte]int{0: 1, 1: 2, 2: 4}[v[len(v)-1]%3]; n != want {
				t.Errorf("%s was published %d times, want %d", v, n, want)
			}
		}
		if n := len(b.Messages("dead")); n != 90 || p.most() < 10 {
			t.Errorf("%d letters, want 90; at most %d together", n, p.most())
		}
		for _, m := range b.Messages("dead") {
			if _, has := m.Headers.Get("own"); has != (m.Value[len(m.Value)-1]%3 != 1) {
				t.Errorf("%s has its own header: %v", m.Value, has)
			}
		}
		wantUnsettled(t, b, 0)
	})
}

// wholly fails each call that has a certain message, without a word about which it is.
type wholly struct {
	broker.Publisher
	bad string
}

func (p wholly) Publish(ctx context.Context, ms []broker.Outgoing) error {
	time.Sleep(100 * time.Millisecond)
	if slices.ContainsFunc(ms, func(o broker.Outgoing) bool { return string(o.Value) == p.bad }) {
		return errors.New("the connection was closed")
	}
	return p.Publisher.Publish(ctx, ms)
}

// A letter that makes the whole call fail, again and again, holds no other: after a few tries each goes alone.
func TestLetterThatFailsItsCall(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages = 200
		produce(t, b, messages)
		r := start(t, b, consumer.Config{
			DrainTimeout: time.Second,
			DeadLetter:   &consumer.DeadLetter{Publisher: wholly{b.Publisher(), "7"}, Topic: "dead", Concurrency: 1},
			Handler:      func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) },
		})
		time.Sleep(2 * time.Minute)
		if n := len(b.Messages("dead")); n != messages-1 {
			t.Errorf("%d dead letters, want %d", n, messages-1)
		}
		wantUnsettled(t, b, 1)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The process dies when a part of what is published together is stored: all of it comes again, and nothing is gone.
func TestKilledAmongLetters(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const messages = 300
		produce(t, b, messages)
		src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		p := &slow{Publisher: b.Publisher()}
		p.outcome = func(*broker.Outgoing, int, int) error {
			if len(p.good) == 150 {
				src.Kill()
			}
			if len(p.good) >= 150 {
				return errors.New("killed")
			}
			return nil
		}
		fails := func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("bad")) }
		first := start(t, b, consumer.Config{Source: src, Handler: fails, DrainTimeout: time.Second,
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead", Concurrency: 1}})
		time.Sleep(2 * time.Minute)
		_ = first.end() // its source was killed
		if n := len(b.Messages("dead")); n != 150 {
			t.Fatalf("%d letters were stored before the end", n)
		}
		second := start(t, b, consumer.Config{Handler: fails,
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}})
		time.Sleep(5 * time.Minute)
		there := map[string]bool{}
		for _, m := range b.Messages("dead") {
			there[string(m.Value)] = true
		}
		if len(there) != messages {
			t.Errorf("%d of %d messages are in the dead letters", len(there), messages)
		}
		wantUnsettled(t, b, 0)
		if err := second.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A claim that ends cuts off no publish that has letters of others, too; when all have ended, it is cut off.
func TestClaimEndsAmongLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 2, "dead": 1}})
		produce(t, b, 20)
		held := &holding{Publisher: b.Publisher(), go_: make(chan struct{})}
		src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		r := start(t, b, consumer.Config{Source: src, DrainTimeout: time.Second,
			DeadLetter: &consumer.DeadLetter{Publisher: held, Topic: "dead", Concurrency: 1},
			Handler: func(context.Context, *consumer.Message) error {
				time.Sleep(time.Millisecond)
				return consumer.Permanent(errors.New("bad"))
			}})
		time.Sleep(time.Second) // the first letters are held, the others wait
		held.go_ <- struct{}{}
		time.Sleep(time.Second)
		if n := held.last(); n < 10 {
			t.Fatalf("%d letters are published together", n)
		}
		other := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		if _, err := other.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1},
			Observe: func(broker.Event) {}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // one of two partitions has gone to it
		close(held.go_)
		time.Sleep(time.Second)
		if held.cut() {
			t.Error("the publish was cut off")
		}
		if n := len(b.Messages("dead")); n < 20 {
			t.Errorf("%d letters", n)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		_ = other.Close(t.Context())
	})
}

// holding publishes when it is told to.
type holding struct {
	broker.Publisher
	go_ chan struct{}

	mu   sync.Mutex
	n    int
	over error
}

func (p *holding) Publish(ctx context.Context, ms []broker.Outgoing) error {
	p.mu.Lock()
	p.n = len(ms)
	p.mu.Unlock()
	select {
	case <-p.go_:
	case <-ctx.Done():
		p.mu.Lock()
		p.over = context.Cause(ctx)
		p.mu.Unlock()
		return ctx.Err()
	}
	return p.Publisher.Publish(ctx, ms)
}

func (p *holding) last() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *holding) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over != nil
}
