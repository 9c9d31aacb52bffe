package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
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

func TestEachMessageIsHandledOnceAndAcked(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1000)
		var l ledger
		r := start(t, b, consumer.Config{Handler: func(ctx context.Context, m *consumer.Message) error {
			if ctx.Value(valueKey{}) != "from Run" {
				t.Error("the handler's context has not the values of Run's")
			}
			time.Sleep(time.Millisecond)
			l.add(m)
			return nil
		}})
		time.Sleep(10 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		l.check(t, 1000)
		wantUnsettled(t, b, 0)
		if s := r.Stats(); s.Handled != 1000 || s.InFlight != 0 || s.State != consumer.Stopped {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestFailedMessageIsRetriedWithBackoffAndItsRunsAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var mu sync.Mutex
		var at []time.Duration
		var runs []int32
		begin := time.Now()
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Second, Factor: 2, Jitter: -1}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				at, runs = append(at, time.Since(begin)), append(runs, m.Runs)
				if len(at) < 4 {
					return errors.New("not yet")
				}
				return nil
			}})
		time.Sleep(30 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(at) != 4 || !slices.Equal(runs, []int32{0, 1, 2, 3}) {
			t.Fatalf("runs at %v, with %v runs before", at, runs)
		}
		for i, least := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second} {
			if at[i] < least || at[i] > least+time.Second {
				t.Errorf("run %d began after %v, want %v", i+1, at[i], least)
			}
		}
		wantUnsettled(t, b, 0)
	})
}

func TestExhaustedMessageIsDeadLetteredWithItsStory(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: []byte("bad"),
			Headers: []broker.Header{{Key: "trace", Value: []byte("t1")}}})
		if err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		r := start(t, b, consumer.Config{
			Name:       "orders",
			Retry:      consumer.Retry{MaxAttempts: 3, Backoff: consumer.Backoff{Initial: time.Second}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(context.Context, *consumer.Message) error {
				calls.Add(1)
				return errors.New("boom\r\nInjected: header")
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if calls.Load() != 3 {
			t.Errorf("the handler ran %d times, want 3", calls.Load())
		}
		dead := b.Messages("dead")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		d := dead[0]
		if string(d.Key) != "k" || string(d.Value) != "bad" {
			t.Errorf("dead letter %q = %q", d.Key, d.Value)
		}
		for key, want := range map[string]string{
			"trace": "t1", broker.HeaderOriginalTopic: "in", broker.HeaderAttempts: "3", broker.HeaderHandler: "orders",
			broker.HeaderErrorClass: "error", broker.HeaderError: "boom  Injected: header",
		} {
			if got, _ := d.Headers.Get(key); string(got) != want {
				t.Errorf("header %s = %q, want %q", key, got, want)
			}
		}
		wantUnsettled(t, b, 0)
		if e := eventsOf[consumer.DeadLettered](r.journal); len(e) != 1 || e[0].Runs != 3 || !e[0].Exhausted {
			t.Errorf("events: %+v", e)
		}
	})
}

func TestPermanentErrorIsDeadLetteredAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		r := start(t, b, consumer.Config{
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no such order")) },
		})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := len(b.Messages("dead")); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
		if s := r.Stats(); s.Failed != 1 || s.DeadLettered != 1 || s.Retried != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestWithoutDeadLetterNothingIsGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var calls atomic.Int32
		r := start(t, b, consumer.Config{
			Retry:   consumer.Retry{MaxAttempts: 2, Backoff: consumer.Backoff{Initial: time.Second, Max: 10 * time.Second}},
			Handler: func(context.Context, *consumer.Message) error { calls.Add(1); return errors.New("boom") },
		})
		time.Sleep(5 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := calls.Load(); n < 20 {
			t.Errorf("the handler ran %d times in 5 minutes, want one in 10 s", n)
		}
		wantUnsettled(t, b, 1)
	})
}

func TestSkipAcks(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 3)
		r := start(t, b, consumer.Config{Handler: func(context.Context, *consumer.Message) error { return consumer.Skip("too old") }})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		wantUnsettled(t, b, 0)
		if e := eventsOf[consumer.Skipped](r.journal); len(e) != 3 || e[0].Reason != "too old" {
			t.Errorf("events: %+v", e)
		}
	})
}

func TestRetryAfterIsHeeded(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		begin := time.Now()
		var second time.Duration
		r := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Runs == 0 {
				return consumer.RetryAfter(errors.New("busy"), 42*time.Second)
			}
			second = time.Since(begin)
			return nil
		}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if second < 42*time.Second || second > 43*time.Second {
			t.Errorf("the second run began after %v, want 42 s", second)
		}
	})
}

// Each way in which a handler can fail to return an error: the message is retried, the others are handled, the worker lives.
func TestPanicNilPanicAndGoexitAreFailures(t *testing.T) {
	for name, die := range map[string]func(){
		"panic":         func() { panic("boom") },
		"nil map write": func() { noMap()["x"] = 1 },
		"panic(nil)":    func() { panic(nil) }, //nolint:govet // on purpose
		"goexit":        runtime.Goexit,
		"panic while the goroutine ends": func() {
			defer panic("boom")
			runtime.Goexit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				produce(t, b, 200)
				var l ledger
				var died atomic.Int32
				r := start(t, b, consumer.Config{
					Pool: consumer.Pool{Min: 2, Max: 2},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if m.Runs == 0 && strings.HasSuffix(string(m.Value), "7") {
							died.Add(1)
							die()
						}
						l.add(m)
						return nil
					}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				l.check(t, 200)
				if died.Load() != 20 {
					t.Errorf("%d handlers died, want 20", died.Load())
				}
				wantUnsettled(t, b, 0)
				told := 0
				for _, e := range eventsOf[consumer.Handled](r.journal) {
					told += e.N
				}
				if told != 200 {
					t.Errorf("%d calls that returned nil were told, want 200", told)
				}
				failed := eventsOf[consumer.Failed](r.journal)
				if len(failed) != 20 {
					t.Fatalf("%d failures, want 20", len(failed))
				}
				var p *consumer.PanicError
				if name == "goexit" {
					if !errors.Is(failed[0].Err, consumer.ErrGoexit) {
						t.Errorf("failure: %v", failed[0].Err)
					}
				} else if !errors.As(failed[0].Err, &p) || !strings.Contains(string(p.Stack), "consumer_test") {
					t.Errorf("failure: %v", failed[0].Err)
				}
			})
		})
	}
}

