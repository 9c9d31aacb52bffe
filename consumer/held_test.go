package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// ways are those in which messages come into the hands of a worker.
var ways = map[string]consumer.Config{
	"one by one":                    {},
	"keys in order":                 {Order: consumer.OrderKey},
	"partitions in order":           {Order: consumer.OrderPartition},
	"batches":                       {Batch: &consumer.Batch{Size: 20}},
	"batches by key":                {Batch: &consumer.Batch{Size: 20, ByKey: true}},
	"batches, keys in order":        {Batch: &consumer.Batch{Size: 20}, Order: consumer.OrderKey},
	"batches by key, keys in order": {Batch: &consumer.Batch{Size: 20, ByKey: true}, Order: consumer.OrderKey},
}

// handling is cfg with f as the handler of each message, in batches where cfg has them.
func handling(cfg consumer.Config, f consumer.Handler) consumer.Config {
	if cfg.Batch == nil {
		cfg.Handler = f
		return cfg
	}
	b := *cfg.Batch
	b.Handler = func(ctx context.Context, ms []*consumer.Message) error {
		e := &consumer.BatchError{}
		var failed error
		for _, m := range ms {
			// else it comes again whatever is said of it
			if failed == nil || consumer.IsSkip(failed) || !b.ByKey || cfg.Order != consumer.OrderKey {
				failed = f(ctx, m)
			}
			e.Errs = append(e.Errs, failed)
		}
		return e
	}
	cfg.Batch = &b
	return cfg
}

// What a worker was handed and does not begin with, for it gets no processor, is handled by others, as it would have been by it:
// whole batches, in their order, with what is known of earlier failures.
func TestHeldWorkers(t *testing.T) {
	for name, cfg := range ways {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) { heldWorkers(t, b, cfg) })
		})
	}
}

func heldWorkers(t *testing.T, b *membroker.Broker, cfg consumer.Config) {
	const messages = 2000
	produceKeyed(t, b, messages, 20)
	var l ledger
	var handed, stopped atomic.Int64
	cfg.Pool, cfg.Retry.Backoff = consumer.Pool{Min: 4, Max: 4}, consumer.Backoff{Initial: 10 * time.Millisecond, Max: time.Second}
	begin := func() *running {
		return startHeld(t, b, handling(cfg, func(_ context.Context, m *consumer.Message) error {
			if strings.HasSuffix(string(m.Value), "7") && m.Runs == 0 {
				return errors.New("the first time")
			}
			l.add(m)
			return nil
		}), func() {
			if handed.Add(1)%3 == 0 && stopped.Load() == 0 {
				time.Sleep(35 * time.Millisecond) // three scans
			}
		})
	}
	r := begin()
	time.Sleep(100 * time.Millisecond)
	stopped.Add(1)
	if err := r.end(); err != nil { // with workers that have not begun
		t.Fatal(err)
	}
	stopped.Add(-1)
	if s := r.Stats(); s.InFlight != 0 || s.Handled == messages {
		t.Errorf("stopped in the middle: %+v", s)
	}
	r = begin()
	time.Sleep(5 * time.Minute)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	l.check(t, messages)
	wantUnsettled(t, b, 0)
	if s := r.Stats(); s.InFlight != 0 || s.Lost != 0 || s.Lanes != 0 {
		t.Errorf("stats %+v", s)
	}
	for _, f := range eventsOf[consumer.Failed](r.journal) {
		if f.Class != "error" {
			t.Errorf("a failure of class %s: %v", f.Class, f.Err)
			break
		}
	}
}

// holdSome holds workers for some scans by dice.
func holdSome() {
	if rand.IntN(20) == 0 {
		time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
	}
}

// Beside more busy goroutines than there are processors, each batch is handled, too.
func TestBatchesBesideOthers(t *testing.T) {
	const messages = 30_000
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 4}})
	produce(t, b, messages)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	for range 8 * runtime.GOMAXPROCS(0) {
		others.Go(func() {
			for ctx.Err() == nil { //nolint:revive // it is busy
			}
		})
	}
	var l ledger
	r := start(t, b, handling(consumer.Config{Batch: &consumer.Batch{Size: 100, Linger: 10 * time.Millisecond}},
		func(_ context.Context, m *consumer.Message) error {
			l.add(m)
			return nil
		}))
	for begin := time.Now(); r.Stats().Handled < messages && time.Since(begin) < 5*time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	l.check(t, messages)
	wantUnsettled(t, b, 0)
}
