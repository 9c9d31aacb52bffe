package kafkabroker

import (
	"slices"
	"testing"
	"time"

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

// TestFetchesTakeTurns: where one fetch reserves all of the budget, brokers are asked one after the other, whatever they have.
func TestFetchesTakeTurns(t *testing.T) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: int64(cfg.FetchBytes) / 2}})
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
		h.arrived(f, []fetched{{partitionID: f.parts[0].partitionID, preferred: -1}}, nil, now.Add(cfg.MaxWait))
	}
	if want := []int32{0, 1, 2, 0, 1, 2}; !slices.Equal(asked, want) {
		t.Errorf("brokers %v were asked, want %v", asked, want)
	}
}

// fillWindow hands out as much as the window of a partition takes.
func fillWindow(p *part) {
	for o := range int64(4) {
		p.tr.offer(o, 1)
	}
	p.scan = 4
}
