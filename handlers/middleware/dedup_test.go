package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers/middleware"
)

// Only what was handled is remembered: a failure runs again.
func TestDedup(t *testing.T) {
	var result error
	calls := 0
	h := middleware.Dedup(10, middleware.ByPosition)(func(context.Context, *consumer.Message) error { calls++; return result })
	for i, step := range []struct {
		result error
		calls  int
		skip   bool
	}{
		{errors.New("own"), 1, false},
		{consumer.Permanent(errors.New("own")), 2, false},
		{consumer.RetryAfter(errors.New("own"), 1), 3, false},
		{nil, 4, false},
		{nil, 4, true},
		{errors.New("own"), 4, true},
	} {
		result = step.result
		if err := h(t.Context(), message(1)); consumer.IsSkip(err) != step.skip || calls != step.calls {
			t.Errorf("step %d: error %v, %d calls, want %d", i, err, calls, step.calls)
		}
	}
	result = nil
	for name, other := range map[string]*consumer.Message{
		"offset": message(2), "partition": {Topic: "orders", Partition: 2, Offset: 1}, "topic": {Topic: "x", Partition: 1, Offset: 1},
		"time": {Topic: "orders", Partition: 1, Offset: 1, Nanos: 9}, "id": {Topic: "orders", Partition: 1, Offset: -1, Name: "i"},
	} {
		if err := h(t.Context(), other); err != nil {
			t.Errorf("a message that differs by its %s: %v", name, err)
		}
	}
	before := calls
	for range 2 {
		_ = h(t.Context(), &consumer.Message{Topic: "orders", Partition: -1, Offset: -1})
	}
	if calls != before+2 {
		t.Error("messages without a position are taken for one")
	}
}

func TestDedupIsBounded(t *testing.T) {
	calls := 0
	h := middleware.Dedup(3, middleware.ByPosition)(func(context.Context, *consumer.Message) error { calls++; return nil })
	for i := range int64(4) { // the fourth pushes the first out
		_ = h(t.Context(), message(i))
	}
	_ = h(t.Context(), message(3))
	if calls != 4 {
		t.Errorf("%d calls, want 4: the latest is forgotten", calls)
	}
	_ = h(t.Context(), message(0))
	if calls != 5 {
		t.Errorf("%d calls, want 5: the oldest is remembered", calls)
	}
}

// A producer's value takes no more room than a short one, however long it is, and is told from all others: also from one that
// is written as its key is kept.
func TestDedupByLongHeaders(t *testing.T) {
	key := middleware.ByHeader("ce-id")
	at := func(value string) [2]string {
		k, ok := key(&consumer.Message{Topic: "orders", Headers: broker.NewHeaders(broker.Header{Key: "ce-id", Value: []byte(value)})})
		if !ok {
			t.Fatalf("no key for %d bytes", len(value))
		}
		return k
	}
	of := map[[2]string]string{}
	differ := func(value string) [2]string {
		k := at(value)
		if other, there := of[k]; there && other != value {
			t.Errorf("values of %d and %d bytes have one key, %q", len(value), len(other), k)
		}
		if of[k] = value; len(k[1]) > 100 {
			t.Errorf("a value of %d bytes is kept as %d", len(value), len(k[1]))
		}
		return k
	}
	for n := 1; n < 200; n++ {
		differ(strings.Repeat("x", n))
	}
	long := strings.Repeat("x", 200_000)
	if a := differ(long); a != at(strings.Clone(long)) {
		t.Error("a long value differs from itself")
	}
	differ(long + "y")
	for k := range maps.Clone(of) {
		differ(k[1])
	}
}

func ExampleDedup() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
	for range 2 { // a producer that repeats itself
		_ = b.Produce(broker.Outgoing{Topic: "orders", Headers: []broker.Header{{Key: "ce-id", Value: []byte("o-1")}}})
	}
	h := middleware.Dedup(10_000, middleware.ByHeader("ce-id"))(func(context.Context, *consumer.Message) error {
		fmt.Println("handled")
		return nil
	})
	ms := b.Messages("orders")
	for i := range ms {
		fmt.Println(h(context.Background(), &ms[i]))
	}
	// Output:
	// handled
	// <nil>
	// skipped: duplicate
}
