package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestPutOffBeyondItsLease: a process stands still for longer than its leases while messages wait here for a limit. Others handle
// them meanwhile, and it does not handle them again, one by one, for as long as the limit takes for what it had.
func TestPutOffBeyondItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"in": 1}, Lease: lease})
		src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		var late atomic.Int32
		_, stop := quiet(t, consumer.Config{Source: src, Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Time().Add(5 * lease).After(time.Now()) {
				return consumer.Defer(6*lease, nil)
			}
			late.Add(1)
			return nil
		}})
		defer stop()
		for range 20 {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		src.Freeze()
		other, end := quiet(t, consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		defer end()
		time.Sleep(3 * lease)
		src.Thaw()
		time.Sleep(6 * lease)
		if n := other.Stats().Handled; n != 20 {
			t.Errorf("the other process handled %d, want all 20", n)
		}
		if n := late.Load(); n != 0 {
			t.Errorf("%d were handled again by the one that had stood still, want none", n)
		}
	})
}

// TestQueuedBeyondItsLease: a process stands still for longer than its leases while messages wait here for a worker. Others
// handle them meanwhile, and it does not begin them.
func TestQueuedBeyondItsLease(t *testing.T) {
	for name, cfg := range map[string]consumer.Config{
		"alone":    {},
		"in lanes": {Order: consumer.OrderKey},
		"batches":  {Batch: &consumer.Batch{Size: 10}},
	} {
		for _, leased := range []bool{true, false} { // each message, or the process
			for _, call := range []time.Duration{0, 2 * time.Millisecond} { // these are acked one by one
				t.Run(fmt.Sprint(name, leased, call), func(t *testing.T) { queuedBeyondItsLease(t, cfg, leased, call) })
			}
		}
	}
}

func queuedBeyondItsLease(t *testing.T, cfg consumer.Config, leased bool, call time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		const lease, all, slow = 3 * time.Second, 600, 452
		b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: lease})
		src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		var begun atomic.Int32
		cfg.Source, cfg.Pool, cfg.Budget = src, consumer.Pool{Min: 1, Max: 1}, broker.Budget{Messages: 1000, Bytes: 1 << 20}
		handle := func(n int) error {
			if now := begun.Add(int32(n)); now >= slow && now < slow+int32(n) {
				time.Sleep(2 * lease)
			}
			time.Sleep(call)
			return nil
		}
		if cfg.Batch != nil {
			cfg.Batch.Handler = func(_ context.Context, ms []*consumer.Message) error { return handle(len(ms)) }
		} else {
			cfg.Handler = func(context.Context, *consumer.Message) error { return handle(1) }
		}
		_, stop := quiet(t, cfg)
		defer stop()
		var ms []broker.Outgoing
		for i := range all {
			ms = append(ms, broker.Outgoing{Topic: "in", Key: []byte{byte(i % 10)}, Value: []byte("x")})
		}
		for _, some := range [][]broker.Outgoing{ms[:20], ms[20:]} {
			if err := b.Produce(some...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // after the first ones it is known how long a call takes
		}
		time.Sleep(time.Second)
		src.Freeze()
		other, end := quiet(t, consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		defer end()
		time.Sleep(3*lease + lease/2)
		src.Thaw()
		time.Sleep(100 * lease)
		if n := other.Stats().Handled; n < all-slow+1 {
			t.Errorf("the other process handled %d, want all that was not done", n)
		}
		want := int32(slow)
		if cfg.Batch != nil {
			want = int32(slow+cfg.Batch.Size-1) / int32(cfg.Batch.Size) * int32(cfg.Batch.Size)
		}
		quick := int32(0) // that may be begun behind the one in which it stood still
		if call == 0 && cfg.Batch == nil {
			quick = 15
		}
		if n := begun.Load(); n < want || n > want+quick {
			t.Errorf("the one that had stood still began %d, want the %d before it did and up to %d", n, want, quick)
		}
	})
}

// TestStoodStillInOneOfSeveralCalls: a process stands still, with all that looks after its workers, in the first of a few calls
// that are acked one by one. The others of them are not begun.
func TestStoodStillInOneOfSeveralCalls(t *testing.T) {
	for _, leased := range []bool{true, false} { // each message, or the process
		t.Run(fmt.Sprint(leased), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stoodStillInOneOfSeveral(t, leased) })
		})
	}
}

