package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// noProgress is what the tests ask with; they look every second.
const noProgress = 10 * time.Second

// probe asks for d, and returns the last answer, and after how long the first failure came; 0: none did.
func (r *running) probe(d time.Duration) (first time.Duration, err error) {
	for begin := time.Now(); time.Since(begin) < d; {
		time.Sleep(time.Second)
		if err = r.Health(noProgress); err != nil && first == 0 {
			first = time.Since(begin)
		}
	}
	return first, err
}

func (r *running) wantHealthy(t *testing.T, what string, d time.Duration) {
	t.Helper()
	if first, err := r.probe(d); first > 0 {
		t.Errorf("%s: unhealthy after %v: %v", what, first, err)
	}
}

func (r *running) wantNoProgress(t *testing.T, what string, after time.Duration, words string) {
	t.Helper()
	first, err := r.probe(after + 5*time.Second)
	if !errors.Is(err, consumer.ErrNoProgress) || first < after || !strings.Contains(err.Error(), "orders") ||
		!strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v after %v, want ErrNoProgress after %v with the name and %q", what, err, first, after, words)
	}
}

// A source says what it is told to of its lag, and hands out nothing while it is wedged.
type odd struct {
	broker.Source
	waiting atomic.Int64
	held    atomic.Int64
	full    atomic.Bool
	stale   atomic.Bool
	wedged  atomic.Bool
	once    sync.Once // Stop may be called by several goroutines at once
	stopped chan struct{}
}

func newOdd(b *membroker.Broker) *odd {
	return &odd{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), stopped: make(chan struct{})}
}

func (o *odd) Lag() broker.Lag {
	l := broker.Lag{Waiting: o.waiting.Load(), Held: o.held.Load(), Unsettled: o.waiting.Load(), Full: o.full.Load(), At: time.Now()}
	if o.stale.Load() {
		l.At = time.Unix(1, 0)
	}
	return l
}

func (o *odd) Receive(ms []broker.Message) (int, error) {
	if o.wedged.Load() {
		<-o.stopped
		return 0, broker.ErrClosed
	}
	return o.Source.Receive(ms)
}

func (o *odd) Stop() {
	o.Source.Stop()
	o.once.Do(func() { close(o.stopped) })
}

