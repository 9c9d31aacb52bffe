package kit_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestFeed: whoever waits for budget is woken for a good part of it at once, and for less after a while.
func TestFeed(t *testing.T) {
	now := time.Unix(1000, 0)
	var g kit.Gate
	g.SetBudget(broker.Budget{Messages: 1000, Bytes: 1 << 20})
	g.HandOut(1000, 1000)
	if _, _, ok := g.Room(); ok {
		t.Fatal("there is room in a budget that is used up")
	}
	if wake, next := g.Refill(now); wake || !next.IsZero() {
		t.Errorf("nothing was freed: wake %v, next %v", wake, next)
	}
	g.Free(1, 1)
	if wake, soon := g.Feed(); wake || !soon {
		t.Errorf("one message of 1000 was freed: wake %v, soon %v", wake, soon)
	}
	if wake, soon := g.Feed(); wake || soon {
		t.Errorf("it was said before: wake %v, soon %v", wake, soon)
	}
	wake, next := g.Refill(now)
	if wake || !next.After(now) {
		t.Errorf("at once: wake %v, next %v", wake, next)
	}
	if wake, next := g.Refill(next); !wake || !next.IsZero() {
		t.Errorf("after the wait: wake %v, next %v", wake, next)
	}
	if wake, soon := g.Feed(); wake || soon {
		t.Error("nobody waits, and is woken")
	}
	if g.Starved() {
		t.Error("who waited was woken, and waits")
	}
	g.HandOut(1, 1)
	g.Room()
	g.Free(125, 125)
	if wake, _ := g.Feed(); !wake {
		t.Error("an eighth was freed: nobody is woken")
	}
	if n, bytes, ok := g.Room(); n != 125 || bytes != 1<<20-875 || !ok {
		t.Errorf("room for %d messages and %d bytes", n, bytes)
	}
}

// TestFeedAtOnce: a small budget, and an eager gate, are refilled by each settle; not while the bytes are still used up.
func TestFeedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		budget broker.Budget
		eager  bool
		bytes  int64 // of each message
		freed  int64 // of the first settle
		want   bool
	}{
		"small":              {broker.Budget{Messages: 8, Bytes: 1 << 20}, false, 1, 1, true},
		"large":              {broker.Budget{Messages: 800, Bytes: 1 << 20}, false, 1, 1, false},
		"eager":              {broker.Budget{Messages: 800, Bytes: 1 << 20}, true, 1, 1, true},
		"bytes still used":   {broker.Budget{Messages: 8, Bytes: 8}, true, 2, 1, false},
		"few bytes of many":  {broker.Budget{Messages: 8, Bytes: 8 << 20}, false, 1 << 20, 1 << 10, false},
		"many bytes of many": {broker.Budget{Messages: 8, Bytes: 8 << 20}, false, 1 << 20, 1 << 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := kit.Gate{Eager: tc.eager}
			g.SetBudget(tc.budget)
			g.HandOut(tc.budget.Messages, int64(tc.budget.Messages)*tc.bytes)
			if _, _, ok := g.Room(); ok {
				t.Fatal("there is room")
			}
			g.Free(1, tc.freed)
			if wake, _ := g.Feed(); wake != tc.want {
				t.Errorf("wake is %v", wake)
			}
		})
	}
}

// TestHold: what is prefetched takes room of what may be asked for, and none of what may be handed out.
func TestHold(t *testing.T) {
	var g kit.Gate
	if _, _, ok := g.Room(); ok {
		t.Error("a gate without a budget lets something pass")
	}
	g.SetBudget(broker.Budget{Messages: 10, Bytes: 100})
	g.Hold(4, 70)
	g.HandOut(5, 20)
	if n, bytes, ok := g.FetchRoom(); n != 1 || bytes != 10 || !ok {
		t.Errorf("room to ask for %d messages, %d bytes", n, bytes)
	}
	g.Hold(1, 0)
	if _, _, ok := g.FetchRoom(); ok {
		t.Error("room to ask for more messages than the budget has")
	}
	if n, bytes, ok := g.Room(); n != 5 || bytes != 80 || !ok {
		t.Errorf("room to hand out %d messages, %d bytes", n, bytes)
	}
	g.Hold(-5, -70)
	if n, bytes := g.Held(); n != 0 || bytes != 0 || g.Out() != 5 || g.OutBytes() != 20 {
		t.Errorf("%d messages and %d bytes are held, %d and %d out", n, bytes, g.Out(), g.OutBytes())
	}
}
