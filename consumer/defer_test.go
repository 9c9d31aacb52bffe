package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestDeferForNothing: a handler that has a message wait for no time, and for nobody, is not called without end: its process
// would do nothing else.
func TestDeferForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(_ context.Context, m *consumer.Message) error {
				if m.Time().Add(time.Second).After(time.Now()) {
					return consumer.Defer(0, nil)
				}
				return nil
			}})
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if s := c.Stats(); s.Handled != 1 || s.Deferred < 500 || s.Deferred > 1000 {
			t.Errorf("%d handled, put off %d times in a second, want one and at most 1000", s.Handled, s.Deferred)
		}
		stop()
	})
}

// TestDeferJoined: a handler that goes through parts and joins what they say has failed where one of them has. Put off for the
// sake of another part, the message would come again and again, with no attempt and nothing told.
func TestDeferJoined(t *testing.T) {
	full, later := errors.New("disk full"), consumer.Defer(time.Second, nil)
	for name, c := range map[string]struct {
		err      error
		deferred bool
	}{
		"alone":             {later, true},
		"wrapped":           {fmt.Errorf("part: %w", later), true},
		"two":               {errors.Join(later, consumer.Defer(time.Minute, nil)), true},
		"with a skip":       {errors.Join(consumer.Skip("old"), later), true},
		"skips":             {errors.Join(consumer.Skip("old"), nil), false},
		"with an error":     {errors.Join(later, full), false},
		"after an error":    {errors.Join(full, later), false},
		"wrapped, joined":   {fmt.Errorf("parts: %w", errors.Join(later, full)), false},
		"with a permanent":  {errors.Join(later, consumer.Permanent(full)), false},
		"an error told, %v": {fmt.Errorf("%w: behind: %v", later, full), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := consumer.IsDeferred(c.err); got != c.deferred {
				t.Errorf("IsDeferred says %v, want %v", got, c.deferred)
			}
			synctest.Test(t, func(t *testing.T) {
				b, calls := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}}), 0
				r, stop := quiet(t, consumer.Config{
					Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
					Handler: func(context.Context, *consumer.Message) error {
						if calls++; calls > 1 {
							return nil
						}
						return c.err
					}})
				if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				s := r.Stats()
				if want := name != "skips"; (s.Handled == 1) != want || (s.Deferred == 1) != c.deferred ||
					(s.Failed == 1) != (want && !c.deferred) {
					t.Errorf("handled %d, put off %d, failed %d times", s.Handled, s.Deferred, s.Failed)
				}
				stop()
			})
		})
	}
}

func TestDeferDelay(t *testing.T) {
	wakes := func(func() bool) {}
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"none":                {errors.New("x"), 0},
		"wrapped":             {fmt.Errorf("outer: %w", consumer.Defer(time.Minute, nil)), time.Minute},
		"for no time":         {consumer.Defer(0, nil), time.Millisecond},
		"woken":               {consumer.Defer(time.Minute, wakes), 0},
		"joined with a Skip":  {errors.Join(consumer.Skip("x"), consumer.Defer(time.Minute, nil)), time.Minute},
		"joined with a fault": {errors.Join(errors.New("x"), consumer.Defer(time.Minute, nil)), 0},
	} {
		if got := consumer.DeferDelay(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDeferByALimit: a limit has what wakes its messages, and a handler that only waits for a time has none: it is at no limit.
func TestDeferByALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var wake func() bool
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch {
				case string(m.Value) == "waits":
					return consumer.Defer(time.Hour, nil)
				case wake == nil:
					return consumer.Defer(time.Hour, func(w func() bool) { wake = w })
				}
				return nil
			}})
		for _, text := range []string{"waits", "is limited"} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if s := c.Stats(); s.Deferred != 2 || s.Limited != 1 || s.PutOff != 2 || s.AtLimit != 1 {
			t.Errorf("put off %d calls, %d by a limit; %d wait, %d for a limit", s.Deferred, s.Limited, s.PutOff, s.AtLimit)
		}
		wake()
		time.Sleep(time.Second)
		if s := c.Stats(); s.Handled != 1 || s.Limited != 1 || s.PutOff != 1 || s.AtLimit != 0 {
			t.Errorf("woken: %d handled, put off %d calls by a limit; %d wait, %d for a limit", s.Handled, s.Limited, s.PutOff, s.AtLimit)
		}
		stop()
	})
}

// TestSkipsAreProgress: a consumer that skips all that comes is at work.
func TestSkipsAreProgress(t *testing.T) {
	for name, cfg := range map[string]consumer.Config{
		"one by one": {Handler: func(context.Context, *consumer.Message) error { return consumer.Skip("had before") }},
		"batches": {Batch: &consumer.Batch{Size: 2, Handler: func(context.Context, []*consumer.Message) error {
			return consumer.Skip("had before")
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				cfg.Source = b.Source(membroker.SourceConfig{Topics: []string{"in"}})
				c, stop := quiet(t, cfg)
				for range 2 {
					if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if s := c.Stats(); s.Skipped != 2 || s.Handled != 0 || s.LastProgress.IsZero() || time.Since(s.LastProgress) > time.Minute {
					t.Errorf("%d skipped, %d handled, the last progress at %v", s.Skipped, s.Handled, s.LastProgress)
				}
				stop()
			})
		})
	}
}
