package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// fill writes n messages to a topic, with a header.
func fill(t *testing.T, b *membroker.Broker, topic, urgency string, n int) {
	t.Helper()
	for i := range n {
		o := broker.Outgoing{Topic: topic, Value: fmt.Appendf(nil, "%s %d", urgency, i),
			Headers: []broker.Header{{Key: "urgency", Value: []byte(urgency)}}}
		if err := b.Produce(o); err != nil {
			t.Fatal(err)
		}
	}
}

// A sequence keeps the order in which things were handled.
type sequence struct {
	mu  sync.Mutex
	all []string
}

func (s *sequence) add(x string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, x)
}

// share is how many of the first n are x.
func (s *sequence) share(x string, n int) (k int) {
	for _, y := range s.all[:n] {
		if x == y {
			k++
		}
	}
	return k
}

// waits is how often n others in a row went before an x.
func (s *sequence) waits(x string, n int) (waits int) {
	others := 0
	for _, y := range s.all {
		if y != x {
			others++
			continue
		}
		if others >= n {
			waits++
		}
		others = 0
	}
	return waits
}

// Sources that are all full share the workers by weight; none starves, and one that is empty leaves its part to the others.
func TestSourcesByWeight(t *testing.T) {
	for name, weights := range map[string][2]int{"8 to 1": {8, 1}, "strict": {1000, 1}, "default": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"gold": 1, "lead": 1}})
				fill(t, b, "gold", "gold", 900)
				fill(t, b, "lead", "lead", 900)
				var seen sequence
				r := start(t, b, consumer.Config{
					Source: nil, Pool: consumer.Pool{Max: 1},
					Sources: []consumer.Input{
						{Source: b.Source(membroker.SourceConfig{Group: "gold", Topics: []string{"gold"}}), Weight: weights[0]},
						{Source: b.Source(membroker.SourceConfig{Group: "lead", Topics: []string{"lead"}}), Weight: weights[1]},
					},
					Handler: func(_ context.Context, m *consumer.Message) error {
						time.Sleep(10 * time.Millisecond)
						seen.add(m.Topic)
						return nil
					}})
				time.Sleep(time.Minute)
				if s := r.Stats(); s.Handled != 1800 || s.Lag.Waiting != 0 || s.InFlight != 0 || !r.Ready() {
					t.Errorf("stats %+v, ready %v", s, r.Ready())
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				want := map[string][2]int{"8 to 1": {400, 460}, "strict": {495, 500}, "default": {240, 300}}[name]
				if n := seen.share("gold", 500); n < want[0] || n > want[1] {
					t.Errorf("%d of the first 500 are gold, want %v", n, want)
				}
			})
		})
	}
}

var urgencies = []string{"high", "normal", "low"}

// byHeader is a priority with three levels.
func byHeader(weights ...int) *consumer.Priority {
	return &consumer.Priority{Levels: weights, Of: func(m *consumer.Message) int {
		v, _ := m.Headers.Get("urgency")
		return slices.Index(urgencies, string(v)) // what has none, or another, is the first's
	}}
}

