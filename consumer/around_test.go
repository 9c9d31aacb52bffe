package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

type callKey struct{}

// rounds are the calls that an Around was called for, and what was told of them.
type rounds struct {
	mu    sync.Mutex
	begun int
	told  map[int][]consumer.Outcome // by call
	ctx   map[int]context.Context    // what the handler was to get
}

func (r *rounds) around(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	n := r.begun
	ctx = context.WithValue(ctx, callKey{}, n)
	if r.told == nil {
		r.told, r.ctx = map[int][]consumer.Outcome{}, map[int]context.Context{}
	}
	r.ctx[n] = ctx
	of := slices.Clone(ms)
	return ctx, func(all []consumer.Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.told[n] != nil {
			panic(fmt.Sprintf("call %d is told of twice", n))
		}
		for i, o := range all {
			if o.Message != of[i] {
				panic(fmt.Sprintf("call %d: outcome %d is of another message", n, i))
			}
		}
		r.told[n] = slices.Clone(all)
	}
}

// outcomes are the verdicts and classes of each payload's calls, in their order.
func (r *rounds) outcomes(t *testing.T) map[string]string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) != r.begun {
		t.Errorf("%d calls were begun, %d told of", r.begun, len(r.told))
	}
	all := map[string]string{}
	for n := 1; n <= r.begun; n++ {
		for _, o := range r.told[n] {
			key := string(o.Message.Value[:min(len(o.Message.Value), 10)])
			all[key] += strings.TrimSuffix(" "+o.Verdict.String()+"/"+o.Class, "/")
		}
	}
	return all
}

// callOf is the call whose values a context has.
func callOf(ctx context.Context) int {
	if ctx == nil {
		return 0
	}
	n, _ := ctx.Value(callKey{}).(int)
	return n
}

// sent is a publisher that keeps the calls in which it was called.
type sent struct {
	broker.Publisher
	mu sync.Mutex
	of map[string]int // by payload
}

func (s *sent) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("the publish has no deadline")
	}
	s.mu.Lock()
	s.of[string(ms[0].Value)] = callOf(ctx)
	s.mu.Unlock()
	return s.Publisher.Publish(ctx, ms)
}

// Whatever becomes of a handler call, Around's End is told of it once, and the values of its context go where the message goes.
func TestAround(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		want := map[string]string{
			"ok": " ack", "skip": " ack", "error": " retry/error ack", "permanent": " dead_letter/permanent", "panic": " retry/panic ack",
			"goexit":  " retry/goexit ack",
			"timeout": " retry/timeout ack", "defer": " defer ack", "stuck": " retry/timeout ack", "oversize!!": " dead_letter/oversize",
		}
		payloads := []string{strings.Repeat("oversize!!", 10)}
		for p := range want {
			if p != "oversize!!" {
				payloads = append(payloads, p)
			}
		}
		for _, p := range payloads {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte(p)}); err != nil {
				t.Fatal(err)
			}
		}
		var calls rounds
		letters := &sent{Publisher: b.Publisher(), of: map[string]int{}}
		deferred := map[string]bool{}
		r := start(t, b, consumer.Config{
			Around: calls.around, MaxMessageBytes: 50, Pool: consumer.Pool{Min: 1, Max: 1}, Timeout: time.Second, StuckAfter: time.Second,
			DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "dead"},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if callOf(ctx) == 0 || ctx.Value(valueKey{}) != "from Run" {
					t.Error("the handler's context lacks values")
				}
				if m.Runs > 0 {
					return nil
				}
				switch v := string(m.Value); v {
				case "skip":
					return consumer.Skip("old")
				case "error":
					return errors.New("no tea")
				case "permanent":
					return consumer.Permanent(errors.New("no tea"))
				case "panic":
					panic("no tea")
				case "goexit":
					runtime.Goexit()
				case "timeout":
					<-ctx.Done()
					return ctx.Err()
				case "stuck":
					time.Sleep(time.Minute)
				case "defer":
					if !deferred[v] {
						deferred[v] = true
						return consumer.Defer(time.Second, nil)
					}
				}
				return nil
			}})
		time.Sleep(2 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		got := calls.outcomes(t)
		for p, w := range want {
			if got[p] != w {
				t.Errorf("%s: %q, want %q", p, got[p], w)
			}
		}
		for _, e := range eventsOf[consumer.Failed](r.journal) {
			n := callOf(e.Context)
			if n == 0 || calls.told[n][0].Message.Offset != e.Message.Offset || e.Context.Err() != nil || e.Context.Done() != nil {
				t.Errorf("the failure of %s has the values of call %d", e.Message.Value, n)
			}
		}
		for _, e := range eventsOf[consumer.DeadLettered](r.journal) {
			if n := letters.of[string(e.Message.Value)]; n == 0 || n != callOf(e.Context) {
				t.Errorf("the letter of %s was published in call %d, it failed in %d", e.Message.Value, n, callOf(e.Context))
			}
		}
		for _, e := range eventsOf[consumer.Stuck](r.journal) {
			if n := callOf(e.Context); n == 0 || string(calls.told[n][0].Message.Value) != "stuck" {
				t.Errorf("the stuck one has the values of call %d", n)
			}
		}
	})
}

