package consumer_test

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
// each is right to grow, and all have less of it. What comes of that is printed, with LONGSHORE_SCENARIOS=1, beside fixed pools
// that have the right size together: docs/scaling.md says what to do.
func TestSharedDownstream(t *testing.T) {
	replicas := []int{1}
	if os.Getenv("LONGSHORE_SCENARIOS") != "" {
		replicas = []int{1, 2, 3, 4}
	}
	for _, n := range replicas {
		for _, most := range []int{64, 16}[:min(n, 2)] {
			auto, fixed := sharedPlay(t, n, 1, most), sharedPlay(t, n, collapsesAt/n, collapsesAt/n)
			share := float64(auto) / float64(fixed)
			t.Logf("%d consumers of up to %d workers: %.2f of the messages of %d fixed ones", n, most, share, collapsesAt)
			if n == 1 && share < 0.6 {
				t.Errorf("one consumer handled %.2f of what a fixed pool does", share)
			}
		}
	}
}

// collapsesAt is how many calls the downstream can do at a time. With twice as many each takes four times as long.
const collapsesAt = 24

// sharedPlay is how many messages consumers handle in two minutes, at nine tenths of what the downstream can do.
func sharedPlay(t *testing.T, consumers, least, most int) (handled int64) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 8}})
		var calls, done atomic.Int64
		handle := func(context.Context, *consumer.Message) error {
			over := max(1, float64(calls.Add(1))/collapsesAt)
			time.Sleep(time.Duration(50e6 * over * over * rand.ExpFloat64()))
			calls.Add(-1)
			done.Add(1)
			return nil
		}
		var all []*running
		for range consumers {
			all = append(all, start(t, b, consumer.Config{Pool: consumer.Pool{Min: least, Max: most}, Handler: handle}))
		}
		const rate = 0.9 * collapsesAt / 0.05
		for begin, n := time.Now(), 0; time.Since(begin) < 2*time.Minute; time.Sleep(5 * time.Millisecond) {
			for ; float64(n) < rate*time.Since(begin).Seconds(); n++ {
				if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		handled = done.Load()
		for _, r := range all {
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	})
	return handled
}
