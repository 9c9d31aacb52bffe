package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Each handled message is counted once, with all the time from its producer to its ack; what is skipped is not.
func TestLatency(t *testing.T) {
	for name, cfg := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(kinds["partitioned"])
				produceKeyed(t, b, 100, 10)
				time.Sleep(40 * time.Second) // nobody is there
				cfg := handling(cfg, func(_ context.Context, m *consumer.Message) error {
					if _, n := keyAndNumber(m); n == 3 {
						return consumer.Skip("not wanted")
					} else if n == 4 && m.Runs == 0 {
						return consumer.RetryAfter(errors.New("later"), 10*time.Minute)
					}
					return nil
				})
				r := start(t, b, cfg)
				time.Sleep(3 * time.Hour)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				of := map[time.Duration]int64{}
				all := int64(0)
				l := r.Latency()
				for i, n := range l.Buckets {
					all += n
					if i < len(l.Bounds) {
						of[l.Bounds[i]] = n
					}
				}
				if s := r.Stats(); all != s.Handled || all != 90 || of[time.Minute] == 0 || of[15*time.Minute] == 0 {
					t.Errorf("%d handled, %d counted: %v", s.Handled, all, of)
				}
				if low := 90*40*time.Second + 10*10*time.Minute; l.Sum < low || l.Sum > 90*3*time.Hour {
					t.Errorf("a sum of %v, want at least %v", l.Sum, low)
				}
			})
		})
	}
}
