package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// begun are the calls of a limited handler: when, and of which offset.
type begun struct {
	mu      sync.Mutex
	times   []time.Time
	offsets []int64
}

func (b *begun) handle(_ context.Context, m *consumer.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.times, b.offsets = append(b.times, time.Now()), append(b.offsets, m.Offset)
	return nil
}

func (b *begun) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times)
}

// beyond is by how many calls more began than a rate and a burst allow, in whichever stretch of time.
func (b *begun) beyond(perSecond float64, burst int) (most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens, last := float64(burst), time.Time{}
	for _, at := range b.times {
		if !last.IsZero() {
			tokens = min(float64(burst), tokens+at.Sub(last).Seconds()*perSecond)
		}
		tokens, last = tokens-1, at
		most = max(most, int(-tokens+0.999))
	}
	return most
}

// TestRateLimitAfterALostClaim: messages whose claim is lost come again under another, and go on at the rate at once. The first
// had kept the turns that they were given, which nobody used any more: at 5/s 848 messages stood still for three minutes after
// each rebalance, and at one in two seconds for an hour.
func TestRateLimitAfterALostClaim(t *testing.T) {
	for _, tt := range []struct {
		perSecond float64
		burst     int
	}{{5, 1}, {5, 20}, {0.5, 1}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
				write(t, b, "in", 1500, noKey)
				var done begun
				c, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 4, Max: 4},
					Handler: limit(t, tt.perSecond, tt.burst).Middleware(done.handle)})
				const rounds, each = 5, 20 * time.Second
				for i := range rounds {
					time.Sleep(each)
					if s := c.Stats(); i == 0 && s.InFlight < 700 {
						t.Fatalf("%d messages wait here, want most", s.InFlight)
					}
					before := done.count()
					if err := b.Bounce("group", "in", 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(each)
					if n, want := done.count()-before, int(each.Seconds()*tt.perSecond); n < want-2 {
						t.Errorf("%d calls in %v after claim %d was lost, want %d", n, each, i+1, want)
					}
				}
				if n := done.beyond(tt.perSecond, tt.burst); n > 0 {
					t.Errorf("%d calls beyond the limit", n)
				}
				stop()
			})
		})
	}
}

// TestRateLimitOldestFirst: under a backlog to which more comes all the time, messages are handled in the order in which they
// came, and a new one does not take the token of one that waits.
func TestRateLimitOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var done begun
		c, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 16, Max: 16},
			Handler: limit(t, 20, 5).Middleware(done.handle)})
		for i := range 600 {
			write(t, b, "in", 1+i%7, noKey)
			time.Sleep(100 * time.Millisecond)
		}
		s := c.Stats()
		stop()
		if n := done.count(); n < 20*60 || n > 20*60+6 {
			t.Errorf("%d calls in a minute at 20/s with a burst of 5", n)
		}
		if n := done.beyond(20, 5); n > 0 {
			t.Errorf("%d calls beyond the limit", n)
		}
		sorted := slices.Sorted(slices.Values(done.offsets))
		for i, o := range done.offsets {
			if d := o - sorted[i]; d < -16 || d > 16 { // that many workers do not come in order
				t.Fatalf("call %d is of offset %d, and that of offset %d is due", i, o, sorted[i])
			}
		}
		if s.Deferred > 3*2400 { // each waits for 15 s, and looks after 10 s
			t.Errorf("2,400 messages were put off %d times", s.Deferred)
		}
	})
}

// TestRateLimitBehindBusyWorkers: messages whose turn comes while no worker is free keep their places, and do not begin all at
// once when there is one.
func TestRateLimitBehindBusyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "long": 1}})
		var done begun
		limited := limit(t, 5, 1).Middleware(done.handle)
		_, stop := consume(t, b, []string{"in", "long"}, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 1},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if m.Topic == "long" {
					time.Sleep(90 * time.Second)
					return nil
				}
				return limited(ctx, m)
			}})
		write(t, b, "in", 500, noKey)
		for range 3 {
			time.Sleep(10 * time.Second)
			write(t, b, "long", 1, noKey)
			time.Sleep(110 * time.Second)
		}
		stop()
		if n := done.beyond(5, 1); n > 0 {
			t.Errorf("%d calls beyond the limit", n)
		}
		if n := done.count(); n < 3*30*5-10 || !slices.IsSorted(done.offsets) {
			t.Errorf("%d calls in 90 s with a free worker, want 450; in order: %v", n, slices.IsSorted(done.offsets))
		}
	})
}

// TestRateLimitSetIsForThoseThatWait, at once: also where the turn of the first of them was an hour away.
func TestRateLimitSetIsForThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		write(t, b, "in", 101, noKey)
		var done begun
		l := limit(t, 0.0001, 1)
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Handler: l.Middleware(done.handle)})
		time.Sleep(time.Minute)
		for _, change := range []struct {
			perSecond float64
			burst     int
			want      int // calls in a second, from the beginning
		}{{0, 1, 1}, {10, 1, 11}, {0.001, 1, 11}, {20, 5, 31}, {0.001, 1, 31}, {1e9, 100, 101}} {
			if err := l.Set(change.perSecond, change.burst); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second + time.Millisecond)
			if n := done.count(); n < change.want-1 || n > change.want+1 {
				t.Errorf("%d calls a second after %+v", n, change)
			}
		}
		stop()
	})
}

// TestRateLimitLeavesThePoolAlone: a rate that the workers do not reach, since their handlers take long, and more to do than
// both. Each call out of the line left a worker idle for a moment, which made the pool forget that it needs all it has: it tried
// half of them each second, and did a quarter less.
func TestRateLimitLeavesThePoolAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 4}})
		var done begun
		trials := 0
		_, stop := consume(t, b, []string{"in"}, consumer.Config{Pool: consumer.Pool{Min: 1, Max: 16},
			Handler: limit(t, 100, 1).Middleware(func(ctx context.Context, m *consumer.Message) error {
				time.Sleep(300 * time.Millisecond)
				return done.handle(ctx, m)
			}),
			Observers: []consumer.Observer{func(e consumer.Event) {
				if s, ok := e.(consumer.Scaled); ok && s.Target < s.From {
					trials++
				}
			}}})
		const lasts = time.Minute
		for begin := time.Now(); time.Since(begin) < lasts; time.Sleep(5 * time.Millisecond) {
			write(t, b, "in", 1, noKey)
		}
		n := done.count()
		stop()
		if could := int(16 * lasts / (300 * time.Millisecond)); n < could*9/10 || trials > 3 {
			t.Errorf("%d calls of %d that 16 workers could have made, and %d times fewer workers; want nine tenths, and 3 at most",
				n, could, trials)
		}
	})
}
