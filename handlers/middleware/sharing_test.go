package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// member runs a process of the group "group" on topic in, whose calls go through wrap, which is given its source.
func member(
	t *testing.T, b *membroker.Broker, wrap func(*membroker.Source) consumer.Middleware, h consumer.Handler,
) (leave func()) {
	t.Helper()
	return memberOf(t, b, consumer.Pool{Min: 16, Max: 16}, wrap, h)
}

// memberOf is member with so many workers.
func memberOf(
	t *testing.T, b *membroker.Broker, workers consumer.Pool, wrap func(*membroker.Source) consumer.Middleware, h consumer.Handler,
) (leave func()) {
	t.Helper()
	source := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	c, err := consumer.New(consumer.Config{Source: source, Pool: workers, Handler: wrap(source)(h)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// sharedCalls is a limit of all processes together.
func sharedCalls(t *testing.T, limit int, s broker.Sharer) *middleware.ConcurrencyLimit {
	t.Helper()
	l, err := middleware.NewConcurrencyLimit(limit)
	if err == nil {
		err = l.ShareBy(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// spread writes n messages to each of the partitions of topic in.
func spread(t *testing.T, b *membroker.Broker, partitions int32, n int) {
	t.Helper()
	for p := range partitions {
		for i := range n {
			if err := b.Produce(broker.Outgoing{Topic: "in", Partition: &p, Value: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// settling is for how long partitions may be on their way to another process.
const settling = 5 * time.Second

// TestSharedRateLimit: processes that share a rate call as often as it says together, however many they are, and what one leaves
// the others take up.
func TestSharedRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, burst = 120, 12
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 12}})
		spread(t, b, 12, 1500)
		var all begun
		wrap := func(s *membroker.Source) consumer.Middleware {
			l := limit(t, perSecond, burst)
			if err := l.ShareBy(s); err != nil {
				t.Fatal(err)
			}
			return l.Middleware
		}
		stretch := func(what string) {
			t.Helper()
			time.Sleep(settling)
			before := all.count()
			time.Sleep(10 * time.Second)
			if n := all.count() - before; n < 10*perSecond*97/100 || n > 10*perSecond+burst {
				t.Errorf("%s: %d calls in 10 s, want %d", what, n, 10*perSecond)
			}
		}
		var leave []func()
		for i := range 3 {
			leave = append(leave, member(t, b, wrap, all.handle))
			stretch(fmt.Sprint(i+1, " processes"))
		}
		for i, left := range leave {
			left()
			if i < 2 {
				stretch(fmt.Sprint(i+1, " have left"))
			}
		}
		if n := all.beyond(perSecond, burst); n > 3 { // each may begin one at once
			t.Errorf("%d calls more than %d a second and %d at once", n, perSecond, burst)
		}
	})
}

// TestSharedConcurrencyLimit: no more calls run in all processes together than the limit says, and all that it allows are used.
// While partitions are on their way, what was begun before runs on.
func TestSharedConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 12
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 12}})
		spread(t, b, 12, 1500)
		var running, peak, calls atomic.Int64
		wrap := func(s *membroker.Source) consumer.Middleware { return sharedCalls(t, most, s).Middleware }
		handle := func(context.Context, *consumer.Message) error {
			defer running.Add(-1)
			peak.Store(max(peak.Load(), running.Add(1)))
			calls.Add(1)
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		var leave []func()
		for range 4 {
			leave = append(leave, member(t, b, wrap, handle))
			time.Sleep(settling) // what was begun before runs on
			peak.Store(0)
			before := calls.Load()
			time.Sleep(10 * time.Second)
			if n, want := calls.Load()-before, int64(10*10*most); n < want*95/100 {
				t.Errorf("%d processes: %d calls in 10 s, want %d", len(leave), n, want)
			}
			if peak.Load() > most {
				t.Errorf("%d processes: %d calls at once, want at most %d", len(leave), peak.Load(), most)
			}
		}
		for _, left := range leave {
			left()
		}
	})
}

// A fixed share is that of a source.
type fixed struct {
	share broker.Share
	err   error
}

func (f *fixed) Share() (broker.Share, error) { return f.share, f.err }

