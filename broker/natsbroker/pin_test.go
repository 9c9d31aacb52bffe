package natsbroker_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

func inOrder(o *broker.Options) { o.Ordered = true }

// pinConfig is one with short times. They are the least with which a busy machine keeps its pins.
func pinConfig(url string) natsbroker.Config {
	cfg := config(url)
	cfg.AckWait, cfg.RevokeWait = 2*time.Second, 2*time.Second
	return cfg
}

// Of two processes one gets all messages, in order, and the other one what it leaves when it is closed.
func TestOnePinnedAtATime(t *testing.T) {
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	first := open(t, pinConfig(ts.url()), inOrder)
	if !first.traits.Ordered {
		t.Error("Traits.Ordered is not set")
	}
	cc := a.info().Config
	if len(cc.PriorityGroups) != 1 || cc.PinnedTTL != 2500*time.Millisecond {
		t.Fatalf("the consumer was created with groups %v, timeout %v", cc.PriorityGroups, cc.PinnedTTL)
	}
	a.publish(1, 20)
	ms := receive(t, first, 20)
	for i, m := range ms {
		if m.Offset != int64(i+1) {
			t.Fatalf("message %d has offset %d", i, m.Offset)
		}
		if n := m.Headers.Len(); n != 0 {
			t.Fatalf("message %d has %d headers", i, n)
		}
	}
	second := open(t, pinConfig(ts.url()), inOrder)
	d := drainAll(second)
	ack(t, first, ms[:5]...)
	a.publish(21, 30)
	more := receive(t, first, 10)
	if n, _ := d.seen(); n != 0 {
		t.Errorf("%d messages came to the process that stands by", n)
	}
	ack(t, first, more[:2]...)
	closeSource(t, first)
	eventually(t, "the other gets the rest", func() bool { n, _ := d.seen(); return n == 23 })
	d.stop(t)
	a.settled()
	if n := len(second.events.of(broker.Down)); n > 0 {
		t.Errorf("%d Down events of the process that stood by", n)
	}
}