func stoodStillInOneOfSeveral(t *testing.T, leased bool) {
	const lease, timeout = 3 * time.Second, time.Minute
	b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: lease})
	src := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
	var (
		still, first, stood, again atomic.Bool  // it stands still; a call is the first of its work; it stood still; it goes on
		several, late              atomic.Int32 // works of several calls, and calls that were begun before it was heard of again
		hung                       = make(chan struct{})
	)
	_, stop := quiet(t, consumer.Config{
		Source: src, Pool: consumer.Pool{Min: 2, Max: 2}, Budget: broker.Budget{Messages: 1000, Bytes: 1 << 20},
		Timeout: timeout, StuckAfter: time.Second,
		Handler: func(_ context.Context, m *consumer.Message) error {
			switch first := first.Swap(false); {
			case string(m.Value) == "hang" && !still.Load():
				<-hung
			case first && still.Load() && stood.CompareAndSwap(false, true):
				time.Sleep(2 * lease)
			case stood.Load() && !again.Load():
				late.Add(1)
			default:
				time.Sleep(2 * time.Millisecond)
			}
			return nil
		},
		Observers: []consumer.Observer{func(e consumer.Event) {
			switch e := e.(type) {
			case consumer.Handled:
				first.Store(true)
				if e.N > 1 && !still.Load() {
					several.Add(1)
				}
			case consumer.Stuck: // who looks after the workers tells of it, and gets no further
				still.Store(true)
				src.Freeze()
				time.Sleep(3 * lease)
			}
		}},
	})
	defer stop()
	defer func() {
		close(hung)
		synctest.Wait()
	}()
	publish := func(n int, value string) {
		if err := b.Produce(slices.Repeat([]broker.Outgoing{{Topic: "in", Value: []byte(value)}}, n)...); err != nil {
			t.Fatal(err)
		}
	}
	publish(20, "x")
	time.Sleep(time.Second) // after these it is known how long a call takes
	publish(1, "hang")
	time.Sleep(timeout + time.Second - 500*time.Millisecond)
	publish(600, "x")
	time.Sleep(time.Second)
	if !still.Load() || !stood.Load() || several.Load() == 0 {
		t.Fatalf("it stands still: %v, in a call: %v, of %d works of several", still.Load(), stood.Load(), several.Load())
	}
	other, end := quiet(t, consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil }})
	defer end()
	time.Sleep(3 * lease)
	again.Store(true)
	src.Thaw()
	time.Sleep(100 * lease)
	if n := late.Load(); n > 0 || other.Stats().Handled == 0 {
		t.Errorf("it began %d calls more, want none; the other handled %d", n, other.Stats().Handled)
	}
}

// A lateReceiver is a source whose process stands still for a while with what it has just received; meanwhile a lease runs out.
type lateReceiver struct {
	*membroker.Source
	late   string // it is received late
	lapsed string // its lease is said to have run out, once
	token  atomic.Uint64
	armed  atomic.Bool
}

func (s *lateReceiver) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	for _, m := range dst[:n] {
		switch string(m.Value) {
		case s.lapsed:
			if s.armed.CompareAndSwap(false, true) {
				s.token.Store(m.Token)
			}
		case s.late:
			s.late = ""
			time.Sleep(3 * time.Second)
		}
	}
	return n, err
}

func (s *lateReceiver) Lapsed(_ *broker.Claim, token uint64) bool {
	return s.token.CompareAndSwap(token, 0)
}

// TestReceivedBesideALapse: a message is received, and before it is in its lane, the one before it goes back, as its lease ran
// out. It waits for that one, as what was in the lane does.
func TestReceivedBesideALapse(t *testing.T) {
	for name, leased := range map[string]bool{"leased": true, "partitioned": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: time.Minute})
				src := &lateReceiver{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), late: "a2", lapsed: "a1"}
				var done []string
				_, stop := quiet(t, consumer.Config{Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 1, Max: 1},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if done = append(done, string(m.Value)); string(m.Value) == "z" {
							time.Sleep(2 * time.Second)
						}
						return nil
					}})
				defer stop()
				for _, ms := range [][]string{{"z", "a1"}, {"a2"}, {"b"}} {
					produceByKey(t, b, ms...)
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				var as []string
				for _, m := range done {
					if m[0] == 'a' {
						as = append(as, m)
					}
				}
				if want := []string{"a1", "a2"}; !slices.Equal(as, want) || len(done) != 4 {
					t.Errorf("%v were handled, want %v in this order", done, want)
				}
				if src.late != "" || src.token.Load() != 0 {
					t.Error("nothing was received late, or no lease ran out")
				}
			})
		})
	}
}

// A slowReturner is a source to which a message goes back late.
type slowReturner struct {
	lateReceiver
	slow  string // the message
	token uint64
	slept atomic.Bool
}

func (s *slowReturner) Receive(dst []broker.Message) (int, error) {
	n, err := s.lateReceiver.Receive(dst)
	for _, m := range dst[:n] {
		if string(m.Value) == s.slow && s.token == 0 {
			s.token = m.Token
		}
	}
	return n, err
}

func (s *slowReturner) Nack(k *broker.Claim, back []broker.Back) error {
	if back[0].Token == s.token && s.slept.CompareAndSwap(false, true) {
		time.Sleep(3 * time.Second)
	}
	return s.lateReceiver.Nack(k, back)
}

// A twoHeld is a handler that takes long with y and z, so that two workers have no time for others, and keeps what it was called
// with, in its order.
type twoHeld struct {
	mu     sync.Mutex
	values []string
}

