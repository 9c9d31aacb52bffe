package kafkabroker

import (
	"cmp"
	"slices"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestWants: what a fetch would be to a partition, by what is known of it. Planned through the exported API it shows only as
// requests that are late or too many.
func TestWants(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		change func(p *part)
		paused bool
		want   want
	}{
		"nothing of it is here":           {want: atOnce},
		"it is paused":                    {paused: true, want: notNow},
		"nobody leads it":                 {change: func(p *part) { p.leader = -1 }, want: notNow},
		"another replica has it":          {change: func(p *part) { p.leader, p.replica = -1, 2 }, want: atOnce},
		"it is revoked":                   {change: func(p *part) { p.stage = draining }, want: notNow},
		"it is held":                      {change: func(p *part) { p.heldUntil = now.Add(1) }, want: notNow},
		"the hold is over":                {change: func(p *part) { p.heldUntil = now }, want: atOnce},
		"the last fetch failed":           {change: func(p *part) { p.putOff(now.Add(1)) }, want: notNow},
		"a fetch is under way":            {change: func(p *part) { p.flying = true }, want: later},
		"something is prefetched":         {change: func(p *part) { p.cur = &decoder{} }, want: later},
		"Receive decodes":                 {change: func(p *part) { p.busy = true }, want: later},
		"its window is full":              {change: func(p *part) { fillWindow(p) }, want: later},
		"full, and something comes again": {change: func(p *part) { fillWindow(p); p.rewind(0) }, want: atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Window: 4}.withDefaults()
			p := newPart(newHoldings(&cfg, newBells(), nil, nil), newStart(partitionID{"orders", 0}, nil), 1)
			if tc.change != nil {
				tc.change(p)
			}
			version, stalled := p.version, p.stalled
			if got := p.wants(now, tc.paused); got != tc.want {
				t.Errorf("it wants %v, want %v", got, tc.want)
			}
			if p.version != version || p.stalled != stalled {
				t.Error("a question changed it")
			}
		})
	}
}

// TestFetchesTakeTurns: where one fetch reserves all that is left of the budget, brokers are asked one after the other, whatever
// they have.
func TestFetchesTakeTurns(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: int64(cfg.FetchBytes)}})
	h.gate.HandOut(1, int64(cfg.FetchBytes)-1000)
	for no := range int32(3) {
		h.place("orders", no).moveTo(no)
	}
	var asked []int32
	for now, n := time.Unix(1000, 0), 0; n < 6; n++ {
		now = now.Add(cfg.MaxWait)
		fs := h.plan(now)
		if len(fs) != 1 {
			t.Fatalf("%d fetches share a budget that one takes", len(fs))
		}
		f := fs[0]
		asked = append(asked, f.req.node)
		h.arrived(f, []fetched{{partitionID: f.parts[0].partitionID, preferred: -1}}, nil, now.Add(cfg.MaxWait/2))
	}
	if want := []int32{0, 1, 2, 0, 1, 2}; !slices.Equal(asked, want) {
		t.Errorf("brokers %v were asked, want %v", asked, want)
	}
}

// TestBrokersThatAreGone: brokers are replaced by others, again and again, and each leads the one partition for a while. Fetches
// reserve as much as ever, for of one broker alone something is to be fetched, and nothing of the others is kept.
func TestBrokersThatAreGone(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 2 * int64(cfg.FetchBytes)}})
	p := h.place("orders", 0)
	now := time.Unix(1000, 0)
	for node := range int32(50) {
		h.surveyed(map[string]topic{"orders": {leaders: []int32{node}}}, func(partitionID, topicID) bool { return false })
		now = now.Add(cfg.MaxWait)
		fs := h.plan(now)
		if len(fs) != 1 || fs[0].req.node != node || int(fs[0].req.bytes) != cfg.FetchBytes {
			t.Fatalf("planned %+v, want one fetch of %d bytes of broker %d", fs, cfg.FetchBytes, node)
		}
		now = now.Add(cfg.MaxWait)
		h.arrived(fs[0], []fetched{{partitionID: p.partitionID, preferred: -1}}, nil, now)
	}
	if n := max(len(h.flights.asked), len(h.flights.quiet), len(h.flights.to)); n > 2 {
		t.Errorf("%d brokers are remembered, and there is one", n)
	}
}

