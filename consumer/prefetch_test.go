package consumer

import (
	"context"
	"errors"
	"sync/atomic"
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

// TestBudgetLooks: a look is soon where much happens, and never later than half a second where messages are here.
func TestBudgetLooks(t *testing.T) {
	for _, tt := range []struct {
		name               string
		same, few, nothing bool
		want               time.Duration // after many looks
	}{
		{"it wants another budget", false, true, true, prefetchEvery},
		{"many are handled", true, false, false, prefetchEvery},
		{"few are handled, or one takes long", true, true, false, prefetchTime},
		{"nothing to do", true, true, true, prefetchRarely},
	} {
		wait := prefetchEvery
		for range 20 {
			wait = nextLook(wait, tt.same, tt.few, tt.nothing)
		}
		if wait != tt.want {
			t.Errorf("%s: a look every %v, want %v", tt.name, wait, tt.want)
		}
	}
}

// TestQuietConsumerLooksRarely: a consumer that has nothing to do looks at its budgets less and less often, and at once when a
// message comes.
func TestQuietConsumerLooksRarely(t *testing.T) {
	looks := 0
	for at, wait := time.Duration(0), prefetchEvery; at < time.Hour; at += wait {
		wait = nextLook(wait, true, true, true)
		looks++
	}
	if looks > 370 {
		t.Errorf("%d looks in an hour", looks)
	}
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Minute})
		source := &rebudgeted{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		c, err := New(Config{Source: source, Pool: Pool{Max: 1}, Handler: func(context.Context, *Message) error {
			time.Sleep(time.Second)
			return RetryAfter(errors.New("429"), time.Hour)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Hour + time.Second/2) // the next look by time is seconds away
		for range 100 {
			if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
				t.Fatal(err)
			}
		}
		if before := source.sets.Load(); before > 0 {
			t.Errorf("the budget was set %d times with nothing to do", before)
		}
		time.Sleep(2 * prefetchEvery)
		if c.till.rested.Load() {
			t.Error("it rests with messages here")
		}
		time.Sleep(90 * time.Second) // some wait for their retry, and take nobody's place
		if source.sets.Load() == 0 {
			t.Error("the budget was never set, though messages wait for no worker")
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestBudgetBesideASourceWithoutOne: the first source has all of its part and cannot change it; the second one begins with few,
// and has more when its handlers turn out to be quick.
func TestBudgetBesideASourceWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "a": 1}})
		fixed := struct{ broker.Source }{b.Source(membroker.SourceConfig{Group: "a", Topics: []string{"a"}})}
		source := &rebudgeted{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		c, err := New(Config{Sources: []Input{{Source: fixed}, {Source: source}}, Pool: Pool{Max: 1},
			Handler: func(context.Context, *Message) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		for range 1000 {
			if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if source.sets.Load() == 0 {
			t.Error("its budget was never set")
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// rebudgeted counts how often its budget is set.
type rebudgeted struct {
	*membroker.Source
	sets atomic.Int64
}

func (r *rebudgeted) SetBudget(b broker.Budget) {
	r.sets.Add(1)
	r.Source.SetBudget(b)
}
