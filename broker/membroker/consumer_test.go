package membroker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// consumer is an opened source and what it said.
type consumer struct {
	*membroker.Source
	t testing.TB

	mu     sync.Mutex
	events []broker.Event
}

func (c *consumer) saw(e broker.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// kinds are those of the events that it was told, of these kinds, in their order.
func (c *consumer) kinds(of ...broker.Kind) (ks []broker.Kind) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if slices.Contains(of, e.Kind) {
			ks = append(ks, e.Kind)
		}
	}
	return ks
}

func (c *consumer) told(k broker.Kind) (es []broker.Event) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == k {
			es = append(es, e)
		}
	}
	return es
}

// open opens a source of the group "group" inside a bubble; the test's end closes it.
func open(t testing.TB, b *membroker.Broker, cfg membroker.SourceConfig, messages int) *consumer {
	t.Helper()
	c := &consumer{Source: b.Source(cfg), t: t}
	o := broker.Options{Budget: broker.Budget{Messages: messages, Bytes: 1 << 20}, Observe: c.saw}
	if _, err := c.Open(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// receive receives n messages.
func (c *consumer) receive(n int) []broker.Message {
	c.t.Helper()
	var ms []broker.Message
	for len(ms) < n {
		dst := make([]broker.Message, n-len(ms))
		k, err := c.Receive(dst)
		if err != nil {
			c.t.Fatal(err)
		}
		ms = append(ms, dst[:k]...)
	}
	return ms
}

func (c *consumer) ack(ms ...broker.Message) error {
	var errs []error
	for _, m := range ms {
		errs = append(errs, c.Ack(m.Claim, []uint64{m.Token}))
	}
	return errors.Join(errs...)
}

func produce(t testing.TB, b *membroker.Broker, topic string, n int) {
	t.Helper()
	for range n {
		if err := b.Produce(broker.Outgoing{Topic: topic, Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
}

// both runs a test on both kinds of broker, in a bubble.
func both(t *testing.T, f func(t *testing.T, c membroker.Config)) {
	for name, leased := range map[string]bool{"partitioned": false, "leased": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, membroker.Config{Leased: leased, Topics: orders, Lease: time.Second})
			})
		})
	}
}
