package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Each process here is stopped while its handler runs, so that a delivery is used up and no attempt. A broker's count of
// deliveries is an upper bound: it ends a message from three times MaxAttempts on, and with a failed run only.
func TestDeliveriesWithoutRunsEndAMessageFarBeyondItsAttempts(t *testing.T) {
	for _, c := range []struct {
		kind    string
		stopped int
		letters int
	}{
		{"leased", 4, 0}, // the failed run is of the fifth delivery, of 3 × 2
		{"leased", 5, 1},
		{"partitioned", 5, 0},
	} {
		t.Run(fmt.Sprintf("%s, %d stopped", c.kind, c.stopped), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(kinds[c.kind])
				produce(t, b, 1)
				cfg := consumer.Config{
					DrainTimeout: time.Second,
					Retry:        consumer.Retry{MaxAttempts: 2, Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
					DeadLetter:   &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Handler: func(ctx context.Context, _ *consumer.Message) error {
						<-ctx.Done()
						return ctx.Err()
					},
				}
				for range c.stopped {
					r := start(t, b, cfg)
					time.Sleep(time.Second)
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
				}
				if n := len(b.Messages("dead")); n != 0 {
					t.Fatalf("%d dead letters before a run has failed", n)
				}
				cfg.Handler = func(context.Context, *consumer.Message) error { return errors.New("boom") }
				r := start(t, b, cfg)
				time.Sleep(time.Second)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if n := len(b.Messages("dead")); n != c.letters {
					t.Errorf("%d dead letters after one failed run, want %d", n, c.letters)
				}
			})
		})
	}
}
