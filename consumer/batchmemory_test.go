package consumer_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// A batch that was handled is not in memory any more, however long it might have lingered: with a Linger of minutes it would be
// many times the budget. Messages come a few at a time, so each batch gathers.
func TestHandledBatchesAreNotKept(t *testing.T) {
	const messages, size, atOnce = 5000, 10, 7
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	var seen kept[consumer.Message]
	r := start(t, b, consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Prefetch: atOnce}), Chunk: atOnce,
		Batch: &consumer.Batch{Size: size, Linger: time.Hour, Handler: func(_ context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				seen.add(m)
			}
			return nil
		}}})
	for range messages {
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
	var handled, left int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// What the workers, the slab and the cutter hold still is no more than some batches.
		if handled, left = seen.count(); handled == messages && left < messages/10 {
			break
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if handled != messages || left >= messages/10 {
		t.Errorf("%d of %d handled, %d of them are kept in memory", handled, messages, left)
	}
}

// What waits for others of its key, or of its level, keeps no answer of the broker in memory, with all that came in it and was
// handled long ago.
func TestLingeringKeepsNoAnswers(t *testing.T) {
	const rounds, size = 100, 127
	for name, cfg := range map[string]consumer.Config{
		"by key":            {Batch: &consumer.Batch{ByKey: true}},
		"by key, in order":  {Batch: &consumer.Batch{ByKey: true}, Order: consumer.OrderKey},
		"by level":          {Batch: &consumer.Batch{}, Priority: rareAt(0)},
		"by level, reverse": {Batch: &consumer.Batch{}, Priority: rareAt(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
				var answers kept[byte]
				cfg.Source = packed{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), &answers}
				cfg.Batch.Size, cfg.Batch.Linger = size, time.Hour
				cfg.Batch.Handler = func(context.Context, []*consumer.Message) error { return nil }
				c, stop := quiet(t, cfg)
				for no := range byte(rounds) {
					some := make([]broker.Outgoing, 1+size)
					for i := range some {
						some[i] = broker.Outgoing{Topic: "in", Key: []byte{'h', no}, Value: make([]byte, 100)}
					}
					some[0].Key = []byte{'r', no}
					if err := b.Produce(some...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if s := c.Stats(); s.InFlight != rounds {
					t.Errorf("%d messages wait for others, want %d", s.InFlight, rounds)
				}
				if all, kept := answers.count(); all < rounds || kept > rounds/10 {
					t.Errorf("%d of %d answers are in memory", kept, all)
				}
				stop()
			})
		})
	}
}

// A shared source hands out several answers of the broker in one piece of memory, as one answer for several partitions is.
type shared struct {
	*membroker.Source
	answers *kept[byte]
	size    int
	piece   *[]byte
}

func (s shared) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	for i := range n {
		if at := len(*s.piece); cap(*s.piece)-at < len(dst[i].Value) {
			*s.piece = make([]byte, 0, s.size)
			s.answers.add(&(*s.piece)[:1][0])
		}
		at := len(*s.piece)
		*s.piece = append(*s.piece, dst[i].Value...)
		dst[i].Value = (*s.piece)[at:]
	}
	return n, err
}

// What lingers of a partition to which little comes keeps no answers in memory that brought much of another one.
func TestLingeringKeepsNothingOfOtherPartitions(t *testing.T) {
	const rounds, size, bytes = 100, 127, 100
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 2}})
		var answers kept[byte]
		c, stop := quiet(t, consumer.Config{
			Source: shared{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), &answers, (1 + size) * bytes, new([]byte)},
			Batch: &consumer.Batch{Size: size, Linger: time.Hour,
				Handler: func(context.Context, []*consumer.Message) error { return nil }}})
		for range rounds {
			for partition, n := range []int{1, size} {
				for range n {
					if err := b.ProduceTo(partition, broker.Outgoing{Topic: "in", Value: make([]byte, bytes)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Second)
		}
		if s := c.Stats(); s.InFlight != rounds {
			t.Errorf("%d messages wait for others, want %d", s.InFlight, rounds)
		}
		if all, kept := answers.count(); all < rounds || kept > rounds/10 {
			t.Errorf("%d of %d answers are in memory", kept, all)
		}
		stop()
	})
}

// rareAt has keys that begin with r at one level, and others at the other one.
func rareAt(level int) *consumer.Priority {
	return &consumer.Priority{Levels: []int{2, 1}, Of: func(m *consumer.Message) int {
		if m.Key[0] == 'r' {
			return level
		}
		return 1 - level
	}}
}

// Batches that come whole are handed over as they lie: nothing is copied, and next to nothing allocated for a message.
func TestWholeBatchesAreNotCopied(t *testing.T) {
	const size, messages = 100, 200_000
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	ms := make([]broker.Outgoing, 1000)
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "in", Value: []byte("value")}
	}
	if err := b.Fill(0, messages, ms...); err != nil {
		t.Fatal(err)
	}
	var handled, whole atomic.Int64
	done := make(chan struct{})
	r := start(t, b, consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}, Prefetch: 4096}),
		Batch: &consumer.Batch{Size: size, Handler: func(_ context.Context, ms []*consumer.Message) error {
			if len(ms) == size {
				whole.Add(1)
			}
			if handled.Add(int64(len(ms))) == messages {
				close(done)
			}
			return nil
		}}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d handled", handled.Load())
	}
	runtime.ReadMemStats(&after)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if n := whole.Load(); n < messages/size*9/10 {
		t.Errorf("%d whole batches of %d", n, messages/size)
	}
	// A slab of messages, a list of pointers to them, and a work for each batch: a fifth of an allocation would be one for five.
	if per := float64(after.Mallocs-before.Mallocs) / messages; per > 0.2 {
		t.Errorf("%.2f allocations a message", per)
	}
}

// A batch that few have come for takes the memory of few: room for all of it, in each partition, would be many times the budget.
func TestSmallBatchesAreSmall(t *testing.T) {
	const partitions, size = 32, 1 << 16
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": partitions}})
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Budget: broker.Budget{Messages: 2 * size},
			Batch: &consumer.Batch{Size: size, Linger: time.Hour,
				Handler: func(context.Context, []*consumer.Message) error { return nil }}})
		time.Sleep(time.Second)
		before := live()
		for partition := range partitions {
			if err := b.ProduceTo(partition, broker.Outgoing{Topic: "in"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if s := c.Stats(); s.InFlight != partitions {
			t.Errorf("%d messages wait for others, want %d", s.InFlight, partitions)
		}
		if grown := live() - before; grown > partitions<<19 {
			t.Errorf("%d messages hold %d MiB", partitions, grown>>20)
		}
		stop()
	})
}

// live is how much is in memory that somebody refers to.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