// b07: larger than the limit: no handler sees it. b08, b09: empty payloads, nil keys and tombstones are ordinary.
func TestOversizeMessageIsDeadLetteredUnseen(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		values := [][]byte{make([]byte, 1<<20), {}, nil, make([]byte, 1000)}
		for _, v := range values {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: v}); err != nil {
				t.Fatal(err)
			}
		}
		var seen atomic.Int32
		r := start(t, b, consumer.Config{
			MaxMessageBytes: 1000,
			DeadLetter:      &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler: func(_ context.Context, m *consumer.Message) error {
				seen.Add(1)
				if m.Key != nil || len(m.Value) > 1000 {
					t.Errorf("key %q, %d bytes", m.Key, len(m.Value))
				}
				return nil
			}})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if dead := b.Messages("dead"); seen.Load() != 3 || len(dead) != 1 || len(dead[0].Value) != 1<<20 {
			t.Errorf("handled %d, dead letters %d", seen.Load(), len(dead))
		}
		if e := eventsOf[consumer.Failed](r.journal); len(e) != 1 || e[0].Class != "oversize" || e[0].Runs != 0 ||
			!errors.Is(e[0].Err, consumer.ErrTooLarge) {
			t.Errorf("events: %+v", e)
		}
		wantUnsettled(t, b, 0)
	})
}

// b23: a handler may keep what it was given.
func TestKeptMessageIsNotWrittenAgain(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 2000)
		var mu sync.Mutex
		kept, copies := []*consumer.Message{}, []string{}
		r := start(t, b, consumer.Config{Handler: func(_ context.Context, m *consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			kept, copies = append(kept, m), append(copies, string(m.Value))
			return nil
		}})
		time.Sleep(5 * time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(kept) != 2000 {
			t.Fatalf("%d messages", len(kept))
		}
		for i, m := range kept {
			if string(m.Value) != copies[i] {
				t.Fatalf("a kept message turned from %q into %q", copies[i], m.Value)
			}
		}
	})
}

func TestConfigNamesEveryWrongField(t *testing.T) {
	_, err := consumer.New(consumer.Config{
		Pool: consumer.Pool{Min: 8, Max: 4}, Budget: broker.Budget{Messages: 2, Bytes: -1}, Retry: consumer.Retry{MaxAttempts: -1},
		DeadLetter: &consumer.DeadLetter{}, Timeout: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"Source", "Handler", "Pool.Max", "Budget.Messages", "Budget.Bytes", "Retry.MaxAttempts",
		"DeadLetter.Publisher", "DeadLetter.Topic", "Timeout"} {
		if !strings.Contains(err.Error(), field+" is") {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
	_, err = consumer.New(consumer.Config{DeadLetter: &consumer.DeadLetter{Topic: "$JS.API.STREAM.DELETE.VICTIM"}})
	if err == nil || !strings.Contains(err.Error(), "DeadLetter.Topic is refused: broker: the destination is the broker's own") {
		t.Error(err)
	}
}

func TestRunIsCalledOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		r := start(t, b, consumer.Config{Handler: func(context.Context, *consumer.Message) error { return nil }})
		synctest.Wait()
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func noMap() map[string]int { return nil }

// A message is tried until its time is over, whatever its attempts, on a broker that keeps delays, too.
func TestGiveUpAfter(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 1)
		var runs atomic.Int32
		begin := time.Now()
		r := start(t, b, consumer.Config{
			Retry: consumer.Retry{MaxAttempts: 1 << 20, GiveUpAfter: 10 * time.Second,
				Backoff: consumer.Backoff{Initial: time.Second, Factor: 1, Jitter: -1}},
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Handler:    func(context.Context, *consumer.Message) error { runs.Add(1); return errors.New("no") },
		})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		failed := eventsOf[consumer.Failed](r.journal)
		if n := runs.Load(); n < 9 || n > 11 || len(b.Messages("dead")) != 1 || !failed[len(failed)-1].Exhausted {
			t.Errorf("%d runs, %d letters; the last failure: %+v", n, len(b.Messages("dead")), failed[len(failed)-1])
		}
		if at := b.Messages("dead")[0].Time().Sub(begin); at < 8*time.Second || at > 10500*time.Millisecond {
			t.Errorf("given up after %v", at)
		}
		wantUnsettled(t, b, 0)
	})
}

// brokenSource is one that can receive no more.
type brokenSource struct{ broker.Source }

var errBroken = errors.New("membroker: receiving: the topic was made anew")

func (brokenSource) Receive([]broker.Message) (int, error) { return 0, errBroken }

// TestSourceErrorIsToldOnce: an adapter says itself what it was doing.
func TestSourceErrorIsToldOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		r := start(t, b, consumer.Config{
			Name: "orders", Source: brokenSource{b.Source(membroker.SourceConfig{Topics: []string{"in"}})},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
		<-r.done
		if err := r.end(); !errors.Is(err, errBroken) || err.Error() != "consumer orders: "+errBroken.Error() {
			t.Errorf("%v", err)
		}
	})
}