// A batch is one call, of which each message has an outcome; with an order by key, those behind the one that failed are put off.
func TestAroundOfBatch(t *testing.T) {
	for name, c := range map[string]struct {
		order consumer.Order
		by    bool
		want  map[string]string
	}{
		"any": {consumer.OrderNone, false, map[string]string{"0": " ack", "1": " retry/error ack", "2": " ack",
			"3": " dead_letter/permanent", "4": " ack"}},
		"by key": {consumer.OrderKey, true, map[string]string{"0": " ack", "1": " retry/error ack", "2": " defer ack",
			"3": " defer dead_letter/permanent", "4": " defer ack"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}, Lease: time.Minute})
				for i := range 5 {
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}); err != nil {
						t.Fatal(err)
					}
				}
				var calls rounds
				first := true
				r := start(t, b, consumer.Config{
					Around: calls.around, Order: c.order, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
					Batch: &consumer.Batch{Size: 5, ByKey: c.by, Handler: func(ctx context.Context, ms []*consumer.Message) error {
						if callOf(ctx) == 0 {
							t.Error("the handler's context lacks the values")
						}
						e := &consumer.BatchError{Errs: make([]error, len(ms))}
						for i, m := range ms {
							switch string(m.Value) {
							case "1":
								if first {
									e.Errs[i] = errors.New("no tea")
								}
								first = false
							case "3":
								e.Errs[i] = consumer.Permanent(errors.New("no tea"))
							}
						}
						return e
					}}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				got := calls.outcomes(t)
				for p, w := range c.want {
					if got[p] != w {
						t.Errorf("%s: %q, want %q", p, got[p], w)
					}
				}
				if len(calls.told[1]) != 5 {
					t.Errorf("the first call had %d messages", len(calls.told[1]))
				}
			})
		})
	}
}

// A call that is cancelled by the stop is told of as given back; one whose End is nil costs the next nothing.
func TestAroundGivenBack(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produce(t, b, 3)
		var calls rounds
		r := start(t, b, consumer.Config{
			Pool: consumer.Pool{Min: 3, Max: 3}, DrainTimeout: time.Second,
			Around: func(ctx context.Context, ms []*consumer.Message) (context.Context, consumer.End) {
				if string(ms[0].Value) == "1" {
					return nil, nil
				}
				return calls.around(ctx, ms)
			},
			Handler: func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() }})
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if got := calls.outcomes(t); len(got) != 2 || got["0"] != " give_back" || got["2"] != " give_back" {
			t.Errorf("told %v", got)
		}
	})
}