func (h *twoHeld) handle(_ context.Context, m *consumer.Message) error {
	v := string(m.Value)
	h.mu.Lock()
	h.values = append(h.values, v)
	h.mu.Unlock()
	if v == "y" || v == "z" {
		time.Sleep(2 * time.Second)
	}
	return nil
}

// others are all but y and z.
func (h *twoHeld) others() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.values), func(v string) bool { return v == "y" || v == "z" })
}

// produceByKey produces values, each with its first letter as its key.
func produceByKey(t *testing.T, b *membroker.Broker, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(v[:1]), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReceivedBesideAReturn: a message goes back, as its lease ran out, and so does what waits behind it in its lane. Before that
// one is back, the first comes again and is handled, and a later one is received. It waits for the one in between.
func TestReceivedBesideAReturn(t *testing.T) {
	for name, leased := range map[string]bool{"leased": true, "partitioned": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: time.Minute})
				src := &slowReturner{slow: "a2"}
				src.Source, src.lapsed = b.Source(membroker.SourceConfig{Topics: []string{"in"}}), "a1"
				var done twoHeld
				_, stop := quiet(t, consumer.Config{Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 2, Max: 2},
					Handler: done.handle})
				defer stop()
				for _, ms := range [][]string{{"y", "z", "a1", "a2"}, {"a3"}, {"a4"}} {
					produceByKey(t, b, ms...)
					time.Sleep(3 * time.Second)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				as := done.others()
				if want := []string{"a1", "a2", "a3", "a4"}; !slices.Equal(as, want) {
					t.Errorf("%v were handled, want %v in this order", as, want)
				}
				if !src.slept.Load() {
					t.Error("nothing went back late")
				}
			})
		})
	}
}

// A lateAcker is a source whose process stands still with what it has just received; meanwhile an ack is too late.
type lateAcker struct {
	lateReceiver
	lost  string // its ack is
	token atomic.Uint64
}

func (s *lateAcker) Receive(dst []broker.Message) (int, error) {
	n, err := s.lateReceiver.Receive(dst)
	for _, m := range dst[:n] {
		if string(m.Value) == s.lost {
			s.lost = ""
			s.token.Store(m.Token)
		}
	}
	return n, err
}

func (s *lateAcker) Ack(k *broker.Claim, tokens []uint64) error {
	if !slices.Contains(tokens, s.token.Load()) {
		return s.lateReceiver.Ack(k, tokens)
	}
	s.token.Store(0)
	if err := s.Nack(k, []broker.Back{{Token: tokens[0]}}); err != nil {
		return err
	}
	return &broker.LostError{N: 1}
}

// TestReceivedBesideALateAck: an ack is too late, so what waits behind it goes back and comes again. What was received before
// that, and is not in its lane yet, must not overtake it.
func TestReceivedBesideALateAck(t *testing.T) {
	for name, leased := range map[string]bool{"leased": true, "partitioned": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: time.Minute})
				src := &lateAcker{lost: "a1"}
				src.Source, src.late = b.Source(membroker.SourceConfig{Topics: []string{"in"}}), "a3"
				var done []string
				_, stop := quiet(t, consumer.Config{Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 1, Max: 1},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if done = append(done, string(m.Value)); len(done) == 1 {
							time.Sleep(2 * time.Second)
						}
						return nil
					}})
				defer stop()
				for _, m := range []string{"a1", "a2", "a3"} {
					produceByKey(t, b, m)
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if want := []string{"a1", "a1", "a2", "a3"}; !slices.Equal(done, want) {
					t.Errorf("%v were handled, want %v in this order", done, want)
				}
				if src.late != "" || src.lost != "" {
					t.Error("nothing was received late, or no ack was lost")
				}
			})
		})
	}
}

// TestComesAgainBesideItsReturn: what goes back comes again before its return has been told of, as an observer takes long. It is
// handled then, and does not go back again and again.
func TestComesAgainBesideItsReturn(t *testing.T) {
	for name, leased := range map[string]bool{"leased": true, "partitioned": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"in": 1}, Lease: time.Minute})
				src := &lateReceiver{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), lapsed: "a1"}
				var done twoHeld
				var back atomic.Int64
				_, stop := quiet(t, consumer.Config{Source: src, Order: consumer.OrderKey, Pool: consumer.Pool{Min: 2, Max: 2},
					Observers: []consumer.Observer{func(e consumer.Event) {
						if g, is := e.(consumer.GivenBack); is && back.Add(int64(g.N)) < 20 {
							time.Sleep(time.Second)
						}
					}},
					Handler: done.handle})
				defer stop()
				produceByKey(t, b, "z", "y", "a1", "a2")
				time.Sleep(time.Minute)
				synctest.Wait()
				as := done.others()
				if want := []string{"a1", "a2"}; !slices.Equal(as, want) || back.Load() != 2 {
					t.Errorf("%v were handled, want %v; %d went back, want 2", as, want, back.Load())
				}
			})
		})
	}
}
