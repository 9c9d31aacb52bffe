package kafkabroker

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// manyParts are holdings with n partitions of one broker, and the fetch that all of them are in.
func manyParts(t *testing.T, n int, now time.Time) (h *holdings, all *flight) {
	t.Helper()
	cfg := Config{}.withDefaults()
	h = newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10_000, Bytes: 64 << 20}})
	for no := range int32(n) {
		h.place("orders", no).moveTo(1)
	}
	fs := h.plan(now)
	if len(fs) != 1 || len(fs[0].parts) != n || fs[0].req.maxWait != cfg.MaxWait {
		t.Fatalf("%d partitions of one broker that have nothing are %d fetches", n, len(fs))
	}
	return h, fs[0]
}

// landed is a fetch's answer, with messages of those that has names.
func landed(f *flight, has ...int32) (got []fetched) {
	for _, p := range f.parts {
		a := fetched{partitionID: p.partitionID, high: 3, stable: -1, preferred: -1}
		for _, no := range has {
			if no == p.no {
				a.records = testBatch{offsets: []int64{0, 1, 2}}.bytes()
			}
		}
		got = append(got, a)
	}
	return got
}

// TestWakeUpLooksAtWhatIsDue: of a thousand partitions of which one has messages, whoever is woken looks at that one.
func TestWakeUpLooksAtWhatIsDue(t *testing.T) {
	now := time.Now()
	h, all := manyParts(t, 1000, now)
	looks := func() (n int) { // at each kick of the loop, and each Receive
		r := &h.roster
		for _, ps := range r.idle {
			n += len(ps)
		}
		return n + len(r.stock) + len(r.timed) + len(r.draining)
	}
	if n := looks(); n > 0 {
		t.Errorf("%d partitions are looked at while all are being fetched", n)
	}
	h.arrived(all, landed(all, 7), nil, now.Add(time.Second))
	rest := h.plan(now)
	if len(rest) != 1 || len(rest[0].parts) != 999 {
		t.Fatalf("%d fetches of what had nothing", len(rest))
	}
	if n := looks(); n != 1 {
		t.Errorf("%d partitions are looked at, want the one that has messages", n)
	}
	dst := make([]broker.Message, 10)
	l, err := h.lend(len(dst), now, false)
	if err != nil || l.p == nil || l.p.no != 7 {
		t.Fatalf("%+v is lent, %v", l, err)
	}
	l.decode(dst)
	if n, hungry := h.take(&l, dst, now); n != 3 || !hungry {
		t.Fatalf("%d messages, hungry %v", n, hungry)
	}
	if fs := h.plan(now); len(fs) != 1 || len(fs[0].parts) != 1 {
		t.Errorf("%d fetches of what was handed out", len(fs))
	}
	h.lend(len(dst), now, false)
	if n := looks(); n > 0 {
		t.Errorf("%d partitions are looked at while all are being fetched again", n)
	}
}

// TestFetchesComeTogether: of partitions that have nothing one fetch waits at the broker for long, however they were fetched
// before. Two short ones that follow each other would never be one again.
func TestFetchesComeTogether(t *testing.T) {
	now := time.Now()
	h, all := manyParts(t, 10, now)
	h.arrived(all, landed(all, 7), nil, now.Add(time.Second))
	rest := h.plan(now)
	l, _ := h.lend(10, now, false)
	dst := make([]broker.Message, 10)
	l.decode(dst)
	h.take(&l, dst, now)
	alone := h.plan(now)
	if len(rest) != 1 || len(alone) != 1 || len(rest[0].parts) != 9 || len(alone[0].parts) != 1 {
		t.Fatalf("fetches %v and %v", rest, alone)
	}
	h.arrived(rest[0], landed(rest[0]), nil, now.Add(time.Second))
	if fs := h.plan(now); len(fs) > 0 {
		t.Errorf("%d partitions that have nothing are fetched beside a fetch that is back soon", len(fs[0].parts))
	}
	h.arrived(alone[0], landed(alone[0]), nil, now.Add(time.Second))
	fs := h.plan(now)
	if len(fs) != 1 || len(fs[0].parts) != 10 || fs[0].req.maxWait != h.cfg.MaxWait {
		t.Errorf("they are %d fetches, want one that waits", len(fs))
	}
}
