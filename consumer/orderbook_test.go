package consumer_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// produceKeyed writes n messages, key by key in turn; each one's value is its key and its number within the key.
func produceKeyed(t *testing.T, b *membroker.Broker, n, keys int) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf("k%d", i%keys)
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: fmt.Appendf(nil, "%s %d", key, i/keys)}); err != nil {
			t.Fatal(err)
		}
	}
}

// An orderBook holds runs of handlers against the order that they must keep: those of a key do not overlap, and what follows a
// message that was handled is the next one, or one that comes again, and then all after it come again.
type orderBook struct {
	mu         sync.Mutex
	running    map[string]bool
	handled    map[string]int // the number that follows what was handled last
	seen       map[string]int // the numbers that were handled, all below
	inversions []string
	most       int // running at once
}

func newOrderBook() *orderBook {
	return &orderBook{running: map[string]bool{}, handled: map[string]int{}, seen: map[string]int{}}
}

func keyAndNumber(m *consumer.Message) (string, int) {
	key, no, _ := strings.Cut(string(m.Value), " ")
	n, _ := strconv.Atoi(no)
	return key, n
}

func (b *orderBook) begin(m *consumer.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, n := keyAndNumber(m)
	if b.running[key] {
		b.inversions = append(b.inversions, fmt.Sprintf("%s runs beside another of its key", m.Value))
	}
	if n > b.handled[key] {
		b.inversions = append(b.inversions, fmt.Sprintf("%s runs although %d is the next of its key", m.Value, b.handled[key]))
	}
	b.running[key] = true
	b.most = max(b.most, len(b.running))
}

func (b *orderBook) end(m *consumer.Message, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, n := keyAndNumber(m)
	delete(b.running, key)
	if ok {
		b.handled[key] = n + 1
		b.seen[key] = max(b.seen[key], n+1)
	}
}

func (b *orderBook) check(t *testing.T, n, keys int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.inversions[:min(10, len(b.inversions))] {
		t.Error(s)
	}
	total := 0
	for _, got := range b.seen {
		total += got
	}
	if total != n || len(b.seen) != keys {
		t.Errorf("%d of %d messages and %d of %d keys were handled", total, n, len(b.seen), keys)
	}
}

// handle runs f between begin and end.
func (b *orderBook) handle(f func(m *consumer.Message) error) consumer.Handler {
	return func(_ context.Context, m *consumer.Message) (err error) {
		b.begin(m)
		defer func() { b.end(m, err == nil) }()
		return f(m)
	}
}
