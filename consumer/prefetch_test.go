package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

func TestPrefetch(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		limit, max, live, waiting int
		mean                      time.Duration
		want                      int
	}{
		{"unknown: two for each worker there may be", 4096, 64, 1, 0, 0, 128},
		{"30 s handlers hoard nothing", 4096, 64, 64, 0, 30 * time.Second, 129},
		{"5 ms handlers, half a second of work", 4096, 64, 20, 0, 5 * time.Millisecond, 128 + 2000},
		{"short handlers take all of the budget", 4096, 64, 1, 0, 10 * time.Nanosecond, 4096},
		{"what waits for no worker takes nobody's place", 4096, 64, 64, 500, 30 * time.Second, 629},
		{"never above the budget", 100, 64, 64, 0, time.Second, 100},
	} {
		if got := prefetch(tt.limit, tt.max, tt.live, tt.waiting, 0, tt.mean); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// What waits for its retry takes nothing from what workers could do meanwhile.
func TestParkedMessagesDoNotStopTheIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute})
		c, err := New(Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Pool: Pool{Max: 1},
			Handler: func(context.Context, *Message) error {
				time.Sleep(500 * time.Millisecond)
				return RetryAfter(errors.New("429"), time.Hour)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(3 * time.Minute)
		if n := c.Stats().Parked; n != 200 {
			t.Errorf("%d of 200 messages were received, and the workers are idle", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