// Every call fails, for minutes: what the handlers call is out, and a restart would not help.
func TestHealthTakesErrorsForLife(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 500)
		r := start(t, b, consumer.Config{Name: "orders", Pool: consumer.Pool{Max: 2},
			Handler: func(context.Context, *consumer.Message) error {
				time.Sleep(5 * time.Second)
				return errors.New("no route to host")
			}})
		r.wantHealthy(t, "errors only", 3*time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// One handler takes a quarter of an hour; others are quick, or there are none.
func TestHealthTakesALongHandlerForLife(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		release := make(chan struct{})
		r := start(t, b, consumer.Config{Name: "orders",
			Handler: func(context.Context, *consumer.Message) error { <-release; return nil }})
		r.wantHealthy(t, "idle", time.Minute)
		produce(t, b, 1)
		r.wantHealthy(t, "one long handler", 15*time.Minute)
		close(release)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Without a Timeout nobody knows what is too long: with work waiting and every worker in a handler, ten times noProgress is.
func TestHealthSeesThatAllHandlersHang(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		release := make(chan struct{})
		var once atomic.Bool
		r := start(t, b, consumer.Config{Name: "orders", Pool: consumer.Pool{Min: 3, Max: 3},
			Handler: func(context.Context, *consumer.Message) error {
				if once.CompareAndSwap(false, true) {
					time.Sleep(50 * time.Second) // its return is life
					return nil
				}
				<-release
				return nil
			}})
		produce(t, b, 1000)
		r.wantHealthy(t, "the last return is not long ago", 50*time.Second+10*noProgress-time.Second)
		r.wantNoProgress(t, "all hang", 0, "every worker (3)")
		close(release)
		r.wantHealthy(t, "after they have returned", 5*time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// What comes meanwhile for keys that hang begins nothing: it waits in their lanes, and is not even in the queue.
func TestHealthSeesThatAllLanesHang(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		release := make(chan struct{})
		r := start(t, b, consumer.Config{Name: "orders", Pool: consumer.Pool{Min: 4, Max: 4}, Order: consumer.OrderKey,
			Handler: func(context.Context, *consumer.Message) error { <-release; return nil }})
		put := func(key string) {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte("v")}); err != nil {
				t.Error(err)
			}
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			put(key)
		}
		time.Sleep(time.Second)
		put("e") // waits for a worker
		more, stop := context.WithCancel(t.Context())
		var produces sync.WaitGroup
		produces.Go(func() {
			for more.Err() == nil {
				put("a")
				time.Sleep(5 * time.Second)
			}
		})
		r.wantNoProgress(t, "all hang", 10*noProgress, "every worker (4)")
		stop()
		produces.Wait()
		close(release)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// With a Timeout the watchdog judges handlers: what runs within it is alive, though all workers do and it is longer than
// noProgress.
func TestHealthLeavesHandlersToTheirTimeout(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 100)
		r := start(t, b, consumer.Config{Name: "orders", Timeout: 5 * time.Minute, Pool: consumer.Pool{Max: 2},
			Handler: func(context.Context, *consumer.Message) error {
				time.Sleep(4 * time.Minute)
				return nil
			}})
		r.wantHealthy(t, "slow", 13*time.Minute)
		if err := r.end(); !errors.Is(err, consumer.ErrStuck) { // they ignore their contexts
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
	})
}

func TestHealthSeesAWedgedSource(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src := newOdd(b)
		r := start(t, b, consumer.Config{Name: "orders", Source: src,
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		src.waiting.Store(7)
		src.stale.Store(true)
		r.wantHealthy(t, "the lag is that of long ago", time.Minute)
		src.stale.Store(false)
		if err := r.Pause(); err != nil {
			t.Fatal(err)
		}
		r.wantHealthy(t, "paused", time.Minute)
		if err := r.Resume(); err != nil {
			t.Fatal(err)
		}
		r.wantNoProgress(t, "nothing is received", noProgress, "lag 7")
		b.Down()
		time.Sleep(5 * time.Second)
		r.wantHealthy(t, "no contact, of which readiness tells", time.Minute)
		b.Up()
		r.wantNoProgress(t, "contact and nothing received", noProgress, "received nothing")
		src.held.Store(7)
		r.wantHealthy(t, "paused at the broker", time.Minute)
		src.held.Store(6)
		r.wantNoProgress(t, "one of two is paused at the broker", noProgress, "received nothing")
		src.held.Store(0)
		src.waiting.Store(0)
		r.wantHealthy(t, "no lag", time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A slow handler hides no wedged source.
func TestHealthSeesAWedgedSourceBesideALongHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src, release := newOdd(b), make(chan struct{})
		src.waiting.Store(7)
		produce(t, b, 1)
		r := start(t, b, consumer.Config{Name: "orders", Source: src,
			Handler: func(context.Context, *consumer.Message) error { <-release; return nil }})
		r.wantNoProgress(t, "one handler and silence", noProgress, "with lag 7 and 1 in flight")
		close(release)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// One message that waits for its retry, or is long in its handler, fills the window of its partition: nothing of it can be
// received, and no restart would change that.
func TestHealthTakesAFullWindowForLife(t *testing.T) {
	for name, handle := range map[string]func() error{
		"a retry":        func() error { return consumer.RetryAfter(errors.New("429"), 10*time.Minute) },
		"a long handler": func() error { time.Sleep(10 * time.Minute); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				produce(t, b, 100)
				r := start(t, b, consumer.Config{
					Name: "orders", Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Window: 16}),
					Handler: func(_ context.Context, m *consumer.Message) error {
						if m.Offset == 3 {
							return handle()
						}
						return nil
					}})
				time.Sleep(time.Second)
				if s := r.Stats(); s.Lag.Waiting == 0 || s.Received == 100 {
					t.Fatalf("the window is not full: %+v", s)
				}
				r.wantHealthy(t, name, 9*time.Minute)
				if err := r.end(); err != nil && !errors.Is(err, consumer.ErrStuck) {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute) // the long handler returns
			})
		})
	}
}

