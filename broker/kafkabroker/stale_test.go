package kafkabroker

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// TestStaleAndBudget: partitions are lost while a handler runs, and come back. An order wants that nothing of its partition goes
// out before that one has ended, however much was prefetched, and the other partition does not wait for it.
func TestStaleAndBudget(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	records := make([]*kgo.Record, n) // one batch, which is larger than the budget
	random := rand.NewChaCha8([32]byte{})
	for i := range records {
		value := make([]byte, 10_000) // which no codec makes shorter
		_, _ = random.Read(value)
		records[i] = &kgo.Record{Topic: ts.topics[0], Value: value}
	}
	if err := ts.admin.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	events := make(chan broker.Event, 1000)
	first := make(chan broker.Message, 2)
	o := broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 100_000}, Ordered: true}
	got := holdFirst(t, s, o, events, first)
	held := <-first
	eventually(t, "all else came", func() bool { return got[0].Load() == n })
	ts.putOut(t, s)
	awaitEvent(events, func(e broker.Event) bool {
		return e.Kind == broker.Assigned && e.Claim.Partition == 0 && e.Claim != held.Claim
	})
	for i := range 5 {
		ts.produce(t, 1, broker.Outgoing{Topic: ts.topics[0], Value: []byte("b")})
		eventually(t, "the other partition goes on", func() bool { return got[1].Load() > int32(i) })
	}
	_ = s.Ack(held.Claim, []uint64{held.Token})
	again := <-first
	if err := s.Ack(again.Claim, []uint64{again.Token}); err != nil {
		t.Errorf("Ack: %v", err)
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestSkippedBehindStale: a partition is lost while a handler runs, and comes back, and then what cannot be decoded is skipped.
// The handler fails after that: its message comes again, and no commit meanwhile says that it is finished.
func TestSkippedBehindStale(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	cfg := ts.config(ts.net.link())
	cfg.SkipUndecodable = true
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts.put(t, ts.topics[0], 0, 3)
	events := make(chan broker.Event, 1000)
	first := make(chan broker.Message, 2)
	got := holdFirst(t, s, broker.Options{Budget: broker.Budget{Messages: 1000, Bytes: 1 << 20}}, events, first)
	held := <-first
	eventually(t, "all else came", func() bool { return got[0].Load() == 3 })
	ts.putOut(t, s)
	awaitEvent(events, func(e broker.Event) bool { return e.Kind == broker.Assigned && e.Claim != held.Claim })
	ts.undecodable(t, ts.topics[0])
	ts.put(t, ts.topics[0], 4, 2)
	awaitEvent(events, func(e broker.Event) bool { return e.Kind == broker.Gap })
	eventually(t, "all but one is committed", func() bool { return ts.unsettled(t) <= 1 })
	if n := ts.unsettled(t); n != 1 {
		t.Errorf("the commit says that %d are unfinished, and one runs", n)
	}
	if err := s.Nack(held.Claim, []broker.Back{{Token: held.Token}}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Nack: %v", err)
	}
	eventually(t, "it came again", func() bool { return len(first) > 0 })
	again := <-first
	if err := s.Ack(again.Claim, []uint64{again.Token}); err != nil {
		t.Errorf("Ack: %v", err)
	}
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// awaitEvent waits for an event.
func awaitEvent(events <-chan broker.Event, is func(broker.Event) bool) {
	for e := range events {
		if is(e) {
			return
		}
	}
}
