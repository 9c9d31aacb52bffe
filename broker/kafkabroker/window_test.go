package kafkabroker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// TestWindow: one message that stays out holds the commit back; when the window above it is full, intake stops with a Stalled
// event that names it, and goes on when it is settled. Other partitions go on meanwhile.
func TestWindow(t *testing.T) {
	t.Parallel()
	const window, n = 10, 40
	ts := newTestSystem(t, 2, 1)
	cfg := ts.config(ts.net.link())
	cfg.Window = window
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ts.produce(t, 0, broker.Outgoing{Topic: ts.topics[0], Value: []byte{0, byte(i)}})
		ts.produce(t, 1, broker.Outgoing{Topic: ts.topics[0], Value: []byte{1, byte(i)}})
	}
	events := make(chan broker.Event, 1000)
	first := make(chan broker.Message, 1)
	got := holdFirst(t, s, broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 1 << 20}}, events, first)
	held := <-first
	for e := range events {
		if e.Kind == broker.Stalled {
			if e.Claim != held.Claim || e.From != 0 {
				t.Errorf("the event is %+v, want partition 0 at offset 0", e)
			}
			break
		}
	}
	eventually(t, "the other partition goes on", func() bool { return got[1].Load() == n })
	if w, out := s.Window(held.Claim), got[0].Load(); w != 1 || out != window {
		t.Errorf("the window is %v full after %d messages, want 1 after %d", w, out, window)
	}
	if err := s.Ack(held.Claim, []uint64{held.Token}); err != nil {
		t.Errorf("Ack: %v", err)
	}
	eventually(t, "it goes on", func() bool { return got[0].Load() == n })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if w := s.Window(held.Claim); w > 0.5 {
		t.Errorf("the window is %v full after all was acked", w)
	}
}

// holdFirst opens a source of two partitions and acks all but the first message of partition 0, which it sends. It counts what
// came of each partition.
func holdFirst(
	t *testing.T, s *Source, o broker.Options, events chan<- broker.Event, first chan<- broker.Message,
) (got *[2]atomic.Int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.Observe = func(e broker.Event) { events <- e }
	if _, err := s.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	got = new([2]atomic.Int32)
	var end sync.WaitGroup
	end.Go(func() {
		dst := make([]broker.Message, 64)
		for {
			m, err := s.Receive(dst)
			if err != nil {
				return
			}
			for i := range dst[:m] {
				got[dst[i].Partition].Add(1)
				if dst[i].Partition == 0 && dst[i].Offset == 0 {
					first <- dst[i]
				} else if err := s.Ack(dst[i].Claim, []uint64{dst[i].Token}); err != nil {
					t.Errorf("Ack: %v", err)
				}
			}
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		end.Wait()
	})
	return got
}

// TestWindowAndBudget: what is prefetched of a partition whose window is full takes all of the budget's bytes. Nothing of it goes
// out before the message that stays out is settled, and other partitions do not wait for that.
func TestWindowAndBudget(t *testing.T) {
	t.Parallel()
	const window, n = 10, 40
	ts := newTestSystem(t, 2, 1)
	cfg := ts.config(ts.net.link())
	cfg.Window = window
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	records := make([]*kgo.Record, n) // one batch, which is larger than the budget
	for i := range records {
		records[i] = &kgo.Record{Topic: ts.topics[0], Value: make([]byte, 50_000)}
	}
	if err := ts.admin.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	events := make(chan broker.Event, 1000)
	first := make(chan broker.Message, 1)
	got := holdFirst(t, s, broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 1 << 20}}, events, first)
	held := <-first
	for e := range events {
		if e.Kind == broker.Stalled {
			break
		}
	}
	ts.produce(t, 1, broker.Outgoing{Topic: ts.topics[0], Value: []byte("b")})
	eventually(t, "the other partition goes on", func() bool { return got[1].Load() == 1 })
	if out := got[0].Load(); out != window {
		t.Errorf("%d messages came of the one whose window is full, want %d", out, window)
	}
	if err := s.Ack(held.Claim, []uint64{held.Token}); err != nil {
		t.Errorf("Ack: %v", err)
	}
	eventually(t, "it goes on", func() bool { return got[0].Load() == n })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}