// TestFirstFetchLeavesRoom: of two partitions one begins before the other, whose leader has not told yet where that begins. The
// first fetch does not reserve all of the budget: its broker may hang, and keep that.
func TestFirstFetchLeavesRoom(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: int64(cfg.FetchBytes)}})
	h.place("orders", 0)
	other := newStart(partitionID{"orders", 1}, nil)
	h.roster.beginning[other.partitionID] = other
	h.surveyed(map[string]topic{"orders": {leaders: []int32{0, 1}}}, func(partitionID, topicID) bool { return false })
	now := time.Unix(1000, 0)
	if fs := h.plan(now); len(fs) != 1 || int(fs[0].req.bytes) > cfg.FetchBytes/2 {
		t.Fatalf("planned %+v, want one fetch of half of the budget at most, which is %d bytes", fs, cfg.FetchBytes)
	}
	delete(h.roster.beginning, other.partitionID)
	h.place("orders", 1)
	h.surveyed(map[string]topic{"orders": {leaders: []int32{0, 1}}}, func(partitionID, topicID) bool { return false })
	if fs := h.plan(now); len(fs) != 1 || fs[0].req.node != 1 {
		t.Errorf("planned %+v, want one fetch of the other broker", fs)
	}
}

// TestShare: few partitions share what a fetch may bring, many have their bound, and none more than the budget has.
func TestShare(t *testing.T) {
	for name, tc := range map[string]struct {
		parts  int32
		budget int64
		want   int32
	}{
		"alone":                   {1, 64 << 20, 400},
		"two":                     {2, 64 << 20, 200},
		"three":                   {3, 64 << 20, 133},
		"as many as have room":    {4, 64 << 20, 100},
		"more":                    {9, 64 << 20, 100},
		"alone in a small budget": {1, 250, 250},
		"two in a small budget":   {2, 250, 125},
		"many in a small budget":  {9, 250, 100},
		"many in a smaller one":   {9, 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{FetchBytes: 400, PartitionBytes: 100}.withDefaults()
			h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
			h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: tc.budget}})
			for no := range tc.parts {
				h.place("orders", no).moveTo(1)
			}
			fs := h.plan(time.Unix(1000, 0))
			if len(fs) != 1 || len(fs[0].req.wishes) != int(tc.parts) {
				t.Fatalf("planned %+v, want one fetch of all", fs)
			}
			for _, w := range fs[0].req.wishes {
				if w.bytes != tc.want {
					t.Errorf("of partition %d it may bring %d bytes, want %d", w.no, w.bytes, tc.want)
				}
			}
			if _, held := h.gate.Held(); held != int64(fs[0].req.bytes) {
				t.Errorf("%d bytes are reserved for %d", held, fs[0].req.bytes)
			}
		})
	}
}