// TestShareBySources: the part is that of all sources together, and the settings are those of all processes.
func TestShareBySources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, retries := &fixed{share: broker.Share{Held: 3, All: 11}}, &fixed{share: broker.Share{All: 1}}
		rate := limit(t, 100, 10)
		calls, err := middleware.NewConcurrencyLimit(10)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []interface {
			ShareBy(...broker.Sharer) error
			Share() (float64, bool)
		}{rate, calls} {
			if part, shared := l.Share(); part != 1 || shared {
				t.Errorf("%T: not shared, and its part is %v, %v", l, part, shared)
			}
			if err := l.ShareBy(orders, retries); err != nil {
				t.Fatal(err)
			}
			if part, shared := l.Share(); part != 0.25 || !shared {
				t.Errorf("%T: the part is %v, %v, want that of all sources together, 0.25", l, part, shared)
			}
			unknown := &fixed{err: errors.New("nobody knows who else reads")}
			if err := l.ShareBy(orders, unknown); err == nil || !strings.Contains(err.Error(), "nobody knows who else reads") {
				t.Errorf("%T: shared by a source that cannot tell: %v", l, err)
			}
			if l.ShareBy() == nil || l.ShareBy(nil) == nil {
				t.Errorf("%T: shared by no source", l)
			}
		}
		if err := rate.Change(map[string]float64{"per_second": 50}); err != nil || rate.Settings()["per_second"] != 50 {
			t.Errorf("%v, %v", err, rate.Settings())
		}
	})
}

// TestShareOfNothing: a process that has no part of the work, or does not know, calls nobody, whatever it has saved up; and it
// goes on soon after it has one.
func TestShareOfNothing(t *testing.T) {
	for what, shared := range map[string]func(broker.Sharer) consumer.Middleware{
		"rate_limit": func(s broker.Sharer) consumer.Middleware {
			l := limit(t, 1000, 5)
			if err := l.ShareBy(s); err != nil {
				t.Fatal(err)
			}
			return l.Middleware
		},
		"concurrency_limit": func(s broker.Sharer) consumer.Middleware { return sharedCalls(t, 5, s).Middleware },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
				spread(t, b, 1, 20)
				var share shareOf
				var done begun
				defer member(t, b, func(*membroker.Source) consumer.Middleware { return shared(&share) }, done.handle)()
				time.Sleep(time.Minute)
				if n := done.count(); n > 0 {
					t.Errorf("%d calls without a share", n)
				}
				share.held.Store(1)
				time.Sleep(2 * time.Second)
				if n := done.count(); n != 20 {
					t.Errorf("%d of 20 calls 2 s after it has a share", n)
				}
			})
		})
	}
}

// shareOf is a share of 2 parts that changes.
type shareOf struct{ held, asked atomic.Int64 }

func (s *shareOf) Share() (broker.Share, error) {
	s.asked.Add(1)
	return broker.Share{Held: int(s.held.Load()), All: 2}, nil
}

// TestShareIsForgotten: when a consumer has ended, what waited for a shared limit waits there no more, and nobody looks again: a
// service that begins and ends consumers would keep each of them.
func TestShareIsForgotten(t *testing.T) {
	for what, shared := range map[string]func(broker.Sharer) consumer.Middleware{
		"rate_limit": func(s broker.Sharer) consumer.Middleware {
			l := limit(t, math.Inf(1), 5)
			if err := l.ShareBy(s); err != nil {
				t.Fatal(err)
			}
			return l.Middleware
		},
		"concurrency_limit": func(s broker.Sharer) consumer.Middleware { return sharedCalls(t, math.MaxInt, s).Middleware },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
			spread(t, b, 1, 20)
			var share shareOf
			var done begun
			leave := member(t, b, func(*membroker.Source) consumer.Middleware { return shared(&share) }, done.handle)
			time.Sleep(time.Minute)
			leave()
			time.Sleep(5 * time.Second)
			asked := share.asked.Load()
			time.Sleep(time.Minute)
			if n := share.asked.Load() - asked; n > 0 || asked < 50 || done.count() > 0 {
				t.Errorf("%s: looked %d times, and %d times after the end; %d calls without a share", what, asked, n, done.count())
			}
		})
	}
}

// A limit of what all processes of a group together may do: each has the part of it that it has of the partitions. This one is
// alone, and has all of them.
func ExampleRateLimit_ShareBy() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"payments": 12}})
	_ = b.Produce(broker.Outgoing{Topic: "payments", Value: []byte("tea")})
	source := b.Source(membroker.SourceConfig{Group: "billing", Topics: []string{"payments"}})

	limit, err := middleware.NewRateLimit(300, 30)
	if err == nil {
		err = limit.ShareBy(source)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	c, err := consumer.New(consumer.Config{Source: source, Handler: limit.Middleware(
		func(_ context.Context, m *consumer.Message) error {
			part, _ := limit.Share()
			fmt.Printf("%s is charged; %.0f of 300 calls a second are this process's\n", m.Value, 300*part)
			stop()
			return nil
		})})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: tea is charged; 300 of 300 calls a second are this process's
}
