package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestPutOffBeyondItsLease: a process stands still for longer than its leases while messages wait here for a limit. Others handle
// them meanwhile, and it does not handle them again, one by one, for as long as the limit takes for what it had.
func TestPutOffBeyondItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"in": 1}, Lease: lease})
		src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		var late atomic.Int32
		_, stop := quiet(t, consumer.Config{Source: src, Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Time().Add(5 * lease).After(time.Now()) {
				return consumer.Defer(6*lease, nil)
			}
			late.Add(1)
			return nil
		}})
		defer stop()
		for range 20 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		src.Freeze()
		other, end := quiet(t, consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		defer end()
		time.Sleep(3 * lease)
		src.Thaw()
		time.Sleep(6 * lease)
		if n := other.Stats().Handled; n != 20 {
			t.Errorf("the other process handled %d, want all 20", n)
		}
		if n := late.Load(); n != 0 {
			t.Errorf("%d were handled again by the one that had stood still, want none", n)
		}
	})
}
