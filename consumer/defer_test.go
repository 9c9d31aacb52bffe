package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestDeferForNothing: a handler that has a message wait for no time, and for nobody, is not called without end: its process
// would do nothing else.
func TestDeferForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Time().Add(time.Second).After(time.Now()) {
					return consumer.Defer(0, nil)
				}
				return nil
			}})
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if s := c.Stats(); s.Handled != 1 || s.Deferred < 500 || s.Deferred > 1000 {
			t.Errorf("%d handled, put off %d times in a second, want one and at most 1000", s.Handled, s.Deferred)
		}
		stop()
	})
}
