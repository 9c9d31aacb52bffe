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

// A million keys pass by, none comes twice. What is left of them is nothing: a lane that stayed for each would take tens of MiB.
func TestManyKeysLeaveNothing(t *testing.T) {
	const rounds, each = 100, 10_000
	const slack = 8 << 20
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var handled, most atomic.Int64
		var r *running
		r = start(t, b, consumer.Config{Order: consumer.OrderKey, Handler: func(context.Context, *consumer.Message) error {
			if n := handled.Add(1); n%100 == 0 {
				most.Store(max(most.Load(), int64(r.Stats().Lanes)))
			}
			return nil
		}})
		round := func(no int) {
			for i := range each {
				n := no*each + i
				key := []byte{byte(n), byte(n >> 8), byte(n >> 16), 'k'}
				if err := b.Produce(broker.Outgoing{Topic: "in", Key: key, Value: key}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second)
			if got := handled.Load(); got != int64((no+1)*each) {
				t.Fatalf("%d handled, want %d", got, (no+1)*each)
			}
			if err := b.Trim("in", 0, int64((no+1)*each)); err != nil { // it would keep them for others
				t.Fatal(err)
			}
		}
		round(0)
		before := heap()
		for no := 1; no < rounds; no++ {
			round(no)
		}
		after := heap()
		if s := r.Stats(); s.Lanes != 0 || s.Waiting != 0 || s.InFlight != 0 || most.Load() == 0 {
			t.Errorf("at most %d lanes at once; left: %+v", most.Load(), s)
		}
		if after > before+slack {
			t.Errorf("%d KiB after %d keys, %d KiB after %d", after>>10, rounds*each, before>>10, each)
		}
		t.Logf("%d KiB after %d keys, %d KiB after %d; at most %d lanes at once", before>>10, each, after>>10, rounds*each, most.Load())
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A watched source tells of the values that it hands out.
type watched struct {
	*membroker.Source
	values *kept[byte]
}

func (s watched) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	for i := range n {
		s.values.add(&dst[i].Value[0])
	}
	return n, err
}

// heap is what is live.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