// A window that is full of nothing that is here is the source's mistake.
func TestHealthSeesAWindowThatIsFullOfNothing(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src := &fullWindow{newOdd(b)}
		src.waiting.Store(7)
		produce(t, b, 1)
		r := start(t, b, consumer.Config{Name: "orders", Source: src,
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		r.wantNoProgress(t, "nothing is received", noProgress, "lag 7 and 0 in flight")
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A fullWindow says that it cannot take in anything.
type fullWindow struct{ *odd }

func (fullWindow) Window(*broker.Claim) float64 { return 1 }

// What is in a handler uses up the budget until it is settled, also when its claim has ended: nothing more can be received.
func TestHealthTakesALongHandlerOfALostClaimForLife(t *testing.T) {
	onPartitions(t, 1, func(t *testing.T, b *membroker.Broker) {
		src, release := newOdd(b), make(chan struct{})
		src.waiting.Store(7)
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 1<<10)}); err != nil {
			t.Fatal(err)
		}
		r := start(t, b, consumer.Config{
			Name: "orders", Source: src, Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 64, Bytes: 1 << 10},
			Handler: func(context.Context, *consumer.Message) error { <-release; return nil }})
		r.wantHealthy(t, "a long handler", time.Minute)
		if err := b.Steal("group", "in", 0); err != nil {
			t.Fatal(err)
		}
		r.wantHealthy(t, "its claim has ended", time.Minute)
		close(release)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// What waits for its delay or for the dead letters fills the budget, or the broker's bound of unsettled messages: silence is
// right then.
func TestHealthTakesWaitingForRetriesForLife(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src := newOdd(b)
		src.waiting.Store(100)
		produce(t, b, 8)
		r := start(t, b, consumer.Config{
			Name: "orders", Source: src, Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 8, Bytes: 1 << 20},
			Handler: func(context.Context, *consumer.Message) error {
				return consumer.RetryAfter(errors.New("429"), 10*time.Minute)
			}})
		r.wantHealthy(t, "all wait", 9*time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// While as many messages are out as the broker lets be out, over all processes, it gives none to one that has just started: a
// restart would change nothing.
func TestHealthTakesAFullBrokerForLife(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src := newOdd(b)
		src.waiting.Store(7)
		src.full.Store(true)
		r := start(t, b, consumer.Config{Name: "orders", Source: src, Pool: consumer.Pool{Max: 4},
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		r.wantHealthy(t, "the broker gives nobody more", 9*time.Minute)
		src.full.Store(false)
		r.wantNoProgress(t, "now it should", noProgress, "received nothing")
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Of several sources each has a part of the budget: what waits of one fills its part, and others may have nothing. One that has
// room, and messages at the broker, should give some all the same.
func TestHealthTakesWaitingOfOneSourceForLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "b": 1, "c": 1}})
		of := func(topic string) broker.Source {
			return b.Source(membroker.SourceConfig{Group: topic, Topics: []string{topic}})
		}
		other := newOdd(b)
		other.Source = of("c")
		produce(t, b, 100)
		r := start(t, b, consumer.Config{
			Name: "orders", Sources: []consumer.Input{{Source: of("in")}, {Source: of("b")}, {Source: other}},
			Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 24, Bytes: 1 << 20},
			Handler: func(context.Context, *consumer.Message) error {
				return consumer.RetryAfter(errors.New("429"), 10*time.Minute)
			}})
		r.wantHealthy(t, "all wait", 9*time.Minute)
		other.waiting.Store(7)
		r.wantNoProgress(t, "another source is silent", noProgress, "received nothing")
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHealthTakesDeadLettersThatAreDownForLife(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		src, p := newOdd(b), &publisher{Publisher: b.Publisher()}
		p.set(errors.New("no route"))
		src.waiting.Store(100)
		produce(t, b, 8)
		r := start(t, b, consumer.Config{
			Name: "orders", Source: src, Pool: consumer.Pool{Max: 4}, Budget: broker.Budget{Messages: 8, Bytes: 1 << 20},
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no such order")) },
		})
		r.wantHealthy(t, "all wait", 10*time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A consumer whose Run has failed handles nothing any more, and a process that goes on beside it is not well. An orderly stop is
// well, and so is a consumer that was not run yet.
func TestHealthTellsThatRunHasFailed(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		handler := func(context.Context, *consumer.Message) error { return nil }
		source := brokenSource{b.Source(membroker.SourceConfig{Topics: []string{"in"}})}
		r := start(t, b, consumer.Config{Name: "orders", Source: source, Handler: handler})
		<-r.done
		for _, noProgress := range []time.Duration{0, time.Minute} {
			err := r.Health(noProgress)
			if !errors.Is(err, consumer.ErrEnded) || !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "consumer orders: ") {
				t.Errorf("after %v: %v", r.end(), err)
			}
		}
		stopped := start(t, b, consumer.Config{Handler: handler})
		if err := stopped.end(); err != nil || stopped.Health(time.Minute) != nil {
			t.Errorf("after an orderly stop, %v: %v", err, stopped.Health(time.Minute))
		}
		fresh, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Handler: handler})
		if err != nil || fresh.Health(time.Minute) != nil {
			t.Errorf("not run yet: %v, %v", err, fresh.Health(time.Minute))
		}
	})
}
