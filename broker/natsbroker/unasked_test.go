package natsbroker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// What nobody asked for is not kept beyond the budget, in messages and bytes. It is given back, and told once. A server lets no
// client send such deliveries, so it is the server that is played.
func TestDeliveriesNotAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		size, asked, kept int
		retired           bool
		maxDeliver        int
	}{
		"messages":                    {size: 10, kept: 10},
		"bytes":                       {size: 50_000, kept: 2},
		"asked for":                   {size: 10, asked: 15, kept: 15}, // with a budget that was larger then
		"more bytes than asked for":   {size: 50_000, asked: 15, kept: 2},
		"at their last delivery":      {size: 10, kept: 20, maxDeliver: 1}, // given back, they would be dropped
		"the same, in bytes":          {size: 50_000, kept: 4, maxDeliver: 1},
		"asked for at an older inbox": {size: 10, asked: 15, kept: 15, retired: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSource(Config{Stream: "S", Consumer: "c"})
			if err != nil {
				t.Fatal(err)
			}
			var told []string
			s.life.events.Observe(func(e broker.Event) { told = append(told, fmt.Sprint(e.Kind, e.Err)) })
			s.held.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
			stock := &s.held.stock
			stock.maxDeliver = c.maxDeliver
			stock.ses = newSession(s.held, "", 10)
			b := &inbox{ses: stock.ses, prefix: "_INBOX.x."}
			stock.pulls.enter(b)
			if c.asked > 0 {
				stock.pulls.sent(request{1, c.asked, 60_000})
			}
			if c.retired {
				stock.pulls.enter(&inbox{ses: stock.ses, prefix: "_INBOX.y."})
			}
			for i := 1; i <= 100; i++ {
				s.puller.arrived(b, &nats.Msg{Subject: "s.a", Reply: fmt.Sprintf("$JS.ACK.S.c.1.%d.%d.1700000000000000000.0", i, i),
					Data: make([]byte, c.size)})
			}
			if n := stock.ses.ready.n; n != c.kept || len(s.outbox.settles.naks) != 100-n {
				t.Errorf("%d are kept and %d were given back, of 100; want %d kept", n, len(s.outbox.settles.naks), c.kept)
			}
			s.life.events.Tell()
			if len(told) != 1 || !strings.Contains(told[0], "not asked for") {
				t.Errorf("it was told: %q", told)
			}
		})
	}
}

func TestBarren(t *testing.T) {
	var b barren
	now, ms := int64(time.Hour), int64(time.Millisecond)
	var got []int64                          // milliseconds
	for id := uint64(1); id <= 30; id += 2 { // two are under way at a time
		first, second := b.ended(id, id+1, now), b.ended(id+1, id+1, now)
		if first != second {
			t.Errorf("requests %d and %d wait %v and %v", id, id+1, first, second)
		}
		got = append(got, first.Milliseconds())
		now += int64(first) + ms
	}
	if s := fmt.Sprint(got); s != "[0 0 0 0 10 20 40 80 160 320 640 1000 1000 1000 1000]" {
		t.Errorf("they wait %s", s)
	}
	if d := b.ended(31, 31, now); d != time.Second || b.until != now+int64(time.Second) {
		t.Errorf("it waits %v, until %v", d, b.until)
	}
	if d := b.ended(32, 32, now+int64(30*time.Second)); d != 0 {
		t.Errorf("what expires after a while waits %v", d)
	}
	for id := uint64(33); id < 50; id++ {
		b.ended(id, id, now)
	}
	if b.over(); b.until != 0 || b.ended(50, 50, now) != 0 {
		t.Error("after a message it waits")
	}
}
