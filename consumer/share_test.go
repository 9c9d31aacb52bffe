package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestHandledBesideFailures: the good messages of a batch have their share of its time, and not all of it: 10 of 100 that take a
// minute together are not 6 s each.
func TestHandledBesideFailures(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Max: 1}, Batch: &consumer.Batch{Size: 100, Linger: time.Second,
			Handler: func(_ context.Context, ms []*consumer.Message) error {
				time.Sleep(time.Duration(len(ms)) * 600 * time.Millisecond)
				errs := make([]error, len(ms))
				for i, m := range ms {
					if m.Runs == 0 && len(m.Value) == 2 {
						errs[i] = errors.New("not yet")
					}
				}
				return &consumer.BatchError{Errs: errs}
			}}})
		time.Sleep(time.Hour)
		n, took := 0, time.Duration(0)
		for _, e := range eventsOf[consumer.Handled](r.journal) {
			n, took = n+e.N, took+e.Took
			if each := e.Took / time.Duration(e.N); each != 600*time.Millisecond {
				t.Errorf("%d took %v each, want 600 ms", e.N, each)
			}
		}
		if n != 100 || took != time.Minute {
			t.Errorf("told of %d in %v, want 100 in a minute", n, took)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
