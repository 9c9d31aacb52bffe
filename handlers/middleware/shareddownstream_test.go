package middleware_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestSharedDownstream is of processes that call one downstream, which works ever less as more calls are in it than it can do at
// a time. One alone finds the size. Several do not see each other: whoever takes more workers takes from the others, too, so that
// each is right to grow, and all have less of it. A limit that they share holds them to what the downstream can do. What comes of
// that is printed, with LONGSHORE_SCENARIOS=1, beside fixed pools that have the right size together: docs/scaling.md says what to
// do.
func TestSharedDownstream(t *testing.T) {
	plays, replicas, long := []downstreamPlay{{1, 64, 0}, {1, 64, collapsesAt}}, []int{1, 4}, 40*time.Second
	if os.Getenv("LONGSHORE_SCENARIOS") != "" {
		plays, replicas, long = append(plays, downstreamPlay{1, 16, 0}), []int{1, 2, 3, 4}, 2*time.Minute
	}
	for _, n := range replicas {
		fixed := float64(sharedPlay(t, n, long, downstreamPlay{least: collapsesAt / n, most: collapsesAt / n}))
		for _, play := range plays {
			share := float64(sharedPlay(t, n, long, play)) / fixed
			t.Logf("%d consumers, %+v: %.2f of the messages of %d fixed workers", n, play, share, collapsesAt)
			if n == 1 && play == plays[0] && share < 0.6 {
				t.Errorf("one consumer handled %.2f of what a fixed pool does", share)
			}
			if play.limit > 0 && share < 0.9 {
				t.Errorf("%d consumers that share a limit handled %.2f of what fixed pools do", n, share)
			}
		}
	}
}

// A downstreamPlay is how consumers of one downstream are set up.
type downstreamPlay struct {
	least, most int // workers of each
	limit       int // of the calls at once of all; 0: there is none
}

// collapsesAt is how many calls the downstream can do at a time. With twice as many each takes four times as long.
const collapsesAt = 24

// sharedPlay is how many messages consumers handle, at nine tenths of what the downstream can do.
func sharedPlay(t *testing.T, consumers int, long time.Duration, play downstreamPlay) (handled int64) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 8}})
		var calls, done atomic.Int64
		handle := func(ctx context.Context, _ *consumer.Message) error {
			over := max(1, float64(calls.Add(1))/collapsesAt)
			defer calls.Add(-1)
			select {
			case <-time.After(time.Duration(50e6 * over * over * rand.ExpFloat64())):
				done.Add(1)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var leave []func()
		for range consumers {
			workers := consumer.Pool{Min: play.least, Max: play.most}
			leave = append(leave, memberOf(t, b, workers, func(s *membroker.Source) consumer.Middleware {
				if play.limit == 0 {
					return func(h consumer.Handler) consumer.Handler { return h }
				}
				return sharedCalls(t, play.limit, s).Middleware
			}, handle))
		}
		const rate = 0.9 * collapsesAt / 0.05
		for begin, n := time.Now(), 0; time.Since(begin) < long; time.Sleep(5 * time.Millisecond) {
			for ; float64(n) < rate*time.Since(begin).Seconds(); n++ {
				if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		handled = done.Load()
		for _, left := range leave {
			left()
		}
	})
	return handled
}