// The largest weights of a source and of its levels come to the largest weight, and not to none.
func TestLargestWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"gold": 1, "lead": 1}})
		fill(t, b, "gold", "gold", 3)
		fill(t, b, "lead", "lead", 3)
		r := start(t, b, consumer.Config{Source: nil, Priority: byHeader(math.MaxInt, 2, 1),
			Sources: []consumer.Input{
				{Source: b.Source(membroker.SourceConfig{Group: "gold", Topics: []string{"gold"}}), Weight: math.MaxInt},
				{Source: b.Source(membroker.SourceConfig{Group: "lead", Topics: []string{"lead"}}), Weight: 3},
			},
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		time.Sleep(time.Second)
		if n := r.Stats().Handled; n != 6 {
			t.Errorf("%d handled, want 6", n)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// Of a source's messages, the important ones pass those that wait here; and come again in their own line when they fail.
func TestPriorityByHeader(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		fill(t, b, "in", "low", 600)
		fill(t, b, "in", "normal", 200)
		fill(t, b, "in", "high", 100)
		var seen sequence
		r := start(t, b, consumer.Config{
			Priority: byHeader(16, 4, 1), Pool: consumer.Pool{Max: 1}, Budget: broker.Budget{Messages: 2000},
			Handler: func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Millisecond)
				urgency, no, _ := strings.Cut(string(m.Value), " ")
				if no == "7" && m.Runs == 0 {
					return consumer.RetryAfter(errors.New("once"), 20*time.Millisecond)
				}
				seen.add(urgency)
				return nil
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 900 {
			t.Fatalf("%d handled", len(seen.all))
		}
		// Only what is here can be passed: it begins with low ones, and takes in the others within the first half second.
		last := slices.Index(seen.all, "high")
		for i, u := range seen.all {
			if u == "high" {
				last = i
			}
		}
		if last > 700 {
			t.Errorf("the last high one came as number %d of 900", last)
		}
	})
}

// Of short handlers a worker takes some messages at once, all of one level: a chunk that begins with a low one does not wait in
// the line of the low ones as a whole.
func TestPriorityOfHandOffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 20
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		fill(t, b, "in", "normal", 100) // by which it is known that handlers take no time
		fill(t, b, "in", "gate", 1)
		var seen sequence
		gate := make(chan struct{})
		r := start(t, b, consumer.Config{
			Priority: byHeader(1, 1, 1), Strict: true, Pool: consumer.Pool{Max: 1}, Budget: broker.Budget{Messages: 1000},
			Handler: func(_ context.Context, m *consumer.Message) error {
				switch urgency, _, _ := strings.Cut(string(m.Value), " "); urgency {
				case "gate":
					<-gate
				case "low", "high":
					seen.add(urgency)
				}
				return nil
			}})
		time.Sleep(time.Second)
		var all []broker.Outgoing
		for range each {
			for _, urgency := range []string{"low", "high"} {
				all = append(all, broker.Outgoing{Topic: "in", Value: []byte(urgency),
					Headers: []broker.Header{{Key: "urgency", Value: []byte(urgency)}}})
			}
		}
		if err := b.Produce(all...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		close(gate)
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 2*each || seen.share("high", each) != each {
			t.Errorf("handled in the order %v, want the high ones first", seen.all)
		}
	})
}

// What has a level that there is not goes to the nearest, and an order is kept whatever the levels are.
func TestPriorityInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		produceKeyed(t, b, 2000, 31)
		book := newOrderBook()
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Retry: consumer.Retry{MaxAttempts: 100},
			Priority: &consumer.Priority{Levels: []int{5, 1}, Of: func(m *consumer.Message) int { return int(m.Offset)%7 - 3 }},
			Handler: book.handle(func(*consumer.Message) error {
				time.Sleep(time.Millisecond)
				if rand.IntN(30) == 0 {
					return errors.New("dice")
				}
				return nil
			})})
		time.Sleep(5 * time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		book.check(t, 2000, 31)
	})
}

// Strict: while the first has something here the second waits, but it never starves; nor does the third behind both.
func TestStrictSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := []string{"gold", "silver", "lead"}
		b := membroker.New(membroker.Config{Topics: map[string]int{"gold": 1, "silver": 1, "lead": 1}})
		cfg := consumer.Config{Pool: consumer.Pool{Max: 1}, Strict: true}
		var seen sequence
		for _, topic := range topics {
			fill(t, b, topic, topic, 1500)
			cfg.Sources = append(cfg.Sources, consumer.Input{Source: b.Source(membroker.SourceConfig{Group: topic,
				Topics: []string{topic}})})
		}
		cfg.Handler = func(_ context.Context, m *consumer.Message) error {
			time.Sleep(time.Millisecond)
			seen.add(m.Topic)
			return nil
		}
		r := start(t, b, cfg)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 4500 {
			t.Fatalf("%d handled", len(seen.all))
		}
		if gold, silver, lead := seen.share("gold", 1400), seen.share("silver", 1400), seen.share("lead", 1400); gold < 1300 ||
			silver < 5 || lead < 5 {
			t.Errorf("of the first 1400: gold %d, silver %d, lead %d", gold, silver, lead)
		}
		if silver := seen.share("silver", 3000); silver < 1300 {
			t.Errorf("%d silver ones in the first 3000: lead did not wait for them", silver)
		}
	})
}

