package consumer_test

import (
	"context"
	"errors"
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

// A poisonRun is a minute of messages of 1,000 keys, 100 a second, and beside them of a key whose handler always fails.
type poisonRun struct {
	broker membroker.Config
	policy consumer.LanePolicy
	every  time.Duration // a message of the poisoned key; 0: there is none
	apart  bool          // only the others that are not in its partition count
}

const (
	poisonOthers = 6_000
	poisonPause  = 10 * time.Millisecond
)

// p99 is how long the messages of the other keys took from the broker to their handler's end, and full how often a lane was full
// meanwhile.
func (p poisonRun) p99(t *testing.T) (others time.Duration, full int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(p.broker)
		var (
			mu       sync.Mutex
			took     = map[int32][]time.Duration{}
			poisoned atomic.Int32
		)
		poisoned.Store(-2)
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Lane: consumer.Lane{Limit: 100,
				Full: p.policy}, DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Retry: consumer.Retry{MaxAttempts: 1 << 20}, // it always fails, and never runs out
			Handler: func(_ context.Context, m *consumer.Message) error {
				time.Sleep(time.Duration(1+m.Nanos/int64(poisonPause)%5) * time.Millisecond)
				if string(m.Key) == "poison" {
					poisoned.Store(m.Partition)
					return errors.New("poison")
				}
				mu.Lock()
				defer mu.Unlock()
				took[m.Partition] = append(took[m.Partition], time.Since(m.Time()))
				return nil
			}})
		p.produce(t, b)
		time.Sleep(time.Second)
		full = len(eventsOf[consumer.LaneFull](r.journal))
		var all []time.Duration
		for partition, some := range took {
			if !p.apart || partition != poisoned.Load() {
				all = append(all, some...)
			}
		}
		if want := poisonOthers; !p.apart && len(all) != want || len(all) < want/4 {
			t.Errorf("%d of %d messages of the other keys were handled", len(all), want)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		slices.Sort(all)
		others = all[len(all)*99/100]
	})
	return others, full
}

func (p poisonRun) produce(t *testing.T, b *membroker.Broker) {
	t.Helper()
	send := func(key string) {
		if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte(key), Value: []byte(key)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range poisonOthers {
		time.Sleep(poisonPause)
		send(fmt.Sprint("k", i%1000))
		if p.every > 0 && time.Duration(i)*poisonPause%p.every == 0 {
			send("poison")
		}
	}
}

// A key that fails for a minute costs 1,000 others nothing. In virtual time there is no noise but that of the goroutines' order:
// two runs without it say how much that is.
func TestPoisonedKeyCostsOthersNothing(t *testing.T) {
	const asOthers, hot = 10 * time.Second, 100 * time.Millisecond // of all messages, a thousandth and a tenth
	for name, kind := range kinds {
		without := poisonRun{broker: kind}
		one, _ := without.p99(t)
		two, _ := without.p99(t)
		for _, run := range []poisonRun{
			{policy: consumer.LaneBlock, every: asOthers},
			{policy: consumer.LaneDeadLetter, every: asOthers},
			{policy: consumer.LaneDeadLetter, every: hot},
			{policy: consumer.LaneBlock, every: hot, apart: true},
		} {
			if run.apart && kind.Leased {
				continue // there is one claim, and it is what blocks
			}
			run.broker = kind
			t.Run(fmt.Sprintf("%s/%s/%v", name, run.policy, run.every), func(t *testing.T) {
				with, full := run.p99(t)
				if full > 0 != (run.every == hot) {
					t.Errorf("the lane was full %d times", full)
				}
				if limit := max(one, two) + max(one-two, two-one, time.Millisecond); with > limit {
					t.Errorf("the others' p99 is %v beside the poisoned key, and %v and %v without", with, one, two)
				}
				t.Logf("the others' p99: %v with, %v and %v without; ratio %.2f; full %d times", with, one, two,
					float64(with)/float64(min(one, two)), full)
			})
		}
	}
}
