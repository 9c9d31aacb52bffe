package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestOutageOfQuickFailuresIsNoPace: what a downstream that is down refuses at once is not taken for what handlers do. When it is
// back the pool has the workers that it had, and not a few because calls take a hundred times as long as the refusals did.
func TestOutageOfQuickFailuresIsNoPace(t *testing.T) {
	auto, fixed := outagePlay(t, 1), outagePlay(t, 64)
	if auto < fixed*9/10 {
		t.Errorf("%d messages handled after the outage, want nine tenths of the %d of a fixed pool", auto, fixed)
	}
}

// outagePlay is how many messages a consumer of at least so many workers, and 64 at most, handles in the 12 s after an outage.
func outagePlay(t *testing.T, least int) (after int64) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 8}})
		var down atomic.Bool
		var done atomic.Int64
		dice := rand.New(rand.NewPCG(1, 2))
		times := make([]time.Duration, 1<<12) // as those of a Poisson process
		for i := range times {
			times[i] = time.Duration(100e6 * dice.ExpFloat64())
		}
		var calls atomic.Int64
		r := start(t, b, consumer.Config{
			Pool:  consumer.Pool{Min: least, Max: 64},
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: 100 * time.Millisecond, Max: time.Second}},
			Handler: func(context.Context, *consumer.Message) error {
				took := times[calls.Add(1)%int64(len(times))]
				if down.Load() {
					time.Sleep(took / 100)
					return errors.New("connection refused")
				}
				time.Sleep(took)
				done.Add(1)
				return nil
			},
		})
		load := func(lasts time.Duration) int64 { // nine tenths of what 64 workers can do
			was, begin, n := done.Load(), time.Now(), 0
			for time.Since(begin) < lasts {
				for ; float64(n) < 576*time.Since(begin).Seconds(); n++ {
					if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Millisecond)
			}
			return done.Load() - was
		}
		load(20 * time.Second)
		down.Store(true)
		load(30 * time.Second)
		down.Store(false)
		after = load(12 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
	return after
}

// TestQuickFailureIsNoCall: for the pool, where others take longer and come to something. A slow one is a call, and so is what
// fails where nothing else is known, a refusal that the handler names, and what is through.
func TestQuickFailureIsNoCall(t *testing.T) {
	failed, panics := errors.New("no"), errors.New("panics")
	for name, c := range map[string]struct {
		good, bad time.Duration
		err       error
		want      int64 // calls, of 20 that end well and 20 that do not
	}{
		"quick":              {time.Second, time.Millisecond, failed, 20},
		"at half of it":      {time.Second, time.Second / 2, failed, 40},
		"quick panic":        {time.Second, time.Millisecond, panics, 20},
		"slow":               {time.Second, 10 * time.Second, failed, 40},
		"slow panic":         {time.Second, 10 * time.Second, panics, 40},
		"quick as all":       {time.Millisecond, time.Millisecond, failed, 40},
		"a downstream full":  {time.Second, time.Millisecond, consumer.Overloaded(failed, 0), 40},
		"before all succeed": {0, time.Millisecond, failed, 20},
		"skipped":            {time.Second, time.Millisecond, consumer.Skip("known"), 40},
		"permanent":          {time.Second, time.Millisecond, consumer.Permanent(failed), 40},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				onEach(t, func(t *testing.T, b *membroker.Broker) {
					var bad atomic.Bool
					handle := func() error {
						if bad.Load() {
							time.Sleep(c.bad)
							if c.err == panics {
								panic(panics)
							}
							return c.err
						}
						time.Sleep(c.good)
						return nil
					}
					cfg := consumer.Config{Pool: consumer.Pool{Min: 1, Max: 4},
						Retry:   consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
						Handler: func(context.Context, *consumer.Message) error { return handle() }}
					if batch {
						cfg.Handler = nil
						cfg.Batch = &consumer.Batch{Size: 5,
							Handler: func(context.Context, []*consumer.Message) error { return handle() }}
					}
					r := start(t, b, cfg)
					if c.good > 0 {
						produce(t, b, 20)
						time.Sleep(time.Minute)
					}
					bad.Store(true)
					produce(t, b, 20)
					time.Sleep(10 * time.Minute)
					if s := r.Stats(); s.Pool.Done != c.want || s.Failed+s.Skipped != 20 {
						t.Errorf("batch %v: %d calls, %d failed; want %d and 20", batch, s.Pool.Done, s.Failed, c.want)
					}
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// A batch of which some come to something is calls, however quick: what succeeded is counted as handled.
func TestQuickFailureInABatch(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		var bad atomic.Bool
		r := start(t, b, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 4},
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
			Batch: &consumer.Batch{Size: 5, Handler: func(_ context.Context, ms []*consumer.Message) error {
				if !bad.Load() {
					time.Sleep(time.Second)
					return nil
				}
				errs := make([]error, len(ms))
				errs[0] = errors.New("no")
				return &consumer.BatchError{Errs: errs}
			}}})
		produce(t, b, 20)
		time.Sleep(time.Minute)
		bad.Store(true)
		produce(t, b, 20)
		time.Sleep(10 * time.Minute)
		s := r.Stats()
		if s.Failed == 0 || s.Handled != 40-s.Failed || s.Pool.Done != 40 {
			t.Errorf("%d handled, %d failed, %d calls; want 40 calls, and each one or the other", s.Handled, s.Failed, s.Pool.Done)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