// A header's levels, strictly: low ones go on while high ones never end.
func TestStrictLevelsDoNotStarve(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		for i := range 40 {
			fill(t, b, "in", "high", 100)
			if i == 0 {
				fill(t, b, "in", "low", 30)
			}
		}
		var seen sequence
		r := start(t, b, consumer.Config{
			Priority: byHeader(1, 1, 1), Strict: true, Pool: consumer.Pool{Max: 1}, Budget: broker.Budget{Messages: 1000},
			Handler: func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Millisecond)
				urgency, _, _ := strings.Cut(string(m.Value), " ")
				seen.add(urgency)
				return nil
			}})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if len(seen.all) != 4030 {
			t.Fatalf("%d handled", len(seen.all))
		}
		if n := seen.share("low", 3900); n < 30 {
			t.Errorf("%d of the 30 low ones came while there were high ones", n)
		}
		// They stand among the first 130. Up to half of them, those of one partition, come while nothing else is received yet; of
		// the others up to four at a time.
		if n := seen.waits("low", 100); n < 4 {
			t.Errorf("%d times a low one waited for a hundred others, want 4 or more", n)
		}
	})
}

func TestInputsAreChecked(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	handler := func(context.Context, *consumer.Message) error { return nil }
	source := func() broker.Source { return b.Source(membroker.SourceConfig{}) }
	for want, cfg := range map[string]consumer.Config{
		"Source is required":                        {},
		"Sources is set, and so is Source: set one": {Source: source(), Sources: []consumer.Input{{Source: source()}}},
		"Sources[1].Source is required":             {Sources: []consumer.Input{{Source: source()}, {}}},
		"Sources[0].Weight is -1, negative":         {Sources: []consumer.Input{{Source: source(), Weight: -1}}},
		"Strict is set, and there is neither":       {Source: source(), Strict: true},
		"Priority.Of is required":                   {Source: source(), Priority: &consumer.Priority{Levels: []int{1, 2}}},
		"Priority.Levels has 1 weights":             {Source: source(), Priority: byHeader(1)},
		"Priority.Levels[1] is 0":                   {Source: source(), Priority: byHeader(1, 0)},
		"of which each source has 40, below Pool.Max": {Sources: []consumer.Input{{Source: source()}, {Source: source()}},
			Budget: broker.Budget{Messages: 80}},
	} {
		cfg.Handler = handler
		if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

// Important messages pass those that wait here in batches, too: no batch has both.
func TestPriorityOfBatches(t *testing.T) {
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("by key %v", byKey), func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				const messages, size = 1000, 10
				for i := range messages {
					urgency := "low"
					if i%size == size-1 {
						urgency = "high"
					}
					if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte("key"), Value: fmt.Appendf(nil, "%s %d", urgency, i),
						Headers: []broker.Header{{Key: "urgency", Value: []byte(urgency)}}}); err != nil {
						t.Fatal(err)
					}
				}
				var seen sequence
				r := start(t, b, consumer.Config{
					Priority: byHeader(1000, 1, 1), Strict: true, Pool: consumer.Pool{Max: 1}, Budget: broker.Budget{Messages: 4000},
					Batch: &consumer.Batch{Size: size, ByKey: byKey, Handler: func(_ context.Context, ms []*consumer.Message) error {
						time.Sleep(10 * time.Millisecond)
						for _, m := range ms {
							urgency, _, _ := strings.Cut(string(m.Value), " ")
							seen.add(urgency)
						}
						return nil
					}}})
				time.Sleep(time.Minute)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
				if len(seen.all) != messages {
					t.Fatalf("%d handled", len(seen.all))
				}
				last := 0
				for i, u := range seen.all {
					if u == "high" {
						last = i
					}
				}
				if last > messages*3/4 {
					t.Errorf("the last high one came as number %d of %d", last, messages)
				}
			})
		})
	}
}

// What Priority.Of says may change from one moment to the next, as with a message's age. Each message is handled all the same.
func TestPriorityThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, most = 300, 30_000
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		produce(t, b, messages)
		var n atomic.Int64
		r := start(t, b, consumer.Config{
			Priority: &consumer.Priority{Levels: []int{1, 1}, Of: func(*consumer.Message) int {
				if n.Add(1) > most { // it would go on for ever, and take no time
					return 0
				}
				return int(n.Load() % 2)
			}},
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
		time.Sleep(time.Minute)
		if s := r.Stats(); s.Handled != messages || n.Load() > most {
			t.Errorf("%d handled, want %d; asked %d times", s.Handled, messages, n.Load())
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}
