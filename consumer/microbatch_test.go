package consumer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Beside a backlog workers take several messages at a time. They still ack each when its handler has returned: a crash would
// repeat one of each worker, not several.
func TestMicroBatchesAckEach(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		const workers, n = 16, 3000
		produce(t, b, n)
		var returned, most atomic.Int64
		var r *running
		started := make(chan struct{})
		budget := broker.Budget{Messages: 400, Bytes: 1 << 20} // most come when it is known how long they take
		r = start(t, b, consumer.Config{Budget: budget, Pool: consumer.Pool{Min: workers, Max: workers},
			Handler: func(context.Context, *consumer.Message) error {
				<-started
				if open := returned.Load() - r.Stats().Handled; open > most.Load() {
					most.Store(open)
				}
				time.Sleep(time.Millisecond)
				returned.Add(1)
				return nil
			}})
		close(started)
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
		if n := most.Load(); n > workers {
			t.Errorf("%d messages were finished and not acked, with %d workers", n, workers)
		}
		if !slices.ContainsFunc(eventsOf[consumer.Handled](r.journal), func(h consumer.Handled) bool { return h.N > 1 }) {
			t.Error("no worker took several messages at a time")
		}
	})
}

// Where there are workers to spare, messages do not wait for one another.
func TestNoMicroBatchesForFew(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 8, Max: 8}, Handler: func(context.Context, *consumer.Message) error {
			time.Sleep(time.Millisecond)
			return nil
		}})
		produce(t, b, 200) // so that it is known how long they take
		time.Sleep(time.Second)
		produce(t, b, 8)
		begin := time.Now()
		for r.Stats().Handled < 208 {
			time.Sleep(100 * time.Microsecond)
		}
		if d := time.Since(begin); d > 3*time.Millisecond {
			t.Errorf("8 messages of 1 ms took 8 workers %v", d)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
