package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A handler that panics has failed, whatever it panics with: an error of ours in it, of a helper's that was passed to panic,
// neither acks the message nor puts it off, gives it up at once, or says when it comes again.
func TestPanicValueDecidesNothing(t *testing.T) {
	for name, value := range map[string]error{
		"skip": consumer.Skip("a helper's"), "defer": consumer.Defer(time.Second, nil),
		"batch": &consumer.BatchError{Errs: make([]error, 1)}, "permanent": consumer.Permanent(errors.New("bad")),
		"undecodable": consumer.Undecodable(errors.New("bad")), "overloaded": consumer.Overloaded(errors.New("busy"), 0),
		"retry after": fmt.Errorf("later: %w", consumer.RetryAfter(errors.New("busy"), time.Hour)),
	} {
		for _, batch := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) {
					produce(t, b, 1)
					cfg := consumer.Config{
						Retry: consumer.Retry{MaxAttempts: 2}, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
						Handler: func(context.Context, *consumer.Message) error { panic(value) },
					}
					if batch {
						cfg.Handler = nil
						cfg.Batch = &consumer.Batch{Size: 1, Handler: func(context.Context, []*consumer.Message) error { panic(value) }}
					}
					r := start(t, b, cfg)
					time.Sleep(time.Minute)
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
					if s := r.Stats(); s.Failed != 2 || s.DeadLettered != 1 || s.Skipped+s.Handled+s.Deferred != 0 {
						t.Errorf("batch %v: %d failed, %d dead-lettered, %d skipped, %d handled, %d deferred; want 2 and 1", batch, s.Failed,
							s.DeadLettered, s.Skipped, s.Handled, s.Deferred)
					}
					for _, f := range eventsOf[consumer.Failed](r.journal) {
						if f.Class != "panic" {
							t.Errorf("batch %v: class %s", batch, f.Class)
						}
					}
				})
			})
		}
	}
}