// TestRest: while nothing comes, brokers are asked to wait longer and longer. Whatever may have to be fetched before a long wait
// is over forbids it.
func TestRest(t *testing.T) {
	cfg := Config{}.withDefaults()
	const budget = 64 << 20
	for name, tc := range map[string]struct {
		bytes  int64
		change func(h *holdings, p *part)
		answer func(f *flight) []fetched // nil: it has nothing
		early  bool                      // the answers come before their time
		want   []int                     // waits, in MaxWait
	}{
		"nothing comes":      {want: []int{1, 2, 4, 8, 10, 10}},
		"messages come":      {answer: func(f *flight) []fetched { return landed(f, 2) }, want: []int{1, 1, 1}},
		"an error comes":     {answer: func(f *flight) []fetched { return failedAnswer(f) }, want: []int{1, 1, 1}},
		"no answer":          {answer: func(*flight) []fetched { return nil }, want: []int{1, 1, 1}},
		"a replica is named": {answer: func(f *flight) []fetched { return elsewhere(f) }, want: []int{1, 1, 1}},
		"it does not wait":   {early: true, want: []int{1, 1, 1}},
		"a message is out":   {change: func(h *holdings, _ *part) { h.gate.HandOut(1, 10) }, want: []int{1, 1, 1}},
		"another one begins": {change: func(h *holdings, _ *part) { h.roster.begin(partitionID{"orders", 7}, nil) },
			want: []int{1, 1, 1}},
		"one is held":           {change: func(_ *holdings, p *part) { p.heldUntil = time.Now().Add(time.Hour) }, want: []int{1, 1, 1}},
		"one has no leader":     {change: func(_ *holdings, p *part) { p.moveTo(-1) }, want: []int{1, 2, 4}},
		"there are few bytes":   {bytes: 2*restBytes - 1, want: []int{1, 1, 1}},
		"there are just enough": {bytes: 2 * restBytes, want: []int{1, 2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
			h.open(broker.Options{Budget: broker.Budget{Messages: 100, Bytes: cmp.Or(tc.bytes, budget)}})
			for no := range int32(3) {
				h.place("orders", no).moveTo(1)
			}
			if tc.change != nil {
				tc.change(h, h.roster.turns[1])
			}
			for now, i := time.Now(), 0; i < len(tc.want); i++ {
				fs := h.plan(now)
				if len(fs) != 1 {
					t.Fatalf("fetch %d: there are %d", i, len(fs))
				}
				f := fs[0]
				wait := time.Duration(tc.want[i]) * cfg.MaxWait
				if f.req.maxWait != wait {
					t.Errorf("fetch %d waits %v, want %v", i, f.req.maxWait, wait)
				}
				if h.resting() != (tc.want[i] > 1 && len(f.parts) == 3) {
					t.Errorf("fetch %d: resting is %v", i, h.resting())
				}
				answer := landed
				if tc.answer != nil {
					answer = func(f *flight, _ ...int32) []fetched { return tc.answer(f) }
				}
				if !tc.early {
					now = now.Add(f.req.maxWait)
				}
				h.arrived(f, answer(f), nil, now)
				for _, p := range f.parts { // what came is handed out, and what failed is tried again
					p.retryAt = time.Time{}
					p.replica = -1
					p.drop()
				}
			}
		})
	}
}

// TestRestLeavesRoom: a long wait keeps its bytes from no other broker.
func TestRestLeavesRoom(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 2 << 20}}) // of which one fetch takes all
	for no := range int32(2) {
		h.place("orders", no).moveTo(no)
		h.flights.quiet[no] = 1
	}
	for _, f := range h.plan(time.Now()) {
		if !f.rests() || f.req.bytes > 1<<20 {
			t.Errorf("a fetch waits %v with %d bytes", f.req.maxWait, f.req.bytes)
		}
	}
	if !h.resting() {
		t.Error("one broker is not asked while the other waits")
	}
}

func failedAnswer(f *flight) []fetched {
	got := landed(f)
	got[0].err = kafka.UnknownTopicOrPartition
	return got
}

func elsewhere(f *flight) []fetched {
	got := landed(f)
	got[0].preferred = 2
	return got
}

// fillWindow hands out as much as the window of a partition takes.
func fillWindow(p *part) {
	for o := range int64(4) {
		p.tr.offer(o, 1)
	}
	p.scan = 4
}

// TestLagIsAsOldAsItsPartitions: of one partition no broker tells any more, for its leader is gone. The sum of all is as old as
// what is known of that one: whoever takes it for what waits now, and sees nothing come of it, takes the source for dead.
func TestLagIsAsOldAsItsPartitions(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
	for no := range int32(2) {
		h.place("orders", no).moveTo(no)
	}
	began := time.Unix(1000, 0)
	now := began
	answer := func(from int32) {
		for _, f := range h.plan(now) {
			if f.req.node < from {
				h.arrived(f, nil, kafka.BrokerNotAvailable, now)
				continue
			}
			h.arrived(f, []fetched{{partitionID: f.parts[0].partitionID, high: 5, stable: 5, preferred: -1}}, nil, now)
		}
	}
	answer(0)
	if l, _ := h.lags(); l.Waiting != 10 || !l.At.Equal(began) {
		t.Fatalf("lag %+v, want 10 at %v", l, began)
	}
	now = now.Add(time.Minute)
	answer(1)
	if l, _ := h.lags(); l.Waiting != 10 || !l.At.Equal(began) {
		t.Errorf("lag %+v when partition 0 has no broker; what is known of it is of %v", l, began)
	}
}
